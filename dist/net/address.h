// Internet addresses as system calls take them and as people read them.
#ifndef SLUICE_DIST_NET_ADDRESS_H_
#define SLUICE_DIST_NET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_internet() const {
    return storage.ss_family == AF_INET || storage.ss_family == AF_INET6;
  }
};

// The addresses of a host, IPv4 and IPv6 in the order to try them; at least
// one. Names are looked up by the system, for as long as that takes; numbers
// are not. kNotFound where there is no such host.
Result<std::vector<Address>> Resolve(const std::string& host, int port);
// Which of a host's addresses, at least one, to listen at: the first IPv4 one,
// which every host of a job has where one of them has; where there is none, the
// first IPv6 one.
const Address& ToListenAt(const std::vector<Address>& addresses);

// The address of one end of a socket.
Result<Address> LocalAddressOf(int descriptor);
Result<Address> PeerAddressOf(int descriptor);
bool SameAddress(const Address& a, const Address& b);

// Require is_internet().
std::string HostOf(const Address& address);  // "127.0.0.1", "::1"
int PortOf(const Address& address);
// Whether the address is of this host alone: 127.0.0.0/8 or ::1.
bool IsLoopback(const Address& address);
// Checks the name of a host that others shall reach: kFailedPrecondition where
// it is no number and here means the loopback, as in Debian's /etc/hosts.
Status CheckNamesHost(const std::string& host);
// "127.0.0.1:4000", "[::1]:4000"
std::string HostAndPort(const std::string& host, int port);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_ADDRESS_H_
