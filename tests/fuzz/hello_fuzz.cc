// Any bytes make a hello or an error; what was read is written to bytes that
// read the same.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dist/collective/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::dist::DecodeHello;
  using sluice::dist::EncodeHello;
  sluice::dist::HelloPacket packet;
  if (size < packet.size()) return 0;
  std::memcpy(packet.data(), data, packet.size());
  const auto hello = DecodeHello(packet);
  if (!hello.ok()) return 0;
  const auto again = DecodeHello(EncodeHello(*hello).ValueOrThrow());
  SLUICE_CHECK(
      again.ok() && again->rank == hello->rank && again->size == hello->size &&
      again->lane == hello->lane && again->token == hello->token &&
      again->version == hello->version && again->address == hello->address &&
      again->port == hello->port && again->node == hello->node &&
      again->group == hello->group && again->all_reduce == hello->all_reduce);
  return 0;
}
