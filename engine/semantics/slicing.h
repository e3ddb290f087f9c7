// NumPy's x[begin:end:stride] along one axis, resolved.
#ifndef SLUICE_ENGINE_SEMANTICS_SLICING_H_
#define SLUICE_ENGINE_SEMANTICS_SLICING_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sluice {

// Elements start, start + stride, ...: `count` of them, all within the axis.
struct SliceRange {
  int64_t start = 0;
  int64_t count = 0;
  int64_t stride = 1;
};

// Bounds may be negative, counting from the end, and are clamped to the axis;
// an absent bound is the axis's end in the stride's direction. stride != 0.
inline SliceRange ResolveSlice(std::optional<int64_t> begin,
                               std::optional<int64_t> end, int64_t stride,
                               int64_t size) {
  // Downwards the range of positions is [-1, size - 1], upwards [0, size].
  const int64_t lowest = stride > 0 ? 0 : -1;
  const int64_t highest = stride > 0 ? size : size - 1;
  const auto resolve = [&](std::optional<int64_t> bound, int64_t absent) {
    if (!bound) return absent;
    return std::clamp(*bound < 0 ? *bound + size : *bound, lowest, highest);
  };
  const int64_t first = resolve(begin, stride > 0 ? lowest : highest);
  const int64_t last = resolve(end, stride > 0 ? highest : lowest);
  const int64_t span = stride > 0 ? last - first : first - last;
  const int64_t step = stride > 0 ? stride : -stride;
  const int64_t count = span <= 0 ? 0 : (span - 1) / step + 1;
  // A stride that takes no step may be too large to multiply with.
  return {count == 0 ? 0 : first, count, count > 1 ? stride : 1};
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_SLICING_H_
