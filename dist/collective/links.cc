#include "dist/collective/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace sluice::dist {
namespace {

constexpr size_t kMaxMessage = 2048;
// How long a rank that knows only that its neighbour is silent or gone waits
// for what that neighbour knows.
constexpr std::chrono::milliseconds kGrace = std::chrono::seconds(1);
// Errors are small, and fit the system's buffers unless something is very
// wrong.
constexpr std::chrono::milliseconds kTell(200);

// The next error from a neighbour; nothing where it closes or is silent.
std::optional<Status> NextReason(Socket& from) {
  std::array<std::byte, kFrameBytes> header;
  if (!from.Receive(header, After(kGrace)).ok()) return std::nullopt;
  const auto frame = Decode(header);
  if (!frame.ok()) return std::nullopt;
  const Status reason = ReceiveErrorBehind(*frame, from, After(kGrace));
  if (reason.code() == Code::kDataLoss) return std::nullopt;
  return reason;
}

}  // namespace

std::string RankName(int rank, int size) {
  return fmt::format("rank {} of {}", rank, size);
}

Status SendError(Socket& to, int rank, const Status& error, Deadline deadline) {
  const std::string_view message =
      std::string_view(error.message()).substr(0, kMaxMessage);
  Frame frame;
  frame.kind = FrameKind::kError;
  frame.rank = rank;
  frame.count = static_cast<uint64_t>(error.code());
  frame.bytes = message.size();
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  const std::array<Bytes, 2> pieces = {
      Bytes(header), std::as_bytes(std::span(message.data(), message.size()))};
  return to.Send(pieces, deadline);
}

Status ReceiveErrorBehind(const Frame& frame, Socket& from, Deadline deadline) {
  if (frame.kind != FrameKind::kError || frame.bytes > kMaxMessage ||
      frame.count == 0 ||
      frame.count > static_cast<uint64_t>(Code::kInternal)) {
    return DataLoss(
        fmt::format("{} has sent a frame of {} where an error was "
                    "expected",
                    from.peer(), NameOf(frame.kind)));
  }
  std::string message(frame.bytes, '\0');
  SLUICE_RETURN_IF_ERROR(from.Receive(
      std::as_writable_bytes(std::span(message.data(), message.size())),
      deadline));
  return {static_cast<Code>(frame.count), std::move(message)};
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
