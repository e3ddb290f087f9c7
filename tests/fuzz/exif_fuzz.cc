// Any bytes have an orientation: as a file, and as the Exif data of a JPEG and
// of a PNG, which stand for the same.
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/images/orientation.h"
#include "tests/support/exif_bytes.h"

namespace sluice {
namespace {

// A part in the upper left corner of an upright picture, in the stored one.
ImagePart Corner(std::string_view bytes) {
  const Orientation found = ReadOrientation(bytes);
  const ImagePart part = found.Stored({0, 0, 2, 3}, 7, 9);
  SLUICE_CHECK(part.height == (found.swaps_sides() ? 3 : 2));
  SLUICE_CHECK(part.width == (found.swaps_sides() ? 2 : 3));
  SLUICE_CHECK(part.top == 0 || part.top == 7 - part.height);
  SLUICE_CHECK(part.left == 0 || part.left == 9 - part.width);
  return part;
}

void CheckData(const std::string& data) {
  const std::string name("Exif\0\0", 6);
  const ImagePart png =
      Corner("\x89PNG\r\n\x1a\n" + testing::PngChunk("eXIf", data));
  if (data.size() > 0xffff - 2 - name.size()) return;  // none of a JPEG
  const ImagePart jpeg =
      Corner("\xff\xd8" + testing::JpegSegment('\xe1', name + data));
  SLUICE_CHECK(png.top == jpeg.top && png.left == jpeg.left &&
               png.height == jpeg.height);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::Corner(bytes);
  sluice::CheckData(bytes);
  return 0;
}
