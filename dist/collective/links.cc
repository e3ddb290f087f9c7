#include "dist/collective/links.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "dist/net/descriptor.h"
#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

constexpr size_t kMaxText = 2048;
// A stream's waits for more are long, and each look at it is a system call.
constexpr size_t kSpunBytes = size_t{32} << 10;
}  // namespace

Status SendText(FrameKind kind, uint64_t count, std::string_view text, int rank,
                Socket& to, Deadline deadline) {
  text = text.substr(0, kMaxText);
  Frame frame;
  frame.kind = kind;
  frame.rank = rank;
  frame.count = count;
  frame.bytes = text.size();
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  const std::array<Bytes, 2> pieces = {
      Bytes(header), std::as_bytes(std::span(text.data(), text.size()))};
  return to.Send(pieces, deadline);
}

Result<Frame> ReceiveHeader(Socket& from, Deadline deadline) {
  std::array<std::byte, kFrameBytes> header;
  SLUICE_RETURN_IF_ERROR(from.Receive(header, deadline));
  return Decode(header);
}

Result<std::string> ReceiveText(const Frame& frame, Socket& from,
                                Deadline deadline) {
  if (frame.bytes > kMaxText) {
    return DataLoss(fmt::format("{} has sent a text of {} bytes, of at most {}",
                                from.peer(), frame.bytes, kMaxText));
  }
  std::string text(frame.bytes, '\0');
  SLUICE_RETURN_IF_ERROR(from.Receive(
      std::as_writable_bytes(std::span(text.data(), text.size())), deadline));
  return text;
}

Status SendError(Socket& to, int rank, const Status& error, Deadline deadline) {
  return SendText(FrameKind::kError, static_cast<uint64_t>(error.code()),
                  error.message(), rank, to, deadline);
}

Status ReceiveErrorBehind(const Frame& frame, Socket& from, Deadline deadline) {
  if (frame.kind != FrameKind::kError || frame.count == 0 ||
      frame.count > static_cast<uint64_t>(Code::kInternal)) {
    return DataLoss(
        fmt::format("{} has sent a frame of {} where an error was "
                    "expected",
                    from.peer(), NameOf(frame.kind)));
  }
  SLUICE_ASSIGN_OR_RETURN(std::string message,
                          ReceiveText(frame, from, deadline));
  return {static_cast<Code>(frame.count), std::move(message)};
}

Status Links::Exchange(int to_rank, std::span<const Bytes> out, int from_rank,
                       MutableBytes in, const Combine& combine,
                       Deadline deadline) {
  Wire& there = to[static_cast<size_t>(to_rank)];
  Wire& here = from[static_cast<size_t>(from_rank)];
  SharedLane outgoing{there.ring.get(), &there.data, &there.pulse};
  SharedLane incoming{here.ring.get(), &here.data, &here.pulse};
  const bool combines_later = combine && here.ring == nullptr;
  MutableBytes place = in;
  if (combines_later) {
    arriving_.resize(std::max(arriving_.size(), in.size()));
    place = MutableBytes(arriving_).first(in.size());
  }
  std::optional<SharedOutgoing> shared_out;
  std::optional<StreamOutgoing> stream_out;
  std::optional<SharedIncoming> shared_in;
  std::optional<StreamIncoming> stream_in;
  Direction& sends =
      there.ring != nullptr
          ? static_cast<Direction&>(shared_out.emplace(outgoing, out))
          : stream_out.emplace(there.data, out, outgoing.pulse);
  Direction& receives =
      here.ring != nullptr
          ? static_cast<Direction&>(shared_in.emplace(incoming, in, combine))
          : stream_in.emplace(here.data, std::span(&place, 1), incoming.pulse);
  Spin* spin = nullptr;
  if (spins) {
    size_t moved = in.size();
    for (const Bytes& piece : out) moved += piece.size();
    if (there.ring != nullptr && here.ring != nullptr) {
      spin = &spin_;
    } else if (moved <= kSpunBytes) {
      spin = &streams_spin_;
    }
  }
  SLUICE_RETURN_IF_ERROR(dist::Exchange(sends, receives, deadline, spin));
  for (const Bytes& piece : out) {
    there.bytes += static_cast<int64_t>(piece.size());
  }
  if (combines_later && !in.empty()) combine(in, place);
  return {};
}

std::vector<const Socket*> Links::Pulses() const {
  std::vector<const Socket*> pulses;
  for (const std::vector<Wire>* wires : {&to, &from}) {
    for (const Wire& wire : *wires) {
      if (wire.pulse.connected()) pulses.push_back(&wire.pulse);
    }
  }
  return pulses;
}

void Links::CutThen() {
  std::vector<Descriptor> cut;
  for (const std::vector<Wire>* wires : {&to, &from}) {
    for (const Wire& wire : *wires) {
      if (!wire.data.connected()) continue;
      cut.emplace_back(fcntl(wire.data.descriptor(), F_DUPFD_CLOEXEC, 0));
    }
  }
  membership->CutThen(std::move(cut));
}

void Links::Leave(const Status& error) {
  if (membership != nullptr) (void)membership->Fail(error).ok();
  *this = Links();
}

int Links::Blamed(const Status& error) const {
  if (error.code() != Code::kUnavailable &&
      error.code() != Code::kDeadlineExceeded) {
    return -1;
  }
  int blamed = -1;
  size_t first = std::string::npos;
  for (const std::vector<Wire>* wires : {&from, &to}) {
    for (size_t rank = 0; rank < wires->size(); ++rank) {
      const Socket& data = (*wires)[rank].data;
      if (!data.connected()) continue;
      const size_t at = error.message().find(data.peer());
      if (at >= first) continue;
      first = at;
      blamed = static_cast<int>(rank);
    }
  }
  return blamed;
}

// A peer that has closed may have done so for a third one's sake, and a stopped
// process is noticed by all ranks at about the same time, each of which blames
// the one that it waits for.
Status Links::Fail(Status error) {
  const int blamed = Blamed(error);
  if (membership == nullptr) {
    // While the ring is formed.
  } else if (blamed >= 0) {
    error = membership->Suspect(blamed, error);
  } else {
    (void)membership->Fail(error).ok();
  }
  *this = Links();
  return error;
}

}  // namespace sluice::dist
