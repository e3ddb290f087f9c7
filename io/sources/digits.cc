#include "io/sources/digits.h"

#include <algorithm>
#include <array>

#include "engine/threads.h"
#include "io/counter_random.h"
#include "io/sources/digit_strokes.h"

namespace sluice {
namespace {

// Lengths on the image are in 1/256 pixel.
constexpr int32_t kPixel = 256;
constexpr int kPixels = kDigitSize * kDigitSize;
// Straight pieces per span between two points of a stroke.
constexpr int kPieces = 4;

struct Point {
  int32_t x = 0;
  int32_t y = 0;
};

// Floor of the square root.
int32_t SquareRoot(int64_t n) {
  int64_t root = 0;
  for (int64_t bit = int64_t{1} << 30; bit > 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return static_cast<int32_t>(root);
}

// One writer's hand: from the sheet's 100 x 100 to the image, slanted, turned,
// shifted and bent.
class Hand {
 public:
  explicit Hand(CounterRandom& random) : random_(random) {
    // 1/256 pixel per unit: digits about 15 to 20 pixels high.
    const int32_t height = random.Between(40, 53);
    xx_ = height * random.Between(70, 110) / 100;
    yy_ = height;
    const int32_t turn = random.Between(-10, 10);
    const int32_t slant = random.Between(-9, 19);
    xy_ = -slant - turn;
    yx_ = turn;
    shift_ = {random.Between(-2 * kPixel, 2 * kPixel),
              random.Between(-2 * kPixel, 2 * kPixel)};
    for (Point& bend : bends_) {
      bend = {random.Between(-11, 11), random.Between(-11, 11)};
    }
  }

  // A point of the skeleton, put a little wrong.
  Point Place(StrokePoint p) {
    const Point bent =
        Bend({p.x + random_.Between(-4, 4), p.y + random_.Between(-4, 4)});
    const int32_t x = bent.x - 50;
    const int32_t y = bent.y - 50;
    return {kDigitSize * kPixel / 2 + shift_.x + x * xx_ + y * xy_,
            kDigitSize * kPixel / 2 + shift_.y + x * yx_ + y * yy_};
  }

 private:
  // Moves a point by the displacements of a 3 x 3 grid, interpolated.
  Point Bend(Point p) const {
    const int32_t x = std::clamp(p.x, 0, 99);
    const int32_t y = std::clamp(p.y, 0, 99);
    const Point* cell = &bends_[y / 50 * 3 + x / 50];
    const int32_t u = x % 50;
    const int32_t v = y % 50;
    const auto mix = [&](int32_t Point::*axis) {
      const int32_t top = cell[0].*axis * (50 - u) + cell[1].*axis * u;
      const int32_t bottom = cell[3].*axis * (50 - u) + cell[4].*axis * u;
      return (top * (50 - v) + bottom * v) / 2500;
    };
    return {p.x + mix(&Point::x), p.y + mix(&Point::y)};
  }

  CounterRandom& random_;
  int32_t xx_, xy_, yx_, yy_;
  Point shift_;
  std::array<Point, 9> bends_;
};

// Squared distances from the pixels' centres to the nearest ink.
class DistanceField {
 public:
  explicit DistanceField(int32_t reach) : reach_(reach) {
    squares_.fill(reach * reach);
  }
  int32_t operator[](int i) const { return squares_[i]; }

  void AddLine(Point a, Point b) {
    const int32_t dx = b.x - a.x;
    const int32_t dy = b.y - a.y;
    const int32_t length2 = dx * dx + dy * dy;
    if (length2 == 0) return;
    const int32_t length = SquareRoot(length2);
    const int x0 = FirstPixel(std::min(a.x, b.x));
    const int x1 = LastPixel(std::max(a.x, b.x));
    const int y0 = FirstPixel(std::min(a.y, b.y));
    const int y1 = LastPixel(std::max(a.y, b.y));
    for (int row = y0; row <= y1; ++row) {
      const int32_t py = row * kPixel + kPixel / 2 - a.y;
      for (int column = x0; column <= x1; ++column) {
        const int32_t px = column * kPixel + kPixel / 2 - a.x;
        const int32_t along = px * dx + py * dy;
        int32_t square;
        if (along <= 0) {
          square = px * px + py * py;
        } else if (along >= length2) {
          square = (px - dx) * (px - dx) + (py - dy) * (py - dy);
        } else {
          const int32_t across = (px * dy - py * dx) / length;
          square = across * across;
        }
        int32_t& nearest = squares_[row * kDigitSize + column];
        nearest = std::min(nearest, square);
      }
    }
  }

 private:
  int FirstPixel(int32_t low) const {
    return std::clamp((low - reach_ - kPixel / 2) / kPixel, 0, kDigitSize);
  }
  int LastPixel(int32_t high) const {
    return std::clamp((high + reach_ - kPixel / 2) / kPixel, -1,
                      kDigitSize - 1);
  }

  const int32_t reach_;
  std::array<int32_t, kPixels> squares_;
};

// The Catmull-Rom spline from b to c at t = k / kPieces.
int32_t Spline(int32_t a, int32_t b, int32_t c, int32_t d, int32_t k) {
  const int32_t n = kPieces;
  const int32_t sum = 2 * b * n * n * n + (c - a) * k * n * n +
                      (2 * a - 5 * b + 4 * c - d) * k * k * n +
                      (3 * b - a - 3 * c + d) * k * k * k;
  return sum / (2 * n * n * n);
}

void DrawStroke(Stroke stroke, Hand& hand, DistanceField& field) {
  std::array<Point, 16> points;
  const int n = static_cast<int>(stroke.size());
  SLUICE_CHECK(n >= 2 && n <= static_cast<int>(points.size()));
  for (int i = 0; i < n; ++i) points[i] = hand.Place(stroke[i]);
  for (int i = 0; i + 1 < n; ++i) {
    const Point& a = points[std::max(i - 1, 0)];
    const Point& b = points[i];
    const Point& c = points[i + 1];
    const Point& d = points[std::min(i + 2, n - 1)];
    Point from = b;
    for (int k = 1; k <= kPieces; ++k) {
      const Point to = {Spline(a.x, b.x, c.x, d.x, k),
                        Spline(a.y, b.y, c.y, d.y, k)};
      field.AddLine(from, to);
      from = to;
    }
  }
}

}  // namespace

int DrawDigit(uint64_t seed, uint64_t index, uint8_t* pixels) {
  CounterRandom random(HashKey(seed, index));
  const int digit = static_cast<int>(random.Below(10));
  const auto glyphs = GlyphsOf(digit);
  const Glyph glyph =
      glyphs[random.Below(static_cast<uint32_t>(glyphs.size()))];
  Hand hand(random);
  // Full ink up to `core` from the middle of the stroke, none beyond `reach`.
  const int32_t radius = random.Between(kPixel / 2, 7 * kPixel / 4);
  const int32_t core = std::max(radius - kPixel / 2, 0);
  const int32_t reach = radius + 3 * kPixel / 4;
  const int32_t ink = random.Between(190, 255);
  DistanceField field(reach);
  for (Stroke stroke : glyph) DrawStroke(stroke, hand, field);
  const int32_t none = reach * reach;
  const int32_t range = none - core * core;
  for (int i = 0; i < kPixels; ++i) {
    const int32_t shade = std::min(none - field[i], range);
    pixels[i] = static_cast<uint8_t>(int64_t{shade} * ink / range);
  }
  return digit;
}

Digits DrawDigits(int64_t count, uint64_t seed) {
  Digits digits = {Tensor(DType::kUInt8, {count, kDigitSize, kDigitSize, 1}),
                   Tensor(DType::kInt64, {count})};
  uint8_t* images = digits.images.data<uint8_t>();
  int64_t* labels = digits.labels.data<int64_t>();
  ParallelFor(count, 1000, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      labels[i] =
          DrawDigit(seed, static_cast<uint64_t>(i), images + i * kPixels);
    }
  });
  return digits;
}

}  // namespace sluice
