#include "dist/net/stream.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace sluice::dist {

Status Closed(const std::string& peer) {
  return Unavailable(fmt::format("{} has closed the connection", peer));
}

Status Failure(int error, const std::string& peer) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return {};
  if (error == EPIPE) return Closed(peer);
  return Unavailable(fmt::format("{}: {}", peer, std::strerror(error)));
}

std::string LateOut(const std::string& peer, size_t moved, size_t total) {
  return fmt::format("{} takes nothing for so long: {} of {} bytes sent", peer,
                     moved, total);
}

std::string LateIn(const std::string& peer, size_t moved, size_t total) {
  return fmt::format("nothing from {} for so long: {} of {} bytes received",
                     peer, moved, total);
}

Result<bool> StreamOutgoing::Try() {
  SLUICE_ASSIGN_OR_RETURN(const size_t n, to_.TrySend(left_.Vectors()));
  left_.Advance(n);
  return n > 0;
}

std::string StreamOutgoing::Late() const {
  return LateOut(to_.peer(), left_.moved(), left_.total());
}

Result<bool> StreamIncoming::Try() {
  SLUICE_ASSIGN_OR_RETURN(const size_t n, from_.TryReceive(left_.Vectors()));
  left_.Advance(n);
  return n > 0;
}

std::string StreamIncoming::Late() const {
  return LateIn(from_.peer(), left_.moved(), left_.total());
}

}  // namespace sluice::dist
