// Resize (io/image.h): two passes of weighted sums, across and then down.
#include <algorithm>
#include <cmath>
#include <vector>

#include "io/image.h"

namespace sluice {
namespace {

// Pillow's arithmetic: weights are integers of this many fractional bits, and
// what the first pass yields is rounded to bytes.
constexpr int kFractionBits = 22;

// The pixels that one new pixel is made of: [first, first + count), and where
// their weights begin.
struct Source {
  int64_t first, count;
  size_t weights;
};

struct Kernel {
  std::vector<Source> sources;  // of each new pixel
  std::vector<int32_t> weights;
};

// A triangle as wide as two new pixels, or two old ones where these are wider.
Kernel TriangleKernel(int64_t from, int64_t to) {
  Kernel kernel;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<double> weights;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(
        static_cast<int64_t>(std::floor(centre - reach + 0.5)), 0);
    const auto last = std::min<int64_t>(
        static_cast<int64_t>(std::floor(centre + reach + 0.5)), from);
    weights.clear();
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double distance =
          std::abs(static_cast<double>(j) - centre + 0.5) / reach;
      weights.push_back(std::max(1 - distance, 0.0));
      sum += weights.back();
    }
    kernel.sources.push_back({first, last - first, kernel.weights.size()});
    for (double weight : weights) {
      kernel.weights.push_back(static_cast<int32_t>(
          std::lround(weight / sum * (1 << kFractionBits))));
    }
  }
  return kernel;
}

// One new pixel of `channels` bytes; old ones lie `step` bytes apart.
void Blend(const Kernel& kernel, const Source& source, const uint8_t* old,
           int64_t step, int64_t channels, uint8_t* out) {
  const int32_t* weights = kernel.weights.data() + source.weights;
  for (int64_t c = 0; c < channels; ++c) {
    int32_t sum = 1 << (kFractionBits - 1);
    const uint8_t* pixel = old + source.first * step + c;
    for (int64_t i = 0; i < source.count; ++i, pixel += step) {
      sum += weights[i] * *pixel;
    }
    out[c] = static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
  }
}

Tensor ResizeRows(const Tensor& image, int64_t width) {
  const int64_t rows = image.shape()[0], channels = image.shape()[2];
  const Kernel kernel = TriangleKernel(image.shape()[1], width);
  Tensor out(DType::kUInt8, {rows, width, channels});
  uint8_t* to = out.data<uint8_t>();
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* row =
        image.data<uint8_t>() + y * image.shape()[1] * channels;
    for (const Source& source : kernel.sources) {
      Blend(kernel, source, row, channels, channels, to);
      to += channels;
    }
  }
  return out;
}

Tensor ResizeColumns(const Tensor& image, int64_t height) {
  const int64_t row_bytes = image.shape()[1] * image.shape()[2];
  const Kernel kernel = TriangleKernel(image.shape()[0], height);
  Tensor out(DType::kUInt8, {height, image.shape()[1], image.shape()[2]});
  uint8_t* to = out.data<uint8_t>();
  for (const Source& source : kernel.sources) {
    Blend(kernel, source, image.data<uint8_t>(), row_bytes, row_bytes, to);
    to += row_bytes;
  }
  return out;
}

}  // namespace

Tensor Resize(const Tensor& image, int64_t height, int64_t width) {
  Tensor out = image;
  if (width != image.shape()[1]) out = ResizeRows(out, width);
  if (height != image.shape()[0]) out = ResizeColumns(out, height);
  return out;
}

}  // namespace sluice
