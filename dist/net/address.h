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

// Those of a host, IPv4 and IPv6 in the order to try them; at least one. A name
// is asked of the system, for as long as that takes; numbers are not. kNotFound
// where there is no such host.
Result<std::vector<Address>> Resolve(const std::string& host, int port);
// Of those of a host, at least one, where to listen: the first of IPv4, which
// every host of a job has where one of them has; of IPv6 where there is none.
const Address& ToListenAt(const std::vector<Address>& addresses);

// Of one end of a socket.
Result<Address> LocalAddressOf(int descriptor);
Result<Address> PeerAddressOf(int descriptor);
bool SameAddress(const Address& a, const Address& b);

// Require is_internet().
std::string HostOf(const Address& address);  // "127.0.0.1", "::1"
int PortOf(const Address& address);
// Whether it is of this host alone: 127.0.0.0/8 or ::1.
bool IsLoopback(const Address& address);
// Of a host that others shall reach: kFailedPrecondition where its name, which
// is no number, is here one of the loopback, as Debian's /etc/hosts has it.
Status CheckNamesHost(const std::string& host);
// "127.0.0.1:4000", "[::1]:4000"
std::string HostAndPort(const std::string& host, int port);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_ADDRESS_H_
