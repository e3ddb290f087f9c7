#include "dist/collective/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

constexpr size_t kMaxText = 2048;
// How long a rank that knows only that its neighbour is silent or gone waits
// for what that neighbour knows.
constexpr std::chrono::milliseconds kGrace = std::chrono::seconds(1);
// Errors are small, and fit the system's buffers unless something is very
// wrong.
constexpr std::chrono::milliseconds kTell(200);

// The next error from a neighbour; nothing where it closes or is silent.
std::optional<Status> NextReason(Socket& from) {
  const auto frame = ReceiveHeader(from, After(kGrace));
  if (!frame.ok()) return std::nullopt;
  const Status reason = ReceiveErrorBehind(*frame, from, After(kGrace));
  const bool senseless = reason.code() == Code::kDataLoss &&
                         frame->count != static_cast<uint64_t>(Code::kDataLoss);
  if (senseless) return std::nullopt;
  return reason;
}

}  // namespace

std::string RankName(int rank, int size) {
  return fmt::format("rank {} of {}", rank, size);
}

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

void Links::Leave(int rank, const Status& error) {
  for (Socket* neighbour : {&next_errors, &previous_errors}) {
    (void)SendError(*neighbour, rank, error, After(kTell)).ok();
  }
  *this = Links();
}

// A silent process is noticed by all ranks at about the same time, and each
// blames the one that it waits for, though only one blames the right one. So
// each says at once that it is there and whom it blames, and believes whom it
// blames, if that one answers. Who is not answered within the grace has blamed
// the right one, and closes; the others hear that along the ring.
Status Links::Fail(int rank, int size, Status error) {
  const auto tell = [&](Socket& neighbour) {
    (void)SendError(neighbour, rank, error, After(kTell)).ok();
  };
  tell(next_errors);
  tell(previous_errors);
  const bool asks = error.code() == Code::kUnavailable ||
                    error.code() == Code::kDeadlineExceeded;
  const bool blames_previous =
      error.message().find(previous.peer()) != std::string::npos;
  Socket& blamed = blames_previous ? previous_errors : next_errors;
  Socket& other = blames_previous ? next_errors : previous_errors;
  // Every rank changes its mind once for each that is further along, at most.
  for (int i = 0; asks && i < size; ++i) {
    std::optional<Status> reason = NextReason(blamed);
    if (!reason) break;
    error = *std::move(reason);
    tell(other);
  }
  *this = Links();
  return error;
}

}  // namespace sluice::dist
