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
  const msghdr message = left_.Message();
  const ssize_t n = sendmsg(to_.descriptor(), &message, MSG_NOSIGNAL);
  if (n < 0) {
    SLUICE_RETURN_IF_ERROR(Failure(errno, to_.peer()));
    return false;
  }
  left_.Advance(static_cast<size_t>(n));
  return n > 0;
}

std::string StreamOutgoing::Late() const {
  return LateOut(to_.peer(), left_.moved(), left_.total());
}

Result<bool> StreamIncoming::Try() {
  msghdr message = left_.Message();
  const ssize_t n = recvmsg(from_.descriptor(), &message, 0);
  if (n < 0) {
    SLUICE_RETURN_IF_ERROR(Failure(errno, from_.peer()));
    return false;
  }
  if (n == 0) return Closed(from_.peer());
  left_.Advance(static_cast<size_t>(n));
  return true;
}

std::string StreamIncoming::Late() const {
  return LateIn(from_.peer(), left_.moved(), left_.total());
}

}  // namespace sluice::dist
