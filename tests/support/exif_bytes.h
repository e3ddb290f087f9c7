// Exif data, made by hand, and images with such in them.
#ifndef SLUICE_TESTS_SUPPORT_EXIF_BYTES_H_
#define SLUICE_TESTS_SUPPORT_EXIF_BYTES_H_

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::testing {

inline std::string ExifNumber(uint32_t value, int bytes, bool big) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    const int place = big ? bytes - 1 - i : i;
    text += static_cast<char>(value >> (8 * place) & 0xff);
  }
  return text;
}

struct ExifTag {
  uint32_t tag = 0x112, type = 3, count = 1;
  uint32_t value = 1;
  std::string Text(bool big) const {
    std::string number = ExifNumber(value, type == 3 ? 2 : 4, big);
    number.resize(4);
    return ExifNumber(tag, 2, big) + ExifNumber(type, 2, big) +
           ExifNumber(count, 4, big) + number;
  }
};

// A TIFF file of nothing but these, with `gap` bytes before them.
inline std::string ExifData(const std::vector<ExifTag>& tags, bool big,
                            uint32_t gap = 0) {
  std::string data = (big ? "MM" : "II") + ExifNumber(42, 2, big) +
                     ExifNumber(8 + gap, 4, big) + std::string(gap, '\x12') +
                     ExifNumber(static_cast<uint32_t>(tags.size()), 2, big);
  for (const ExifTag& tag : tags) data += tag.Text(big);
  return data + ExifNumber(0, 4, big);
}

// One among others, as cameras write it.
inline std::string ExifData(int orientation, bool big = false) {
  return ExifData({{.tag = 0x10f, .type = 2, .count = 4, .value = 0x61626300},
                   {.value = static_cast<uint32_t>(orientation)},
                   {.tag = 0x128, .value = 2}},
                  big);
}

// A segment of a JPEG, or its first bytes, of that marker.
inline std::string JpegSegment(char marker, const std::string& bytes) {
  return std::string("\xff") + marker +
         ExifNumber(static_cast<uint32_t>(bytes.size() + 2), 2, true) + bytes;
}

inline std::string JpegWithExif(const std::string& jpeg,
                                const std::string& data) {
  return jpeg.substr(0, 2) +
         JpegSegment('\xe1', std::string("Exif\0\0", 6) + data) +
         jpeg.substr(2);
}

inline std::string PngChunk(const std::string& name, const std::string& bytes) {
  const std::string named = name + bytes;
  const auto sum =
      crc32_z(0, reinterpret_cast<const Bytef*>(named.data()), named.size());
  return ExifNumber(static_cast<uint32_t>(bytes.size()), 4, true) + named +
         ExifNumber(static_cast<uint32_t>(sum), 4, true);
}

// Behind the header, or before the end.
inline std::string PngWithExif(const std::string& png, const std::string& data,
                               bool last = false) {
  constexpr size_t kHeader = 8 + 12 + 13, kEnd = 12;
  const size_t at = last ? png.size() - kEnd : kHeader;
  return png.substr(0, at) + PngChunk("eXIf", data) + png.substr(at);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_EXIF_BYTES_H_
