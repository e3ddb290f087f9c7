// ReadOrientation (io/images/orientation.h): finds Exif data and the one tag of
// them that matters. They are a TIFF file ("TIFF 6.0", Adobe, 1992):
//   data  := order:2 42:u16 table:u32 ...     order "II": low bytes first, "MM"
//   table := count:u16 entry*count            at `table` bytes from the begin
//   entry := tag:u16 type:u16 count:u32 value:4   a short value comes first
#include <zlib.h>

#include <cstddef>
#include <optional>

#include "io/images/jpeg.h"
#include "io/images/orientation.h"
#include "io/images/png.h"

namespace sluice {
namespace {

// Whole numbers in bytes; 0 where these end.
class Numbers {
 public:
  Numbers(std::string_view bytes, bool big) : bytes_(bytes), big_(big) {}

  uint32_t U16(size_t at) const { return Number(at, 2); }
  uint32_t U32(size_t at) const { return Number(at, 4); }

 private:
  uint32_t Number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t number = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t place = big_ ? at + i : at + size - 1 - i;
      number = number << 8 | static_cast<uint8_t>(bytes_[place]);
    }
    return number;
  }

  std::string_view bytes_;
  bool big_;
};

int OrientationTag(std::string_view tiff) {
  constexpr uint32_t kOrientation = 0x112, kShort = 3, kLong = 4;
  constexpr size_t kEntryBytes = 12;
  const bool big = tiff.starts_with("MM");
  if (!big && !tiff.starts_with("II")) return 1;
  const Numbers numbers(tiff, big);
  if (numbers.U16(2) != 42) return 1;
  const size_t table = numbers.U32(4);
  for (uint32_t i = 0; i < numbers.U16(table); ++i) {
    const size_t entry = table + 2 + i * kEntryBytes;
    if (numbers.U16(entry) != kOrientation) continue;
    const uint32_t type = numbers.U16(entry + 2);
    if (numbers.U32(entry + 4) != 1) return 1;
    // The standard says short; some write long.
    if (type == kShort) return static_cast<int>(numbers.U16(entry + 8));
    if (type != kLong) return 1;
    const uint32_t value = numbers.U32(entry + 8);
    return value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

// The Exif data of a JPEG's header: of what comes before the picture.
std::optional<std::string_view> ExifOfJpeg(std::string_view bytes) {
  constexpr std::string_view kName("Exif\0\0", 6);
  constexpr uint32_t kApp1 = 0xe1, kStartOfScan = 0xda, kEndOfImage = 0xd9;
  const Numbers numbers(bytes, /*big=*/true);
  for (size_t at = 2; at < bytes.size();) {
    // What lies between segments is passed over, as libjpeg does.
    at = bytes.find('\xff', at);
    at =
        at == std::string_view::npos ? at : bytes.find_first_not_of('\xff', at);
    if (at == std::string_view::npos) break;
    const auto marker = static_cast<uint8_t>(bytes[at]);
    ++at;
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    // These stand alone: no marker, TEM, restarts and the start of an image.
    if (marker <= 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    const size_t length = numbers.U16(at);  // its own two bytes included
    if (length < 2 || length > bytes.size() - at) break;
    const std::string_view segment = bytes.substr(at + 2, length - 2);
    if (marker == kApp1 && segment.starts_with(kName)) {
      return segment.substr(kName.size());
    }
    at += length;
  }
  return std::nullopt;
}

// That of a PNG (PNG specification, third edition): chunks of a length, a name
// of four bytes, so many bytes and their checksum.
std::optional<std::string_view> ExifOfPng(std::string_view bytes) {
  constexpr size_t kSignatureBytes = 8, kAround = 12;
  const Numbers numbers(bytes, /*big=*/true);
  size_t at = kSignatureBytes;
  while (at < bytes.size() && bytes.size() - at >= kAround) {
    const size_t length = numbers.U32(at);
    if (length > bytes.size() - at - kAround) break;
    const std::string_view named = bytes.substr(at + 4, 4 + length);
    if (named.starts_with("eXIf")) {
      const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(named.data()),
                               named.size());
      if (sum != numbers.U32(at + 8 + length)) break;
      return named.substr(4);
    }
    at += kAround + length;
  }
  return std::nullopt;
}

}  // namespace

Orientation ReadOrientation(std::string_view bytes) {
  std::optional<std::string_view> exif;
  if (IsJpeg(bytes)) exif = ExifOfJpeg(bytes);
  if (IsPng(bytes)) exif = ExifOfPng(bytes);
  return Orientation(exif ? OrientationTag(*exif) : 1);
}

}  // namespace sluice
