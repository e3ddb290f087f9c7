#include "io/images/png.h"

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "engine/allocate.h"
#include "engine/catch_errors.h"
#include "io/images/jpeg.h"

#if SLUICE_HAVE_PNG
#include <png.h>
#endif

namespace sluice {

#if SLUICE_HAVE_PNG
namespace {

uint32_t FormatOf(int64_t channels) {
  if (channels == 1) return PNG_FORMAT_GRAY;
  return channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
}

}  // namespace
#endif

Result<std::string> EncodePng(const Tensor& image) {
  const Shape& shape = image.shape();
  if (image.dtype() != DType::kUInt8 || shape.rank() != 3 ||
      (shape[2] != 1 && shape[2] != 3 && shape[2] != 4) ||
      !IsPngSize(shape[0], shape[1])) {
    return InvalidArgument(
        fmt::format("PNG: got {}{}, wanted uint8[height,width,1|3|4]",
                    NameOf(image.dtype()), shape.ToString()));
  }
#if SLUICE_HAVE_PNG
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = static_cast<uint32_t>(shape[0]);
  header.width = static_cast<uint32_t>(shape[1]);
  header.format = FormatOf(shape[2]);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string bytes;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { bytes.resize(size); }));
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, image.raw(), 0,
                                nullptr) == 0) {
    return Internal(fmt::format("PNG: {}", header.message));
  }
  bytes.resize(size);
  return bytes;
#else
  return Unimplemented(
      "this build has no libpng, so it cannot write images; install libpng-dev "
      "and build again");
#endif
}

bool IsPng(std::string_view bytes) {
  return bytes.starts_with("\x89PNG\r\n\x1a\n");
}

#if SLUICE_HAVE_PNG
namespace {

// Begin, Start, Read: these return false after an error, and then no other may
// be called. The library's own short way of reading a picture would take its
// numbers for amounts of light: see DecodePng.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : rest_(bytes) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Sets height() and width().
  bool Begin() {
    if (setjmp(back_) != 0) return false;  // NOLINT(cert-err52-cpp)
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Fail, PassOver);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_read_fn(png_, this, Take);
    png_set_benign_errors(png_, 1);  // are warnings
    // What does not change pixels is not even looked at: no text is inflated,
    // and a bad profile is no fault. Nor are gAMA and its like looked at.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return true;
  }
  // Rows become 8 bits each of red, green and blue.
  bool Start() {
    if (setjmp(back_) != 0) return false;  // NOLINT(cert-err52-cpp)
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  // All rows, one behind the other.
  bool Read(uint8_t* pixels) {
    if (setjmp(back_) != 0) return false;  // NOLINT(cert-err52-cpp)
    for (int pass = 0; pass < passes_; ++pass) {
      for (int64_t y = 0; y < height(); ++y) {
        png_read_row(png_, pixels + y * row_bytes(), nullptr);
      }
    }
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  // After Start.
  int64_t row_bytes() const {
    return static_cast<int64_t>(png_get_rowbytes(png_, info_));
  }
  // After an error.
  Status error() const {
    if (info_ == nullptr) return ResourceExhausted("libpng cannot be set up");
    return DataLoss(message_);
  }

 private:
  // libpng's functions for errors and bytes. Between setjmp and these no
  // function has objects with destructors.
  [[noreturn]] static void Fail(png_structp png, png_const_charp text) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    const size_t size =
        std::min(std::strlen(text), sizeof reader->message_ - 1);
    *std::copy_n(text, size, reader->message_) = '\0';
    std::longjmp(reader->back_, 1);  // NOLINT(cert-err52-cpp): libpng is C
  }
  static void PassOver(png_structp, png_const_charp) {}
  static void Take(png_structp png, png_bytep to, size_t size) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->rest_.size()) png_error(png, "read beyond end of data");
    std::copy_n(reader->rest_.data(), size, to);
    reader->rest_.remove_prefix(size);
  }

  std::string_view rest_;  // of the file
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  std::jmp_buf back_;
  char message_[128] = "";
};

}  // namespace

Result<Tensor> DecodePng(std::string_view bytes) {
  PngReader reader(bytes);
  if (!reader.Begin()) return reader.error();
  const int64_t height = reader.height(), width = reader.width();
  if (height * width > kMaxPixels) {
    return DataLoss(fmt::format("{} x {} pixels are more than {}", width,
                                height, kMaxPixels));
  }
  if (!reader.Start()) return reader.error();
  SLUICE_ASSIGN_OR_RETURN(Tensor image,
                          AllocateTensor(DType::kUInt8, {height, width, 3}));
  SLUICE_CHECK(reader.row_bytes() == width * 3);
  if (!reader.Read(image.data<uint8_t>())) return reader.error();
  return image;
}

std::string PngLibrary() {
  return fmt::format("libpng {}", png_get_libpng_ver(nullptr));
}
#else
Result<Tensor> DecodePng(std::string_view) {
  return Unimplemented(
      "this build has no libpng, so it cannot read PNG images; install "
      "libpng-dev and build again");
}
std::string PngLibrary() {
  return {};
}
#endif

}  // namespace sluice
