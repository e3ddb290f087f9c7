// Moving elements without looking at them: what all ops that only rearrange
// come down to.
#ifndef SLUICE_KERNELS_CPU_ARRAY_COPY_H_
#define SLUICE_KERNELS_CPU_ARRAY_COPY_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/shape.h"

namespace sluice::cpu {

// Purpose: a copy between two strided arrays of the same dimensions, prepared
// once: dimensions are merged where both sides allow it, contiguous runs move
// by memcpy, and transposes go block by block. Strides are in elements and may
// be negative or, on the `from` side, 0.
//
// Threads: immutable after the last Add and Prepare; Run uses ParallelFor.
class StridedCopy {
 public:
  explicit StridedCopy(DType dtype) : bytes_(SizeOf(dtype)) {}

  // Dimensions, outermost of `to` first.
  void Add(int64_t size, int64_t to_stride, int64_t from_stride);
  // Where element [0, 0, ...] is.
  void SetOffsets(int64_t to, int64_t from) {
    to_offset_ = to;
    from_offset_ = from;
  }
  // Must be called once, before Run.
  void Prepare();

  void Run(void* to, const void* from) const;

 private:
  // Most dimensions a copy may have: Tile needs two for each of its input.
  static constexpr int kMaxDims = 2 * Shape::kMaxRank;
  struct Dim {
    int64_t size, to, from;
  };
  class Cursor;

  template <int kBytes>
  void RunUnits(char* to, const char* from, int64_t begin, int64_t end) const;
  template <int kBytes>
  void CopyLine(char* to, const char* from, int64_t n) const;
  template <int kBytes>
  void Transpose(char* to, const char* from, int64_t lines) const;

  size_t bytes_;
  int64_t to_offset_ = 0, from_offset_ = 0;
  std::array<Dim, kMaxDims> dims_{};
  int rank_ = 0;

  // A unit of work is a piece of a line (of the innermost dimension) or, in a
  // transpose, a piece of lines_.
  bool empty_ = false;
  bool transpose_ = false;
  Dim inner_{1, 1, 1};
  Dim lines_{1, 1, 1};  // the dimension contiguous in `from`, if transposing
  int64_t piece_ = 1, pieces_ = 1;
  int64_t units_ = 1, grain_ = 1;
};

// n elements, all equal to the one at `value`.
void FillElements(DType dtype, void* to, int64_t n, const void* value);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_ARRAY_COPY_H_
