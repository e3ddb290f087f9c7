#include "io/images/png.h"

#include <fmt/format.h>

#include <algorithm>

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
Result<Tensor> DecodePng(std::string_view bytes) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()) ==
      0) {
    return DataLoss(header.message);
  }
  const int64_t height = header.height, width = header.width;
  if (height * width > kMaxPixels) {
    png_image_free(&header);
    return DataLoss(fmt::format("{} x {} pixels are more than {}", width,
                                height, kMaxPixels));
  }
  // Asked for RGB alone, libpng would mix in a background.
  header.format = PNG_FORMAT_RGBA;
  Result<Tensor> pixels = AllocateTensor(DType::kUInt8, {height, width, 4});
  if (!pixels.ok()) {
    png_image_free(&header);
    return pixels.status();
  }
  if (png_image_finish_read(&header, nullptr, pixels->raw(), 0, nullptr) == 0) {
    return DataLoss(header.message);
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor image,
                          AllocateTensor(DType::kUInt8, {height, width, 3}));
  const uint8_t* from = pixels->data<uint8_t>();
  uint8_t* to = image.data<uint8_t>();
  for (int64_t n = height * width; n > 0; --n, from += 4, to += 3) {
    std::copy_n(from, 3, to);
  }
  return image;
}
#else
Result<Tensor> DecodePng(std::string_view) {
  return Unimplemented(
      "this build has no libpng, so it cannot read PNG images; install "
      "libpng-dev and build again");
}
#endif

}  // namespace sluice
