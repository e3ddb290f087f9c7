// Resize (io/images/image.h) and what it is made of (io/images/resample.h): two
// passes of weighted sums, across and then down.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ceil_div.h"
#include "io/images/image.h"
#include "io/images/resample.h"

namespace sluice {
namespace {

using Source = ResampleKernel::Source;

// To the nearest, as Pillow does it, but towards zero below -1/2.
int64_t Rounded(double x) {
  return static_cast<int64_t>(x + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

// [begin, end) of one axis.
struct Range {
  int64_t begin, end;
};

// A triangle as wide as two new pixels, or two old ones where these are wider.
struct Triangle {
  double scale, reach;  // old pixels

  double Centre(int64_t i) const {
    return (static_cast<double>(i) + 0.5) * scale;
  }
  double Weight(int64_t old, double centre) const {
    const double distance = (static_cast<double>(old) - centre + 0.5) / reach;
    return std::max(1 - std::abs(distance), 0.0);
  }
};

Source SourceOf(const Triangle& triangle, int64_t from, int64_t i) {
  const double centre = triangle.Centre(i);
  const int64_t first = std::max<int64_t>(Rounded(centre - triangle.reach), 0);
  const int64_t last = std::min(Rounded(centre + triangle.reach), from);
  return {first, last - first};
}

void SetWeights(const Triangle& triangle, int64_t i, const Source& source,
                std::vector<double>& scratch, int32_t* weights) {
  const double centre = triangle.Centre(i);
  scratch.clear();
  double sum = 0;
  for (int64_t j = 0; j < source.count; ++j) {
    scratch.push_back(triangle.Weight(source.first + j, centre));
    sum += scratch.back();
  }
  for (double weight : scratch) {
    *weights++ =
        static_cast<int32_t>(Rounded(weight / sum * (1 << kWeightBits)));
  }
}

// Of `from` old pixels that become `to` new ones, of which `kept` are wanted.
ResampleKernel TriangleKernel(int64_t from, int64_t to, Range kept) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const Triangle triangle = {scale, std::max(scale, 1.0)};
  ResampleKernel kernel;
  kernel.sources.reserve(kept.end - kept.begin);
  for (int64_t i = kept.begin; i < kept.end; ++i) {
    kernel.sources.push_back(SourceOf(triangle, from, i));
    kernel.taps = std::max(kernel.taps, kernel.sources.back().count);
  }
  constexpr int64_t kGroup = ResampleKernel::kTapGroup;
  kernel.taps = RoundUp(kernel.taps, kGroup);
  kernel.weights.resize(kernel.sources.size() * kernel.taps);
  std::vector<double> scratch;
  int32_t* weights = kernel.weights.data();
  int64_t i = kept.begin;
  for (const Source& source : kernel.sources) {
    SetWeights(triangle, i++, source, scratch, weights);
    weights += kernel.taps;
  }
  return kernel;
}

// Makes the sources count from the first old pixel that is needed. Returns the
// range of those which are.
Range Rebase(ResampleKernel& kernel) {
  if (kernel.sources.empty()) return {0, 0};
  const Source& last = kernel.sources.back();
  const Range needed = {kernel.sources.front().first, last.first + last.count};
  for (Source& source : kernel.sources) source.first -= needed.begin;
  return needed;
}

// The new pixels in the opposite order.
void Reverse(ResampleKernel& kernel) {
  std::reverse(kernel.sources.begin(), kernel.sources.end());
  // Pixels' weights in the opposite order, each one's own as they were.
  std::reverse(kernel.weights.begin(), kernel.weights.end());
  for (auto at = kernel.weights.begin(); at != kernel.weights.end();
       at += kernel.taps) {
    std::reverse(at, at + kernel.taps);
  }
}

}  // namespace

Resampler::Resampler(const Resampling& resampling, int64_t channels)
    : channels_(channels) {
  const ImagePart &part = resampling.part, &kept = resampling.kept;
  across_ = TriangleKernel(part.width, resampling.width,
                           {kept.left, kept.left + kept.width});
  down_ = TriangleKernel(part.height, resampling.height,
                         {kept.top, kept.top + kept.height});
  const Range columns = Rebase(across_), rows = Rebase(down_);
  needed_ = {part.top + rows.begin, part.left + columns.begin,
             rows.end - rows.begin, columns.end - columns.begin};
  if (resampling.flip) Reverse(across_);
  narrow_ = Tensor(DType::kUInt8, {needed_.height, kept.width, channels});
  result_ = Tensor(DType::kUInt8, {kept.height, kept.width, channels});
}

void Resampler::Add(const uint8_t* row) {
  const ResampleLoops& loops = FastestResampleLoops();
  const int64_t row_bytes = result_.shape()[1] * channels_;
  uint8_t* const narrow = narrow_.data<uint8_t>();
  loops.across(across_, row, needed_.width, channels_,
               narrow + added_ * row_bytes);
  ++added_;
  // At once, while the rows are in the cache.
  for (; finished_ < result_.shape()[0]; ++finished_) {
    const Source& source = down_.sources[finished_];
    if (source.first + source.count > added_) break;
    loops.down(down_, finished_, narrow, row_bytes,
               result_.data<uint8_t>() + finished_ * row_bytes);
  }
}

void Resampler::AddAll(const uint8_t* first, int64_t row_bytes) {
  for (int64_t y = 0; y < needed_.height; ++y) Add(first + y * row_bytes);
}

Tensor Resample(const Tensor& image, const Resampling& resampling) {
  const int64_t width = image.shape()[1], channels = image.shape()[2];
  const auto& [part, new_height, new_width, kept, flip] = resampling;
  if (part.height == new_height && part.width == new_width) {
    const Tensor same = Crop(image, part.top + kept.top, part.left + kept.left,
                             kept.height, kept.width);
    return flip ? FlipHorizontally(same) : same;
  }
  Resampler resampler(resampling, channels);
  const ImagePart& needed = resampler.needed();
  resampler.AddAll(
      image.data<uint8_t>() + (needed.top * width + needed.left) * channels,
      width * channels);
  return resampler.result();
}

Tensor Resize(const Tensor& image, int64_t height, int64_t width) {
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  if (height == rows && width == columns) return image;
  return Resample(
      image, {{0, 0, rows, columns}, height, width, {0, 0, height, width}});
}

}  // namespace sluice
