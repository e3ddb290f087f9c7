// Any bytes are a picture or an error: as a file, whose checksums stop most
// inputs; with the checksums of its chunks put right; and as a header and rows,
// which are compressed here.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/images/png.h"
#include "tests/support/png_bytes.h"

namespace sluice {
namespace {

using testing::kPngMagic;

constexpr size_t kHeaderBytes = 13;  // of IHDR: two sizes and five choices
constexpr uint64_t kMostPixels = 1 << 16;  // larger ones only take longer

uint32_t BigEndian(std::string_view bytes) {
  uint32_t number = 0;
  for (const char c : bytes.substr(0, 4)) {
    number = number << 8 | static_cast<uint8_t>(c);
  }
  return number;
}

// Whether the first chunk says that there are many.
bool IsLarge(std::string_view file) {
  constexpr size_t kSizes = kPngMagic.size() + 8;
  if (file.size() < kSizes + 8) return false;
  return uint64_t{BigEndian(file.substr(kSizes))} *
             BigEndian(file.substr(kSizes + 4)) >
         kMostPixels;
}

void Check(const std::string& file) {
  if (IsLarge(file)) return;
  const auto image = DecodePng(file);
  if (!image.ok()) {
    SLUICE_CHECK(image.status().code() == Code::kDataLoss);
    return;
  }
  SLUICE_CHECK(image->shape().rank() == 3 && image->shape()[2] == 3);
  const auto again = DecodePng(EncodePng(*image).ValueOrThrow());
  SLUICE_CHECK(again.ok() && again->BitEqual(*image));
}

std::string WithChecksums(std::string_view file) {
  std::string out(kPngMagic);
  file.remove_prefix(std::min(file.size(), kPngMagic.size()));
  while (file.size() >= 8) {
    const size_t size = std::min<size_t>(BigEndian(file), file.size() - 8);
    out += testing::PngChunk(std::string(file.substr(4, 4)),
                             std::string(file.substr(8, size)));
    file.remove_prefix(std::min(file.size(), size + 12));
  }
  return out;
}

// The first byte is the number of colours in the palette, which follows the
// header; then rows come.
std::string OfRows(std::string_view bytes) {
  if (bytes.size() < 1 + kHeaderBytes) return {};
  const size_t colours = 3 * static_cast<uint8_t>(bytes[0]);
  const std::string header(bytes.substr(1, kHeaderBytes));
  bytes.remove_prefix(1 + kHeaderBytes);
  const std::string palette(bytes.substr(0, colours));
  bytes.remove_prefix(palette.size());
  return std::string(kPngMagic) + testing::PngChunk("IHDR", header) +
         (palette.empty() ? "" : testing::PngChunk("PLTE", palette)) +
         testing::PngChunk("IDAT", testing::ZlibCompressed(bytes)) +
         testing::PngChunk("IEND", "");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::Check(bytes);
  sluice::Check(sluice::WithChecksums(bytes));
  sluice::Check(sluice::OfRows(bytes));
  return 0;
}
