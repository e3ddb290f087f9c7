#include "io/jpeg.h"

#include <fmt/format.h>

#if SLUICE_HAVE_JPEG
#include <csetjmp>
#include <cstdio>
// After cstdio, whose types it uses.
#include <jerror.h>
#include <jpeglib.h>
#endif

namespace sluice {

bool IsJpeg(std::string_view bytes) {
  return bytes.starts_with("\xff\xd8\xff");
}

#if SLUICE_HAVE_JPEG
namespace {

// libjpeg calls error functions that must not return: they jump back to
// Decoder, whose functions have no objects with destructors in between.
struct Errors {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer is ours
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void Fail(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->back, 1);  // NOLINT(cert-err52-cpp): libjpeg is C
}

// Warnings are for what people's photographs are full of; that the data end
// early is an error.
void Warn(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) {
    Fail(info);
  }
}

class Decoder {
 public:
  Decoder() {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = Fail;
    errors_.manager.emit_message = Warn;
    jpeg_create_decompress(&info_);
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // False after an error. Sets height(), width() and cmyk().
  bool Begin(std::string_view bytes) {
    if (setjmp(errors_.back) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = cmyk() ? JCS_CMYK : JCS_RGB;
    return true;
  }
  // Writes height() * width() pixels of 3 bytes (4 for cmyk()).
  bool Finish(unsigned char* pixels) {
    if (setjmp(errors_.back) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_start_decompress(&info_);
    const size_t row = size_t{info_.output_width} * (cmyk() ? 4 : 3);
    while (info_.output_scanline < info_.output_height) {
      unsigned char* line = pixels + info_.output_scanline * row;
      jpeg_read_scanlines(&info_, &line, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  bool cmyk() const { return info_.num_components == 4; }
  const char* message() const { return errors_.message; }

 private:
  jpeg_decompress_struct info_{};
  Errors errors_{};
};

// Adobe's programs, which alone write such files, invert the four inks.
Tensor FromInvertedCmyk(const Tensor& inks) {
  Tensor image(DType::kUInt8, {inks.shape()[0], inks.shape()[1], 3});
  const uint8_t* from = inks.data<uint8_t>();
  uint8_t* to = image.data<uint8_t>();
  for (int64_t n = inks.elements() / 4; n > 0; --n, from += 4, to += 3) {
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<uint8_t>((from[c] * from[3] + 127) / 255);
    }
  }
  return image;
}

}  // namespace

Result<Tensor> DecodeJpeg(std::string_view bytes) {
  Decoder decoder;
  if (!decoder.Begin(bytes)) return DataLoss(decoder.message());
  const int64_t height = decoder.height(), width = decoder.width();
  if (height * width > kMaxPixels) {
    return DataLoss(fmt::format("{} x {} pixels are more than {}", width,
                                height, kMaxPixels));
  }
  Tensor image(DType::kUInt8, {height, width, decoder.cmyk() ? 4 : 3});
  if (!decoder.Finish(image.data<uint8_t>())) {
    return DataLoss(decoder.message());
  }
  return decoder.cmyk() ? FromInvertedCmyk(image) : image;
}
#else
Result<Tensor> DecodeJpeg(std::string_view) {
  return Unimplemented(
      "this build has no libjpeg, so it cannot read JPEG images; install "
      "libjpeg62-turbo-dev and build again");
}
#endif

}  // namespace sluice
