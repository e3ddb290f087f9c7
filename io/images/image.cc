#include "io/images/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>

#include "engine/catch_errors.h"
#include "io/files/without_query.h"
#include "io/images/crops.h"
#include "io/images/jpeg.h"
#include "io/images/orientation.h"
#include "io/images/png.h"
#include "io/images/resample.h"

namespace sluice {
namespace {

Result<Tensor> Decode(std::string_view bytes) {
  if (IsJpeg(bytes)) return DecodeJpeg(bytes);
  if (IsPng(bytes)) return DecodePng(bytes);
  return DataLoss("this is no image: it begins like neither JPEG nor PNG");
}

Orientation OrientationOf(std::string_view bytes,
                          const DecodeOptions& options) {
  return options.exif ? ReadOrientation(bytes) : Orientation();
}

Status InFile(const Status& status, const std::string& path) {
  return status.WithContext(fmt::format("'{}'", WithoutQuery(path)));
}

// Of an image of that size.
using ResamplingOf = std::function<Resampling(int64_t rows, int64_t columns)>;

Result<Tensor> DecodeAndResampleJpeg(std::string_view bytes,
                                     const Orientation& orientation,
                                     const ResamplingOf& resampling) {
  SLUICE_ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(bytes));
  Resampler resampler(orientation.swaps_sides()
                          ? resampling(size.width, size.height)
                          : resampling(size.height, size.width),
                      3);
  const ImagePart& needed = resampler.needed();
  if (orientation.upright()) {  // rows come in their order
    SLUICE_RETURN_IF_ERROR(DecodeJpegRows(
        bytes, needed, [&](const uint8_t* row) { resampler.Add(row); }));
    return resampler.result();
  }
  const Result<Tensor> stored = DecodeJpegPart(
      bytes, orientation.Stored(needed, size.height, size.width));
  if (!stored.ok()) return stored.status();
  const Tensor part = orientation.Upright(*stored);
  resampler.AddAll(part.data<uint8_t>(), needed.width * 3);
  return resampler.result();
}

Result<Tensor> DecodeAndResample(std::string_view bytes,
                                 const std::string& path,
                                 const DecodeOptions& options,
                                 const ResamplingOf& resampling) {
  if (!IsJpeg(bytes)) {
    const Result<Tensor> image = DecodeImage(bytes, path, options);
    if (!image.ok()) return image.status();
    return CatchErrors([&]() -> Result<Tensor> {
      return Resample(*image, resampling(image->shape()[0], image->shape()[1]));
    });
  }
  Result<Tensor> image = CatchErrors([&] {
    return DecodeAndResampleJpeg(bytes, OrientationOf(bytes, options),
                                 resampling);
  });
  if (image.ok()) return image;
  return InFile(image.status(), path);
}

}  // namespace

Result<Tensor> DecodeImage(std::string_view bytes, const std::string& path,
                           const DecodeOptions& options) {
  Result<Tensor> image = CatchErrors([&]() -> Result<Tensor> {
    SLUICE_ASSIGN_OR_RETURN(const Tensor stored, Decode(bytes));
    return OrientationOf(bytes, options).Upright(stored);
  });
  if (image.ok()) return image;
  return InFile(image.status(), path);
}

Result<Tensor> ReadImage(const std::string& path, FileSystem& files,
                         const DecodeOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  return DecodeImage(bytes, path, options);
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

Result<Tensor> DecodeResizeAndCrop(std::string_view bytes,
                                   const std::string& path, int64_t resize,
                                   int64_t crop, const DecodeOptions& options) {
  Result<Tensor> image = DecodeAndResample(
      bytes, path, options, [&](int64_t rows, int64_t columns) {
        return CentreResampling(rows, columns, resize, crop);
      });
  if (!image.ok()) return image;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { PadToSquare(&*image, crop); }));
  return image;
}

Result<Tensor> DecodeRandomResizedCrop(std::string_view bytes,
                                       const std::string& path, int64_t side,
                                       uint64_t key,
                                       const DecodeOptions& options,
                                       const RandomCrop& crop) {
  return DecodeAndResample(
      bytes, path, options, [&](int64_t rows, int64_t columns) {
        return RandomResampling(rows, columns, side, key, crop);
      });
}

RowwiseMap Standardize(std::string name, const std::array<double, 3>& mean,
                       const std::array<double, 3>& deviation) {
  BytesToFloats map = {
      .who = "Standardize", .name = std::move(name), .factor = {}, .shift = {}};
  for (size_t c = 0; c < 3; ++c) {
    map.factor.push_back(static_cast<float>(1 / (255 * deviation[c])));
    map.shift.push_back(static_cast<float>(-mean[c] / deviation[c]));
  }
  return MapBytes(std::move(map));
}

}  // namespace sluice
