// What changes colours (io/images/picture_ops.h).
#include "io/images/picture_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace sluice {
namespace {

// New levels of a channel, by old ones.
using Table = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

// `next(i)` of each of 256 levels.
template <typename Function>
Table TableOf(const Function& next) {
  Table table{};
  for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(next(i));
  return table;
}

Tensor Mapped(const Tensor& image, const std::array<Table, 3>& tables) {
  Tensor mapped(DType::kUInt8, image.shape());
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = mapped.data<uint8_t>();
  const int64_t n = image.elements();
  for (int64_t i = 0; i < n; i += 3) {
    to[i] = tables[0][from[i]];
    to[i + 1] = tables[1][from[i + 1]];
    to[i + 2] = tables[2][from[i + 2]];
  }
  return mapped;
}

Tensor Mapped(const Tensor& image, const Table& table) {
  return Mapped(image, std::array<Table, 3>{table, table, table});
}

// Of each channel.
std::array<Histogram, 3> Histograms(const Tensor& image) {
  std::array<Histogram, 3> histograms{};
  const uint8_t* from = image.data<uint8_t>();
  const int64_t n = image.elements();
  for (int64_t i = 0; i < n; i += 3) {
    ++histograms[0][from[i]];
    ++histograms[1][from[i + 1]];
    ++histograms[2][from[i + 2]];
  }
  return histograms;
}

// `table_of(histogram)` of each channel.
template <typename Function>
Tensor MappedByHistogram(const Tensor& image, const Function& table_of) {
  const std::array<Histogram, 3> histograms = Histograms(image);
  return Mapped(image, std::array<Table, 3>{table_of(histograms[0]),
                                            table_of(histograms[1]),
                                            table_of(histograms[2])});
}

// Image.blend, which counts in float.
uint8_t Blended(int degenerate, int level, float factor) {
  const float blended = static_cast<float>(degenerate) +
                        factor * static_cast<float>(level - degenerate);
  return static_cast<uint8_t>(std::clamp(static_cast<int>(blended), 0, 255));
}

Tensor Blended(const Tensor& degenerate, const Tensor& image, double factor) {
  Tensor blended(DType::kUInt8, image.shape());
  const uint8_t *a = degenerate.data<uint8_t>(), *b = image.data<uint8_t>();
  uint8_t* to = blended.data<uint8_t>();
  const int64_t n = image.elements();
  const auto narrow = static_cast<float>(factor);
  for (int64_t i = 0; i < n; ++i) to[i] = Blended(a[i], b[i], narrow);
  return blended;
}

// The degenerate image is of one level everywhere.
Tensor BlendedWith(int level, const Tensor& image, double factor) {
  const auto narrow = static_cast<float>(factor);
  return Mapped(image,
                TableOf([&](int i) { return Blended(level, i, narrow); }));
}

// Luma of ITU-R BT.601, as Pillow's conversion to "L".
uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

int MeanLuma(const Tensor& image) {
  const uint8_t* from = image.data<uint8_t>();
  const int64_t n = image.elements();
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i += 3) sum += Luma(from + i);
  const int64_t pixels = std::max<int64_t>(n / 3, 1);
  return static_cast<int>((2 * sum + pixels) / (2 * pixels));
}

Tensor Grey(const Tensor& image) {
  Tensor grey(DType::kUInt8, image.shape());
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = grey.data<uint8_t>();
  const int64_t n = image.elements();
  for (int64_t i = 0; i < n; i += 3) {
    to[i] = to[i + 1] = to[i + 2] = Luma(from + i);
  }
  return grey;
}

// ImageFilter.SMOOTH: of nine pixels the middle one counts 5, others 1. Pixels
// at the border stay as they are.
Tensor Smoothed(const Tensor& image) {
  const int64_t rows = image.shape()[0], row_bytes = image.shape()[1] * 3;
  Tensor smoothed = image.Clone();
  uint8_t* const to = smoothed.data<uint8_t>();
  for (int64_t y = 1; y + 1 < rows; ++y) {
    const uint8_t* middle = image.data<uint8_t>() + y * row_bytes;
    const uint8_t *above = middle - row_bytes, *below = middle + row_bytes;
    for (int64_t i = 3; i + 3 < row_bytes; ++i) {
      const int sum = above[i - 3] + above[i] + above[i + 3] +  //
                      middle[i - 3] + 5 * middle[i] + middle[i + 3] +
                      below[i - 3] + below[i] + below[i + 3];
      // sum / 13, rounded.
      to[y * row_bytes + i] = static_cast<uint8_t>((2 * sum + 13) / 26);
    }
  }
  return smoothed;
}

// Bytes; a whole turn of the hue is 255.
struct Hsv {
  uint8_t hue, saturation, value;
};

// The mix of float and double is Pillow's.
Hsv HsvOf(const uint8_t* rgb) {
  const int red = rgb[0], green = rgb[1], blue = rgb[2];
  const int most = std::max({red, green, blue});
  const int range = most - std::min({red, green, blue});
  if (range == 0) return {0, 0, static_cast<uint8_t>(most)};
  const auto below_most = [&](int level) {
    return static_cast<float>(most - level) / static_cast<float>(range);
  };
  float sixths = 0;
  if (red == most) {
    sixths = below_most(blue) - below_most(green);
  } else if (green == most) {
    sixths = static_cast<float>(2.0 + below_most(red) - below_most(blue));
  } else {
    sixths = static_cast<float>(4.0 + below_most(green) - below_most(red));
  }
  const double turns = sixths / 6.0 + 1.0;  // in (0.8, 1.9)
  const auto hue = static_cast<float>(turns >= 1 ? turns - 1 : turns);
  const float saturation = static_cast<float>(range) / static_cast<float>(most);
  return {static_cast<uint8_t>(hue * 255.0),
          static_cast<uint8_t>(saturation * 255.0), static_cast<uint8_t>(most)};
}

void SetRgb(const Hsv& hsv, uint8_t* rgb) {
  const double sixths = hsv.hue * 6.0 / 255.0;  // 0 to 6
  const int sixth = static_cast<int>(sixths);
  const float rest = static_cast<float>(sixths - sixth);
  const float saturation = static_cast<float>(hsv.saturation / 255.0);
  const auto dimmed = [&](double by) {
    return static_cast<uint8_t>(std::lround(hsv.value * (1.0 - by)));
  };
  const uint8_t v = hsv.value, p = dimmed(saturation);
  const uint8_t q = dimmed(saturation * rest);
  const uint8_t t = dimmed(saturation * (1.0 - rest));
  const std::array<std::array<uint8_t, 3>, 6> colours = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::memcpy(rgb, colours[sixth % 6].data(), 3);
}

Table AutoContrastTable(const Histogram& histogram) {
  int low = 0, high = 255;
  while (low < 255 && histogram[low] == 0) ++low;
  while (high > 0 && histogram[high] == 0) --high;
  if (high <= low) return TableOf([](int i) { return i; });
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  return TableOf([&](int i) {
    return std::clamp(static_cast<int>(i * scale + offset), 0, 255);
  });
}

Table EqualizeTable(const Histogram& histogram) {
  int64_t pixels = 0, brightest = 0;
  for (const int64_t count : histogram) {
    pixels += count;
    if (count != 0) brightest = count;
  }
  const int64_t step = (pixels - brightest) / 255;
  if (step == 0) return TableOf([](int i) { return i; });
  int64_t below = step / 2;
  return TableOf([&](int i) {
    const int64_t level = std::min<int64_t>(below / step, 255);
    below += histogram[i];
    return level;
  });
}

}  // namespace

Tensor AdjustBrightness(const Tensor& image, double factor) {
  return BlendedWith(0, image, factor);
}

Tensor AdjustContrast(const Tensor& image, double factor) {
  return BlendedWith(MeanLuma(image), image, factor);
}

Tensor AdjustSaturation(const Tensor& image, double factor) {
  return Blended(Grey(image), image, factor);
}

Tensor AdjustSharpness(const Tensor& image, double factor) {
  return Blended(Smoothed(image), image, factor);
}

Tensor AdjustHue(const Tensor& image, double factor) {
  Tensor turned(DType::kUInt8, image.shape());
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = turned.data<uint8_t>();
  const int64_t n = image.elements();
  const int turn = static_cast<int>(factor * 255);
  for (int64_t i = 0; i < n; i += 3) {
    Hsv hsv = HsvOf(from + i);
    hsv.hue = static_cast<uint8_t>(hsv.hue + turn);
    SetRgb(hsv, to + i);
  }
  return turned;
}

Tensor Posterize(const Tensor& image, int bits) {
  const int kept = 256 - (1 << (8 - bits));
  return Mapped(image, TableOf([&](int i) { return i & kept; }));
}

Tensor Solarize(const Tensor& image, double threshold) {
  return Mapped(image,
                TableOf([&](int i) { return i < threshold ? i : 255 - i; }));
}

Tensor AutoContrast(const Tensor& image) {
  return MappedByHistogram(image, AutoContrastTable);
}

Tensor Equalize(const Tensor& image) {
  return MappedByHistogram(image, EqualizeTable);
}

}  // namespace sluice
