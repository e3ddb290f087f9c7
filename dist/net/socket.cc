#include "dist/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "dist/net/address.h"
#include "dist/net/exchange.h"
#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

void SetOption(int descriptor, int level, int option) {
  const int on = 1;  // refused by sockets that are not TCP's, which do without
  setsockopt(descriptor, level, option, &on, sizeof(on));
}

// Of a record of TLS, without what encryption adds.
constexpr size_t kRecord = size_t{16} << 10;

// The first pieces as one, so that a small header does not travel alone: how
// many they are. Requires a piece.
Bytes Joined(std::span<const iovec> pieces, std::span<std::byte> room,
             size_t* count) {
  size_t bytes = 0;
  *count = 0;
  while (*count < pieces.size() &&
         bytes + pieces[*count].iov_len <= room.size()) {
    bytes += pieces[(*count)++].iov_len;
  }
  if (*count <= 1) {  // as it lies
    *count = 1;
    return {static_cast<const std::byte*>(pieces[0].iov_base),
            pieces[0].iov_len};
  }
  size_t at = 0;
  for (const iovec& piece : pieces.first(*count)) {
    if (piece.iov_len == 0) continue;
    std::memcpy(room.data() + at, piece.iov_base, piece.iov_len);
    at += piece.iov_len;
  }
  return room.first(at);
}

Status NotConnected(const std::string& peer) {
  return FailedPrecondition(fmt::format("the socket{}{} is not connected",
                                        peer.empty() ? "" : " of ", peer));
}

}  // namespace

Status Exchange(Socket& to, std::span<const Bytes> out_pieces, Socket& from,
                std::span<const MutableBytes> in_pieces, Deadline deadline) {
  StreamOutgoing out(to, out_pieces);
  StreamIncoming in(from, in_pieces);
  if (!out.done() && !to.connected()) return NotConnected(to.peer());
  if (!in.done() && !from.connected()) return NotConnected(from.peer());
  return Exchange(out, in, deadline);
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

Status Socket::StartTls(const Tls& tls, TlsSide side) {
  if (!connected()) return NotConnected(peer_);
  SLUICE_ASSIGN_OR_RETURN(tls_, TlsSession::Create(tls, side, descriptor()));
  return {};
}

Result<bool> Socket::Handshake() {
  Result<bool> done = tls_->Handshake();
  if (!done.ok()) return Named(done.status());
  return done;
}

Status Socket::AwaitTls(const Tls& tls, TlsSide side, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(StartTls(tls, side));
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool done, Handshake());
    if (done) return {};
    pollfd waiting = {descriptor(), handshake_events(), 0};
    if (Wait({&waiting, 1}, deadline) == 0) {
      return DeadlineExceeded(
          fmt::format("no handshake with {} for so long", peer_));
    }
  }
}

// Of a session's, which knows no names.
Status Socket::Named(const Status& error) const {
  if (error.message() == "closed") return Closed(peer_);
  return error.WithContext(peer_);
}

Result<size_t> Socket::TrySend(std::span<const iovec> pieces) const {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    const ssize_t n =
        sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return static_cast<size_t>(n);
    SLUICE_RETURN_IF_ERROR(Failure(errno, peer_));
    return size_t{0};
  }
  std::array<std::byte, kRecord> joined;
  size_t sent = 0;
  while (!pieces.empty()) {
    size_t count = 0;
    const Bytes next = Joined(pieces, joined, &count);
    const Result<size_t> taken = tls_->Send(next);
    if (!taken.ok()) return Named(taken.status());
    sent += *taken;
    if (*taken < next.size()) break;
    pieces = pieces.subspan(count);
  }
  return sent;
}

Result<size_t> Socket::TryReceive(std::span<const iovec> pieces) const {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    const ssize_t n = recvmsg(descriptor(), &message, MSG_DONTWAIT);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) return Closed(peer_);
    SLUICE_RETURN_IF_ERROR(Failure(errno, peer_));
    return size_t{0};
  }
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    const Result<size_t> received =
        tls_->Receive({static_cast<std::byte*>(piece.iov_base), piece.iov_len});
    if (!received.ok()) return Named(received.status());
    return *received;
  }
  return size_t{0};
}

bool Socket::AwaitReadable(Deadline deadline) const {
  if (tls_ != nullptr && tls_->pending()) return true;
  pollfd readable = {descriptor(), POLLIN, 0};
  return Wait({&readable, 1}, deadline) != 0;
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
