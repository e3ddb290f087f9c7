// How ops that only move elements do so: as copies between strided arrays. The
// kernels of all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_STRIDED_MOVE_H_
#define SLUICE_ENGINE_SEMANTICS_STRIDED_MOVE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/kernel.h"
#include "engine/shape.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// A copy between two strided arrays of the same dimensions. Strides and offsets
// are in elements; strides may be negative or, on the `from` side, 0.
// Neighbouring dimensions are merged where both sides allow it.
struct StridedMove {
  // Most dimensions there may be: Tile needs two for each of its input.
  static constexpr int kMaxDims = 2 * Shape::kMaxRank;
  struct Dim {
    int64_t size, to, from;
  };

  // Dimensions, outermost of `to` first.
  void Add(int64_t size, int64_t to_stride, int64_t from_stride);
  int64_t elements() const;

  std::array<Dim, kMaxDims> dims{};  // none of size 1
  int rank = 0;
  int64_t to_offset = 0, from_offset = 0;  // of element [0, 0, ...]
};

// The move of a "Transpose", "BroadcastTo", "Tile", "Reverse", "Slice" or
// "StridedSlice" from input 0 to all of output 0; of a "Pad" or
// "StridedSliceGrad" from input 0 to a part of output 0.
StridedMove MoveOf(const KernelSpec& spec);

// The element that "Pad" or "StridedSliceGrad" puts around that part.
Tensor SurroundingOf(const KernelSpec& spec);

// The moves of a "Concat" or "Stack" from each input to output 0.
std::vector<StridedMove> JoinMoves(const KernelSpec& spec);
// The moves of a "ConcatGrad", "Split" or "Unstack" from input 0 to each
// output.
std::vector<StridedMove> CutMoves(const KernelSpec& spec);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_STRIDED_MOVE_H_
