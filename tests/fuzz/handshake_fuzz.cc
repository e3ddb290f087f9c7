// Any bytes in the place of a handshake are refused, by a server and by a
// client; any text is an identity or none.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"

namespace {

using namespace sluice::dist;

const Tls& Own() {
  static const std::shared_ptr<const Tls> own =
      Tls::Create(Authority::Create("fuzz")
                      .ValueOrThrow()
                      .Issue("worker", 0, std::chrono::hours(24))
                      .ValueOrThrow())
          .ValueOrThrow();
  return *own;
}

void Meet(TlsSide side, Bytes bytes) {
  std::array<int, 2> ends;
  SLUICE_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  Socket own(ends[0]), stranger(ends[1]);
  SLUICE_CHECK(own.StartTls(Own(), side).ok());
  const iovec piece = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  (void)stranger.TrySend({&piece, 1});
  shutdown(stranger.descriptor(), SHUT_WR);
  // No bytes show a certificate of an authority that was just made.
  const auto shaken = own.Handshake();
  SLUICE_CHECK(!shaken.ok() || !*shaken);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto identity = ParseIdentity(text);
  if (identity.ok()) SLUICE_CHECK(UriOf(*identity) == text);
  const auto credentials = ParseCredentials(text);
  if (credentials.ok()) {
    const auto again = ParseCredentials(TextOf(*credentials));
    SLUICE_CHECK(again.ok() && again->key == credentials->key &&
                 again->certificate == credentials->certificate &&
                 again->authority == credentials->authority);
  }
  if (!HasTls() || size > 4096) return 0;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  Meet(TlsSide::kListens, bytes);
  Meet(TlsSide::kConnects, bytes);
  return 0;
}
