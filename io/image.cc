#include "io/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "io/counter_random.h"
#include "io/jpeg.h"
#include "io/png.h"

namespace sluice {
namespace {

Result<Tensor> Decode(std::string_view bytes) {
  if (IsJpeg(bytes)) return DecodeJpeg(bytes);
  if (IsPng(bytes)) return DecodePng(bytes);
  return DataLoss("this is no image: it begins like neither JPEG nor PNG");
}

// In [0, 1).
double Fraction(CounterRandom& random) {
  return random.Next() * 0x1p-32;
}

bool Flips(CounterRandom& random) {
  return random.Below(2) == 1;
}

// Half to even, as Python's round does.
int64_t Rounded(double x) {
  return std::lrint(x);
}

}  // namespace

Result<Tensor> DecodeImage(std::string_view bytes, const std::string& path) {
  Result<Tensor> image = Decode(bytes);
  if (image.ok()) return image;
  return image.status().WithContext(fmt::format("'{}'", path));
}

Result<Tensor> ReadImage(const std::string& path, FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  return DecodeImage(bytes, path);
}

bool IsImageName(std::string_view name) {
  if (name.starts_with("._")) return false;
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower.ends_with(".jpg") || lower.ends_with(".jpeg") ||
         lower.ends_with(".png");
}

Tensor Crop(const Tensor& image, int64_t top, int64_t left, int64_t height,
            int64_t width) {
  const int64_t channels = image.shape()[2];
  Tensor part(DType::kUInt8, {height, width, channels});
  const int64_t first = std::max<int64_t>(-left, 0);
  const int64_t last = std::min(width, image.shape()[1] - left);
  if (first > 0 || last < width || top < 0 || top + height > image.shape()[0]) {
    std::memset(part.raw(), 0, part.bytes());
  }
  if (first >= last) return part;
  for (int64_t y = 0; y < height; ++y) {
    const int64_t row = top + y;
    if (row < 0 || row >= image.shape()[0]) continue;
    std::memcpy(part.data<uint8_t>() + (y * width + first) * channels,
                image.data<uint8_t>() +
                    (row * image.shape()[1] + left + first) * channels,
                (last - first) * channels);
  }
  return part;
}

Tensor FlipHorizontally(const Tensor& image) {
  const int64_t rows = image.shape()[0], width = image.shape()[1],
                channels = image.shape()[2];
  Tensor flipped(DType::kUInt8, image.shape());
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = flipped.data<uint8_t>();
  for (int64_t y = 0; y < rows; ++y, from += width * channels) {
    for (int64_t x = width; x-- > 0; to += channels) {
      std::copy_n(from + x * channels, channels, to);
    }
  }
  return flipped;
}

Tensor ResizeAndCrop(const Tensor& image, int64_t resize, int64_t crop) {
  int64_t height = image.shape()[0], width = image.shape()[1];
  int64_t& shorter = height < width ? height : width;
  int64_t& longer = height < width ? width : height;
  longer = resize * longer / shorter;
  shorter = resize;
  const Tensor resized = Resize(image, height, width);
  const auto middle = [&](int64_t size) {
    return Rounded(static_cast<double>(size - crop) / 2);
  };
  return Crop(resized, middle(height), middle(width), crop, crop);
}

Tensor RandomResizedCrop(const Tensor& image, int64_t side, uint64_t key) {
  CounterRandom random(key);
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  const auto area = static_cast<double>(rows * columns);
  // The whole, cut to the nearest allowed ratio, when no draw fits.
  int64_t height =
      std::min(rows, Rounded(static_cast<double>(columns) * 4 / 3));
  int64_t width = std::min(columns, Rounded(static_cast<double>(rows) * 4 / 3));
  int64_t top = (rows - height) / 2, left = (columns - width) / 2;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (0.08 + 0.92 * Fraction(random));
    const double ratio =
        std::exp((2 * Fraction(random) - 1) * std::log(4.0 / 3));
    const int64_t w = Rounded(std::sqrt(target * ratio));
    const int64_t h = Rounded(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > columns || h > rows) continue;
    top = random.Below(static_cast<uint32_t>(rows - h + 1));
    left = random.Below(static_cast<uint32_t>(columns - w + 1));
    height = h;
    width = w;
    break;
  }
  const Tensor part = Resize(Crop(image, top, left, height, width), side, side);
  return Flips(random) ? FlipHorizontally(part) : part;
}

Tensor RandomPadCrop(const Tensor& image, int64_t pad, uint64_t key) {
  CounterRandom random(key);
  const auto shift = static_cast<int32_t>(pad);
  const int64_t top = random.Between(-shift, shift);
  const int64_t left = random.Between(-shift, shift);
  const Tensor part =
      Crop(image, top, left, image.shape()[0], image.shape()[1]);
  return Flips(random) ? FlipHorizontally(part) : part;
}

RowwiseMap Standardize(std::string name, const std::array<double, 3>& mean,
                       const std::array<double, 3>& deviation) {
  // y = x * factor + shift.
  std::array<float, 3> factor{}, shift{};
  for (size_t c = 0; c < 3; ++c) {
    factor[c] = static_cast<float>(1 / (255 * deviation[c]));
    shift[c] = static_cast<float>(-mean[c] / deviation[c]);
  }
  return {[name = std::move(name), factor, shift](Example& example) {
    Tensor& image = example[name];
    if (image.dtype() != DType::kUInt8 || image.shape().rank() < 1 ||
        image.shape()[-1] != 3) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("Standardize: '{}' is {}{}, wanted uint8[...,3]", name,
                      NameOf(image.dtype()), image.shape().ToString()));
    }
    Tensor standard(DType::kFloat32, image.shape());
    const uint8_t* from = image.data<uint8_t>();
    float* to = standard.data<float>();
    const int64_t n = image.elements();
    for (int64_t i = 0; i < n; i += 3) {
      for (int c = 0; c < 3; ++c) {
        to[i + c] = static_cast<float>(from[i + c]) * factor[c] + shift[c];
      }
    }
    image = std::move(standard);
  }};
}

}  // namespace sluice
