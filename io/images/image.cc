#include "io/images/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <functional>

#include "io/counter_random.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/images/resample.h"

namespace sluice {
namespace {

Result<Tensor> Decode(std::string_view bytes) {
  if (IsJpeg(bytes)) return DecodeJpeg(bytes);
  if (IsPng(bytes)) return DecodePng(bytes);
  return DataLoss("this is no image: it begins like neither JPEG nor PNG");
}

Status InFile(const Status& status, const std::string& path) {
  return status.WithContext(fmt::format("'{}'", path));
}

bool Flips(CounterRandom& random) {
  return random.Below(2) == 1;
}

// Half to even, as Python's round does.
int64_t Rounded(double x) {
  return std::lrint(x);
}

// Where the middle `crop` pixels of `size` begin; below 0 where these are less,
// and zeros come before and behind.
int64_t Middle(int64_t size, int64_t crop) {
  if (size < crop) return -((crop - size) / 2);
  return Rounded(static_cast<double>(size - crop) / 2);
}

// All of ResizeAndCrop but the zeros around what is smaller than the crop.
Resampling CentreResampling(int64_t rows, int64_t columns, int64_t resize,
                            int64_t crop) {
  int64_t height = rows, width = columns;
  int64_t& shorter = height < width ? height : width;
  int64_t& longer = height < width ? width : height;
  longer = resize * longer / shorter;
  shorter = resize;
  const ImagePart kept = {std::max<int64_t>(Middle(height, crop), 0),
                          std::max<int64_t>(Middle(width, crop), 0),
                          std::min(height, crop), std::min(width, crop)};
  return {{0, 0, rows, columns}, height, width, kept};
}

void PadToSquare(Tensor* image, int64_t side) {
  const int64_t height = image->shape()[0], width = image->shape()[1];
  if (height == side && width == side) return;
  *image = Crop(*image, Middle(height, side), Middle(width, side), side, side);
}

Resampling RandomResampling(int64_t rows, int64_t columns, int64_t side,
                            uint64_t key) {
  const RandomPart random = DrawRandomPart(rows, columns, key);
  return {random.part, side, side, {0, 0, side, side}, random.flip};
}

// Of an image of that size.
using ResamplingOf = std::function<Resampling(int64_t rows, int64_t columns)>;

Result<Tensor> DecodeAndResampleJpeg(std::string_view bytes,
                                     const ResamplingOf& resampling) {
  SLUICE_ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(bytes));
  Resampler resampler(resampling(size.height, size.width), 3);
  SLUICE_RETURN_IF_ERROR(
      DecodeJpegRows(bytes, resampler.needed(),
                     [&](const uint8_t* row) { resampler.Add(row); }));
  return resampler.result();
}

Result<Tensor> DecodeAndResample(std::string_view bytes,
                                 const std::string& path,
                                 const ResamplingOf& resampling) {
  if (!IsJpeg(bytes)) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor image, DecodeImage(bytes, path));
    return Resample(image, resampling(image.shape()[0], image.shape()[1]));
  }
  Result<Tensor> image = DecodeAndResampleJpeg(bytes, resampling);
  if (image.ok()) return image;
  return InFile(image.status(), path);
}

}  // namespace

Result<Tensor> DecodeImage(std::string_view bytes, const std::string& path) {
  Result<Tensor> image = Decode(bytes);
  if (image.ok()) return image;
  return InFile(image.status(), path);
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
  const Resampling resampling =
      CentreResampling(image.shape()[0], image.shape()[1], resize, crop);
  Tensor cut = Resample(image, resampling);
  PadToSquare(&cut, crop);
  return cut;
}

Result<Tensor> DecodeResizeAndCrop(std::string_view bytes,
                                   const std::string& path, int64_t resize,
                                   int64_t crop) {
  Result<Tensor> image =
      DecodeAndResample(bytes, path, [&](int64_t rows, int64_t columns) {
        return CentreResampling(rows, columns, resize, crop);
      });
  if (image.ok()) PadToSquare(&*image, crop);
  return image;
}

RandomPart DrawRandomPart(int64_t rows, int64_t columns, uint64_t key) {
  CounterRandom random(key);
  const auto area = static_cast<double>(rows * columns);
  // The whole, cut to the nearest allowed ratio, when no draw fits.
  ImagePart part;
  part.height = std::min(rows, Rounded(static_cast<double>(columns) * 4 / 3));
  part.width = std::min(columns, Rounded(static_cast<double>(rows) * 4 / 3));
  part.top = (rows - part.height) / 2;
  part.left = (columns - part.width) / 2;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (0.08 + 0.92 * random.Fraction());
    const double ratio =
        std::exp((2 * random.Fraction() - 1) * std::log(4.0 / 3));
    const int64_t width = Rounded(std::sqrt(target * ratio));
    const int64_t height = Rounded(std::sqrt(target / ratio));
    if (width < 1 || height < 1 || width > columns || height > rows) continue;
    part.top = random.Below(static_cast<uint32_t>(rows - height + 1));
    part.left = random.Below(static_cast<uint32_t>(columns - width + 1));
    part.height = height;
    part.width = width;
    break;
  }
  return {part, Flips(random)};
}

Tensor RandomResizedCrop(const Tensor& image, int64_t side, uint64_t key) {
  return Resample(
      image, RandomResampling(image.shape()[0], image.shape()[1], side, key));
}

Result<Tensor> DecodeRandomResizedCrop(std::string_view bytes,
                                       const std::string& path, int64_t side,
                                       uint64_t key) {
  return DecodeAndResample(bytes, path, [&](int64_t rows, int64_t columns) {
    return RandomResampling(rows, columns, side, key);
  });
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
