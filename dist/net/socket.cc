#include "dist/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "dist/net/address.h"
#include "dist/net/exchange.h"
#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

void SetOption(int descriptor, int level, int option) {
  const int on = 1;  // refused by sockets that are not TCP's, which do without
  setsockopt(descriptor, level, option, &on, sizeof(on));
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
