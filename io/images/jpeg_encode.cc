#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "io/images/jpeg.h"

#if SLUICE_HAVE_JPEG
#include <cstdio>
// After cstdio, whose types they use.
#include <jerror.h>
#include <jpeglib.h>

#include "engine/catch_errors.h"
#include "io/images/jpeg_errors.h"
#endif

namespace sluice {

#if SLUICE_HAVE_JPEG
namespace {

class Encoder {
 public:
  Encoder() { info_.err = errors_.manager(); }
  ~Encoder() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg's
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // False after an error.
  bool Write(const uint8_t* pixels, int64_t height, int64_t width, int quality,
             int orientation) {
    if (setjmp(errors_.back()) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    if (orientation > 1) WriteExif(static_cast<JOCTET>(orientation));
    while (info_.next_scanline < info_.image_height) {
      // libjpeg takes, but does not change, what is not const.
      auto* row = const_cast<uint8_t*>(pixels) +
                  size_t{info_.next_scanline} * info_.image_width * 3;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }
  std::string bytes() const {
    return {reinterpret_cast<const char*>(bytes_), size_};
  }
  // After an error: the image itself was looked at before.
  Status error() const {
    if (errors_.lacks_memory()) return ResourceExhausted(errors_.message());
    return Internal(fmt::format("EncodeJpeg: {}", errors_.message()));
  }

 private:
  // A TIFF file, numbers' high bytes first, of one table at byte 8 that has one
  // tag, 0x112, a number of 16 bits (io/images/exif.cc).
  void WriteExif(JOCTET orientation) {
    const JOCTET data[] = {
        'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, 42,          0, 0, 0, 8, 0, 1,
        1,   0x12, 0,   3,   0, 0, 0,   1,   0, orientation, 0, 0, 0, 0, 0, 0};
    jpeg_write_marker(&info_, JPEG_APP0 + 1, data, sizeof data);
  }

  jpeg_compress_struct info_{};
  JpegErrors errors_;
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // NOLINT(google-runtime-int): libjpeg's
};

}  // namespace

Result<std::string> EncodeJpeg(const Tensor& image, int quality,
                               int orientation) {
  const Shape& shape = image.shape();
  const auto fits = [](int64_t side) {
    return side >= 1 && side <= JPEG_MAX_DIMENSION;
  };
  if (image.dtype() != DType::kUInt8 || shape.rank() != 3 || shape[2] != 3 ||
      !fits(shape[0]) || !fits(shape[1])) {
    return InvalidArgument(fmt::format(
        "EncodeJpeg: wanted uint8[height,width,3] of 1 to {} "
        "pixels a side, got {}{}",
        JPEG_MAX_DIMENSION, NameOf(image.dtype()), shape.ToString()));
  }
  if (quality < 1 || quality > 100) {
    return InvalidArgument(
        fmt::format("EncodeJpeg: wanted quality 1 to 100, got {}", quality));
  }
  Encoder encoder;
  if (!encoder.Write(image.data<uint8_t>(), shape[0], shape[1], quality,
                     orientation)) {
    return encoder.error();
  }
  return CatchErrors([&]() -> Result<std::string> { return encoder.bytes(); });
}
#else
Result<std::string> EncodeJpeg(const Tensor&, int, int) {
  return Unimplemented(
      "this build has no libjpeg, so it cannot write JPEG images; install "
      "libjpeg62-turbo-dev and build again");
}
#endif

}  // namespace sluice
