#include "dist/collective/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

constexpr size_t kMaxText = 2048;
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

Status Links::Exchange(std::span<const Bytes> out, MutableBytes in,
                       const Combine& combine, Deadline deadline) {
  SharedLane to{to_next.get(), &next, &next_pulse};
  SharedLane from{from_previous.get(), &previous, &previous_pulse};
  const bool combines_later = combine && from.ring == nullptr;
  MutableBytes place = in;
  if (combines_later) {
    arriving_.resize(std::max(arriving_.size(), in.size()));
    place = MutableBytes(arriving_).first(in.size());
  }
  std::optional<SharedOutgoing> shared_out;
  std::optional<StreamOutgoing> stream_out;
  std::optional<SharedIncoming> shared_in;
  std::optional<StreamIncoming> stream_in;
  Direction& sends = to.ring != nullptr
                         ? static_cast<Direction&>(shared_out.emplace(to, out))
                         : stream_out.emplace(next, out, to.pulse);
  Direction& receives =
      from.ring != nullptr
          ? static_cast<Direction&>(shared_in.emplace(from, in, combine))
          : stream_in.emplace(previous, std::span(&place, 1), from.pulse);
  SLUICE_RETURN_IF_ERROR(
      dist::Exchange(sends, receives, deadline, spins ? &spin_ : nullptr));
  if (combines_later && !in.empty()) combine(in, place);
  return {};
}

void Links::Leave(const Status& error) {
  if (membership != nullptr) (void)membership->Fail(error).ok();
  *this = Links();
}

// A neighbour that has closed may have done so for a third one's sake, and a
// stopped process is noticed by all ranks at about the same time, each of which
// blames the one that it waits for.
Status Links::Fail(int rank, int size, Status error) {
  const bool by_peer = error.code() == Code::kUnavailable ||
                       error.code() == Code::kDeadlineExceeded;
  const auto blames = [&](const Socket& neighbour) {
    return by_peer &&
           error.message().find(neighbour.peer()) != std::string::npos;
  };
  if (membership == nullptr) {
    // While the ring is formed.
  } else if (blames(previous)) {
    error = membership->Suspect((rank + size - 1) % size, error);
  } else if (blames(next)) {
    error = membership->Suspect((rank + 1) % size, error);
  } else {
    (void)membership->Fail(error).ok();
  }
  *this = Links();
  return error;
}

}  // namespace sluice::dist
