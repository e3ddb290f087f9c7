// Dimensions of a tensor, outermost first. The rank is always known; a
// dimension may be kUnknown while a graph is built, never when it runs.
#ifndef SLUICE_ENGINE_SHAPE_H_
#define SLUICE_ENGINE_SHAPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

inline constexpr int64_t kUnknown = -1;

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  constexpr Shape() = default;  // a scalar
  // Both throw Error beyond kMaxRank dimensions.
  constexpr Shape(std::initializer_list<int64_t> dims) {
    if (dims.size() > kMaxRank) ThrowRank(dims.size());
    for (int64_t d : dims) push_back(d);
  }
  explicit Shape(std::span<const int64_t> dims);

  constexpr int rank() const { return rank_; }
  constexpr bool scalar() const { return rank_ == 0; }
  // Negative i counts from the end.
  constexpr int64_t operator[](int i) const {
    return dims_[i < 0 ? i + rank_ : i];
  }
  constexpr void set(int i, int64_t d) { dims_[i < 0 ? i + rank_ : i] = d; }
  constexpr void push_back(int64_t d) {
    SLUICE_CHECK(rank_ < kMaxRank);
    dims_[rank_++] = d;
  }
  constexpr std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_)};
  }
  constexpr auto begin() const { return dims_.begin(); }
  constexpr auto end() const { return dims_.begin() + rank_; }

  bool concrete() const;  // no unknown dimension
  // The product of all dimensions, or of those in [from, to); kUnknown if one
  // of them is.
  int64_t elements() const { return elements(0, rank_); }
  int64_t elements(int from, int to) const;
  // Dimensions [from, to).
  Shape Slice(int from, int to) const;
  // "[?,784]"; "[]" for a scalar.
  std::string ToString() const;

  SLUICE_PUBLIC friend bool operator==(const Shape& a, const Shape& b);

 private:
  [[noreturn]] static void ThrowRank(size_t rank);

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Whether the two shapes could be equal once all dimensions are known.
bool Compatible(const Shape& a, const Shape& b);

// NumPy broadcasting of two shapes; unknown against 1 stays unknown, against
// n > 1 becomes n.
Result<Shape> BroadcastShapes(const Shape& a, const Shape& b);

// Row-major strides in elements.
std::array<int64_t, Shape::kMaxRank> Strides(const Shape& shape);

// A non-negative axis from one in [-rank, rank), or an error saying both.
Result<int> NormalizeAxis(int64_t axis, int rank);

// The product of dims, or an error when a dimension is negative or
// the product overflows 2^62. For readers of untrusted files.
Result<int64_t> CheckedElements(std::span<const int64_t> dims);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SHAPE_H_
