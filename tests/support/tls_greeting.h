// What a client of TLS says first.
#ifndef SLUICE_TESTS_SUPPORT_TLS_GREETING_H_
#define SLUICE_TESTS_SUPPORT_TLS_GREETING_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <vector>

#include "dist/net/socket.h"
#include "dist/net/tls.h"

namespace sluice::testing {

inline std::vector<std::byte> TlsGreeting(const dist::Tls& tls) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return {};
  dist::Socket client(ends[0]), other(ends[1]);
  (void)client.StartTls(tls, dist::TlsSide::kConnects).ok();
  (void)client.Handshake().ok();
  std::vector<std::byte> bytes(4096);
  const iovec room = {bytes.data(), bytes.size()};
  bytes.resize(other.TryReceive({&room, 1}).ValueOrThrow());
  return bytes;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TLS_GREETING_H_
