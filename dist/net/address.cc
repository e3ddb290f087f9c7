#include "dist/net/address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

namespace sluice::dist {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// getaddrinfo's answer, and what it returned.
std::pair<AddressList, int> Ask(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {AddressList(error == 0 ? list : nullptr, &freeaddrinfo), error};
}

template <typename Call>
Result<Address> EndOf(int descriptor, Call call) {
  Address address;
  if (call(descriptor, address.get(), &address.size) < 0) {
    return Unavailable(fmt::format("socket {} has no address: {}", descriptor,
                                   std::strerror(errno)));
  }
  return address;
}

}  // namespace

Result<std::vector<Address>> Resolve(const std::string& host, int port) {
  // A null character would cut the name short.
  if (host.empty() || host.find('\0') != std::string::npos) {
    return InvalidArgument(fmt::format("'{}' is no host", host));
  }
  // Numbers first: a name server is not asked about them.
  auto [list, error] = Ask(host, port, AI_NUMERICHOST);
  if (error == EAI_NONAME) std::tie(list, error) = Ask(host, port, 0);
  if (error != 0) {
    return NotFound(fmt::format(
        "no address of host '{}': {}", host,
        error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  }
  std::vector<Address> addresses;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Address address;
    if (a->ai_addrlen > sizeof(address.storage)) continue;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    address.size = a->ai_addrlen;
    if (address.is_internet()) addresses.push_back(address);
  }
  if (addresses.empty()) {
    return NotFound(fmt::format("host '{}' has no internet address", host));
  }
  return addresses;
}

const Address& ToListenAt(const std::vector<Address>& addresses) {
  // A loopback address may be there beside one that others reach.
  const bool here = IsLoopback(addresses.front());
  const auto four = std::find_if(
      addresses.begin(), addresses.end(), [here](const Address& address) {
        return address.storage.ss_family == AF_INET &&
               (here || !IsLoopback(address));
      });
  return four == addresses.end() ? addresses.front() : *four;
}

Result<Address> LocalAddressOf(int descriptor) {
  return EndOf(descriptor, getsockname);
}
Result<Address> PeerAddressOf(int descriptor) {
  return EndOf(descriptor, getpeername);
}

bool SameAddress(const Address& a, const Address& b) {
  return a.is_internet() && b.is_internet() && HostOf(a) == HostOf(b) &&
         PortOf(a) == PortOf(b);
}

std::string HostOf(const Address& address) {
  char host[NI_MAXHOST];
  const int error = getnameinfo(address.get(), address.size, host, sizeof(host),
                                nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "an unknown host";
}

int PortOf(const Address& address) {
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, &address.storage, sizeof(six));
    return ntohs(six.sin6_port);
  }
  sockaddr_in four;
  std::memcpy(&four, &address.storage, sizeof(four));
  return ntohs(four.sin_port);
}

bool IsLoopback(const Address& address) {
  const std::string host = HostOf(address);
  // "::ffff:127.0.0.1": IPv4 in a socket of IPv6.
  return host.starts_with("127.") || host.starts_with("::ffff:127.") ||
         host == "::1";
}

Status CheckNamesHost(const std::string& host) {
  if (Ask(host, 0, AI_NUMERICHOST).second == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Address> addresses,
                          Resolve(host, 0));
  const Address& listens = ToListenAt(addresses);
  if (!IsLoopback(listens)) return {};
  return FailedPrecondition(fmt::format(
      "'{}' is {} on that host, where no other host can reach it: name it by "
      "its address, or mend its /etc/hosts",
      host, HostOf(listens)));
}

std::string HostAndPort(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", host, port)
             : fmt::format("{}:{}", host, port);
}

}  // namespace sluice::dist
