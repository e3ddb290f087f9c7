// Any 48 bytes make a frame or an error; what was read encodes to the same
// bytes and agrees with itself.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dist/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::dist;
  std::array<std::byte, kFrameBytes> header;
  if (size < header.size()) return 0;
  std::memcpy(header.data(), data, header.size());
  const auto frame = Decode(header);
  if (!frame.ok()) return 0;
  SLUICE_CHECK(frame->bytes <= kMaxPayload);
  SLUICE_CHECK(CheckSame(*frame, *frame, "itself").ok());
  std::array<std::byte, kFrameBytes> again;
  Encode(*frame, again);
  SLUICE_CHECK(again == header);
  return 0;
}
