// How streams come to be: Socket::Connect and Listener.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dist/net/address.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"

namespace sluice::dist {
namespace {

constexpr std::chrono::milliseconds kRetry(50);

// A stream socket for addresses like this one, or none and errno.
Descriptor NewSocket(const Address& address) {
  return Descriptor(socket(address.storage.ss_family,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Where nobody listens, and the system happens to choose the wanted port as
// this end's own, TCP connects a socket to itself.
bool IsItsOwnPeer(int descriptor) {
  const auto local = LocalAddressOf(descriptor);
  const auto peer = PeerAddressOf(descriptor);
  return local.ok() && peer.ok() && SameAddress(*local, *peer);
}

// Waits for the end of a connect(2) under way: its errno, 0 for success.
int Finish(int descriptor, Deadline deadline) {
  pollfd waiting = {descriptor, POLLOUT, 0};
  const int ready = Wait({&waiting, 1}, deadline);
  if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  int error = 0;
  socklen_t size = sizeof(error);
  const int asked = getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return asked < 0 ? errno : error;
}

// Leaves the connected socket in *out and returns 0, or returns an errno.
int TryConnect(const Address& address, Deadline deadline, Descriptor* out) {
  Descriptor socket = NewSocket(address);
  if (socket.get() < 0) return errno;
  if (connect(socket.get(), address.get(), address.size) < 0) {
    // Interrupted, it goes on by itself.
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (const int error = Finish(socket.get(), deadline)) return error;
  }
  if (IsItsOwnPeer(socket.get())) return ECONNREFUSED;
  *out = std::move(socket);
  return 0;
}

// An equal part of the time that is left, so that an address that does not
// answer leaves some for those behind it.
Deadline Share(Deadline deadline, size_t addresses) {
  const Deadline now = std::chrono::steady_clock::now();
  if (deadline <= now) return deadline;
  return now + (deadline - now) / static_cast<Deadline::rep>(addresses);
}

// What may be over when the other host has begun, or the network has come.
bool MayPass(int error) {
  constexpr std::array kErrors = {ECONNREFUSED, ETIMEDOUT, ECONNRESET,
                                  EHOSTUNREACH, EHOSTDOWN, ENETUNREACH,
                                  ENETDOWN};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

// How much it counts of several failures: a refusal most, as there is a host;
// what never passes least, such as of IPv6 where this host has none, since
// another address may do in time.
int Weight(int error) {
  return error == ECONNREFUSED ? 2 : MayPass(error) ? 1 : 0;
}

// Each in turn.
int TryAll(const std::vector<Address>& addresses, Deadline deadline,
           Descriptor* out) {
  int failure = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Deadline share = Share(deadline, addresses.size() - i);
    const int error = TryConnect(addresses[i], share, out);
    if (error == 0) return 0;
    if (failure == 0 || Weight(error) > Weight(failure)) failure = error;
  }
  return failure;
}

Status CannotListen(const std::string& address) {
  return Unavailable(
      fmt::format("cannot listen at {}: {}", address, std::strerror(errno)));
}

// Of an error that did not pass.
std::string Persistent(int error) {
  if (error == ECONNREFUSED) return "nobody listens there";
  return error == ETIMEDOUT ? "no answer" : std::strerror(error);
}

// Errors of one connection, which accept(2) reports in its place.
bool ConcernsOnlyThePeer(int error) {
  constexpr std::array kErrors = {
      EAGAIN,     EWOULDBLOCK, EINTR,        ECONNABORTED, EPROTO,
      ENETDOWN,   ENETUNREACH, EHOSTUNREACH, EHOSTDOWN,    ENOPROTOOPT,
      EOPNOTSUPP, ETIMEDOUT,   EPERM};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

}  // namespace

Result<Socket> Socket::Connect(const std::string& host, int port,
                               Deadline deadline, bool awaits_listener) {
  const std::string where = HostAndPort(host, port);
  if (port < 1 || port > 65535) {
    return InvalidArgument(fmt::format("{} is no port", where));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Address> addresses,
                          Resolve(host, port));
  return ConnectToAny(addresses, where, deadline, awaits_listener);
}

Result<Socket> Socket::ConnectToAny(const std::vector<Address>& addresses,
                                    const std::string& where, Deadline deadline,
                                    bool awaits_listener) {
  while (true) {
    Descriptor connected;
    const int error = TryAll(addresses, deadline, &connected);
    if (error == 0) return Socket(connected.Release());
    if (!MayPass(error) || (error == ECONNREFUSED && !awaits_listener)) {
      return Unavailable(
          fmt::format("cannot connect to {}: {}", where, Persistent(error)));
    }
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return DeadlineExceeded(fmt::format(
          "cannot connect to {} for so long: {}", where, Persistent(error)));
    }
    std::this_thread::sleep_until(std::min(deadline, now + kRetry));
  }
}

Result<Listener> Listener::Open(const std::string& address, int port) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Address> addresses,
                          Resolve(address, port));
  const Address& at = ToListenAt(addresses);
  Descriptor socket = NewSocket(at);
  // A job that is begun anew finds connections of the last one at its port, and
  // both must allow it. Before bind(2) the system may choose one that is used.
  const int on = 1;
  const auto allow = [&] {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  };
  if (port != 0) allow();
  if (socket.get() < 0 || bind(socket.get(), at.get(), at.size) < 0) {
    return CannotListen(port == 0 ? address : HostAndPort(address, port));
  }
  if (port == 0) allow();
  if (listen(socket.get(), SOMAXCONN) < 0) {
    return CannotListen(HostAndPort(address, port));
  }
  return Listener(socket.Release());
}

Result<Listener> Listener::OpenPreferring(
    const std::string& address, int port,
    const std::function<void(std::string_view)>& note) {
  Result<Listener> wanted = Open(address, port);
  if (wanted.ok() || port == 0) return wanted;
  SLUICE_ASSIGN_OR_RETURN(Listener other, Open(address));
  if (note) {
    note(
        fmt::format("port {} is not to be had ({}): listens at port {}, which "
                    "a firewall has to let pass",
                    port, wanted.status().message(), other.port()));
  }
  return other;
}

Listener::Listener(int descriptor) : descriptor_(descriptor) {
  descriptor_.MakePrivateAndNonBlocking();
  const auto address = LocalAddressOf(descriptor);
  if (address.ok() && address->is_internet()) port_ = PortOf(*address);
}

Result<Socket> Listener::Accept(Deadline deadline) {
  while (true) {
    const int accepted =
        accept4(descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) return Socket(accepted);
    if (errno == EMFILE || errno == ENFILE) {
      return ResourceExhausted(
          fmt::format("port {}: {}", port_, std::strerror(errno)));
    }
    if (!ConcernsOnlyThePeer(errno)) {
      return Unavailable(
          fmt::format("port {}: {}", port_, std::strerror(errno)));
    }
    pollfd waiting = {descriptor(), POLLIN, 0};
    const int ready = Wait({&waiting, 1}, deadline);
    if (ready < 0) {
      return Unavailable(
          fmt::format("port {}: {}", port_, std::strerror(errno)));
    }
    if (ready == 0) {
      return DeadlineExceeded(
          fmt::format("nobody has connected to port {} for so long", port_));
    }
  }
}

}  // namespace sluice::dist
