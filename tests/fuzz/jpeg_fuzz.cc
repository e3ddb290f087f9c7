// Any bytes are a picture or an error; a part of it is the same decoded alone.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "engine/status.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"

namespace sluice {
namespace {

// Larger ones take long, and no other way.
constexpr int64_t kMostPixels = 1 << 16;

bool IsBad(const Status& status) {
  return status.code() == Code::kDataLoss;
}

bool SameRows(const Tensor& whole, const Tensor& part, const ImagePart& at) {
  const int64_t width = whole.shape()[1];
  for (int64_t y = 0; y < at.height; ++y) {
    if (std::memcmp(
            part.data<uint8_t>() + y * at.width * 3,
            whole.data<uint8_t>() + ((at.top + y) * width + at.left) * 3,
            at.width * 3) != 0) {
      return false;
    }
  }
  return true;
}

// The part is of the bytes' own choosing.
void CheckPart(std::string_view bytes, const Tensor& whole) {
  const int64_t height = whole.shape()[0], width = whole.shape()[1];
  uint32_t sum = 0;
  for (const char c : bytes) sum = sum * 31 + static_cast<uint8_t>(c);
  ImagePart part;
  part.top = sum % height;
  part.left = sum / 7 % width;
  part.height = 1 + sum / 11 % (height - part.top);
  part.width = 1 + sum / 13 % (width - part.left);
  const Result<Tensor> alone = DecodeJpegPart(bytes, part);
  SLUICE_CHECK(alone.ok());
  SLUICE_CHECK(SameRows(whole, *alone, part));
}

void CheckCrops(std::string_view bytes) {
  const auto check = [](const Result<Tensor>& crop) {
    SLUICE_CHECK(crop.ok() ? crop->shape() == Shape({8, 8, 3})
                           : IsBad(crop.status()));
  };
  check(DecodeRandomResizedCrop(bytes, "f", 8, bytes.size(), {.exif = true}));
  check(DecodeResizeAndCrop(bytes, "f", 9, 8));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto picture = sluice::ReadJpegSize(bytes);
  if (!picture.ok()) {
    SLUICE_CHECK(sluice::IsBad(picture.status()));
    return 0;
  }
  if (picture->height * picture->width > sluice::kMostPixels) return 0;
  const auto whole = sluice::DecodeJpeg(bytes);
  if (whole.ok()) {
    sluice::CheckPart(bytes, *whole);
  } else {
    SLUICE_CHECK(sluice::IsBad(whole.status()));
  }
  if (sluice::IsJpeg(bytes)) sluice::CheckCrops(bytes);
  return 0;
}
