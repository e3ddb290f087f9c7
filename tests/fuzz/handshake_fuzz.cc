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

namespace sluice::dist {
namespace {

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

// Of a text that may be anything.
void Parse(std::string_view text) {
  const auto identity = ParseIdentity(text);
  if (identity.ok()) SLUICE_CHECK(UriOf(*identity) == text);
  const auto credentials = ParseCredentials(text);
  if (!credentials.ok()) return;
  const auto again = ParseCredentials(TextOf(*credentials));
  SLUICE_CHECK(again.ok() && again->key == credentials->key &&
               again->certificate == credentials->certificate &&
               again->authority == credentials->authority);
}

}  // namespace
}  // namespace sluice::dist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::dist::Parse({reinterpret_cast<const char*>(data), size});
  if (!sluice::dist::HasTls() || size > 4096) return 0;
  const sluice::dist::Bytes bytes(reinterpret_cast<const std::byte*>(data),
                                  size);
  sluice::dist::Meet(sluice::dist::TlsSide::kListens, bytes);
  sluice::dist::Meet(sluice::dist::TlsSide::kConnects, bytes);
  return 0;
}
