// The parts of PNG files, made by hand.
#ifndef SLUICE_TESTS_SUPPORT_PNG_BYTES_H_
#define SLUICE_TESTS_SUPPORT_PNG_BYTES_H_

#include <zlib.h>

#include <string>
#include <string_view>

#include "engine/status.h"
#include "tests/support/exif_bytes.h"

namespace sluice::testing {

inline constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";

inline std::string ZlibCompressed(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  SLUICE_CHECK(compress(reinterpret_cast<Bytef*>(out.data()), &size,
                        reinterpret_cast<const Bytef*>(bytes.data()),
                        bytes.size()) == Z_OK);
  out.resize(size);
  return out;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_PNG_BYTES_H_
