#include "dist/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "dist/net/address.h"

namespace sluice::dist {
namespace {

// After a deadline, for peers that were stopped and continued with this one.
constexpr std::chrono::milliseconds kOnceMore(1000);

void SetOption(int descriptor, int level, int option) {
  const int on = 1;  // refused by sockets that are not TCP's, which do without
  setsockopt(descriptor, level, option, &on, sizeof(on));
}

// The pieces of one direction that are still to be moved.
template <typename Piece>
class Remaining {
 public:
  explicit Remaining(std::span<const Piece> pieces) : pieces_(pieces) {
    for (const Piece& piece : pieces) total_ += piece.size();
    Advance(0);
  }

  bool empty() const { return pieces_.empty(); }
  size_t done() const { return done_; }
  size_t total() const { return total_; }

  // As many pieces as one call may well take.
  msghdr Message() {
    const size_t count = std::min(pieces_.size(), vectors_.size());
    for (size_t i = 0; i < count; ++i) {
      // sendmsg(2) only reads, for all that its struct is recvmsg(2)'s too.
      vectors_[i] = {const_cast<std::byte*>(pieces_[i].data()),
                     pieces_[i].size()};
    }
    vectors_[0].iov_base =
        static_cast<std::byte*>(vectors_[0].iov_base) + offset_;
    vectors_[0].iov_len -= offset_;
    msghdr message{};
    message.msg_iov = vectors_.data();
    message.msg_iovlen = count;
    return message;
  }

  // Leaves a first piece with bytes to move, or none.
  void Advance(size_t bytes) {
    done_ += bytes;
    offset_ += bytes;
    while (!pieces_.empty() && offset_ >= pieces_[0].size()) {
      offset_ -= pieces_[0].size();
      pieces_ = pieces_.subspan(1);
    }
  }

 private:
  std::span<const Piece> pieces_;
  size_t offset_ = 0;  // within the first
  size_t done_ = 0;    // bytes
  size_t total_ = 0;
  std::array<iovec, 64> vectors_;
};

Status Closed(const std::string& peer) {
  return Unavailable(fmt::format("{} has closed the connection", peer));
}

// What a call that moved nothing means: ok where it is only not yet possible.
Status Failure(int error, const std::string& peer) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return {};
  if (error == EPIPE) return Closed(peer);
  return Unavailable(fmt::format("{}: {}", peer, std::strerror(error)));
}

// One direction of an exchange.
class Outgoing : public Remaining<Bytes> {
 public:
  static constexpr short kEvent = POLLOUT;
  using Remaining::Remaining;

  // Moves what can be moved now; whether that was anything.
  Result<bool> Try(const Socket& to) {
    const msghdr message = Message();
    const ssize_t n = sendmsg(to.descriptor(), &message, MSG_NOSIGNAL);
    if (n < 0) {
      SLUICE_RETURN_IF_ERROR(Failure(errno, to.peer()));
      return false;
    }
    Advance(static_cast<size_t>(n));
    return n > 0;
  }
  std::string Late(const Socket& to) const {
    return fmt::format("{} takes nothing for so long: {} of {} bytes sent",
                       to.peer(), done(), total());
  }
};

class Incoming : public Remaining<MutableBytes> {
 public:
  static constexpr short kEvent = POLLIN;
  using Remaining::Remaining;

  Result<bool> Try(const Socket& from) {
    msghdr message = Message();
    const ssize_t n = recvmsg(from.descriptor(), &message, 0);
    if (n < 0) {
      SLUICE_RETURN_IF_ERROR(Failure(errno, from.peer()));
      return false;
    }
    if (n == 0) return Closed(from.peer());
    Advance(static_cast<size_t>(n));
    return true;
  }
  std::string Late(const Socket& from) const {
    return fmt::format("nothing from {} for so long: {} of {} bytes received",
                       from.peer(), done(), total());
  }
};

Status NotConnected(const std::string& peer) {
  return FailedPrecondition(fmt::format("the socket{}{} is not connected",
                                        peer.empty() ? "" : " of ", peer));
}

Status TooLate(const Socket& to, const Outgoing& out, const Socket& from,
               const Incoming& in) {
  if (out.empty()) return DeadlineExceeded(in.Late(from));
  if (in.empty()) return DeadlineExceeded(out.Late(to));
  return DeadlineExceeded(in.Late(from) + "; " + out.Late(to));
}

}  // namespace

Status Exchange(Socket& to, std::span<const Bytes> out_pieces, Socket& from,
                std::span<const MutableBytes> in_pieces, Deadline deadline) {
  Outgoing out(out_pieces);
  Incoming in(in_pieces);
  if (!out.empty() && !to.connected()) return NotConnected(to.peer());
  if (!in.empty() && !from.connected()) return NotConnected(from.peer());
  while (!out.empty() || !in.empty()) {
    bool moved = false;
    if (!out.empty()) {
      SLUICE_ASSIGN_OR_RETURN(moved, out.Try(to));
    }
    if (!in.empty()) {
      SLUICE_ASSIGN_OR_RETURN(const bool received, in.Try(from));
      moved = moved || received;
    }
    if (moved) continue;
    std::array<pollfd, 2> waiting;
    size_t count = 0;
    if (!out.empty()) waiting[count++] = {to.descriptor(), out.kEvent, 0};
    if (!in.empty()) waiting[count++] = {from.descriptor(), in.kEvent, 0};
    int ready = Wait({waiting.data(), count}, deadline);
    // Where this process itself stood still, what has come since is there.
    if (ready == 0) ready = Wait({waiting.data(), count}, After(kOnceMore));
    if (ready < 0) return Failure(errno, from.peer());
    if (ready == 0) return TooLate(to, out, from, in);
  }
  return {};
}

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (!connected()) return;
  descriptor_.MakePrivateAndNonBlocking();
  // Small frames are waited for. A host that dies without a word is noticed.
  // Buffer sizes are the system's: to fix them ends its tuning, which made
  // large transfers on loopback slower (docs/performance.md).
  SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY);
  SetOption(descriptor, SOL_SOCKET, SO_KEEPALIVE);
  const auto address = PeerAddressOf(descriptor);
  peer_ = address.ok() && address->is_internet()
              ? HostAndPort(HostOf(*address), PortOf(*address))
              : "the peer";
}

Result<std::string> Socket::LocalAddress() const {
  if (!connected()) return NotConnected(peer_);
  SLUICE_ASSIGN_OR_RETURN(const Address address, LocalAddressOf(descriptor()));
  if (!address.is_internet()) {
    return FailedPrecondition("a local socket has no internet address");
  }
  return HostOf(address);
}

Status Socket::Send(std::span<const Bytes> pieces, Deadline deadline) {
  return Exchange(*this, pieces, *this, {}, deadline);
}

Status Socket::Receive(MutableBytes bytes, Deadline deadline) {
  return Exchange(*this, {}, *this, {&bytes, 1}, deadline);
}

}  // namespace sluice::dist
