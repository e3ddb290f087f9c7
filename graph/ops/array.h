// Ops that put tensors together, take them apart and move their elements.
// Axes may be negative, counting from the end.
#ifndef SLUICE_GRAPH_OPS_ARRAY_H_
#define SLUICE_GRAPH_OPS_ARRAY_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// The parts one after another along `axis`; their other dimensions agree.
Output Concat(
    const std::vector<Output>& parts, int64_t axis,
    const std::source_location& location = std::source_location::current());
// `num` equal parts along `axis`.
std::vector<Output> Split(Operand x, int64_t num, int64_t axis = 0);

// The parts, all of one shape, along a new dimension `axis`.
Output Stack(
    const std::vector<Output>& parts, int64_t axis = 0,
    const std::source_location& location = std::source_location::current());
// The slices along `axis`, whose size must be known, without that dimension.
std::vector<Output> Unstack(Operand x, int64_t axis = 0);

// size[i] elements from begin[i] on, for every dimension; -1: to the end.
Output Slice(Operand x, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& size);

// NumPy's x[begin:end:stride] for the leading begin.size() dimensions: bounds
// may be negative, counting from the end, and are clamped; strides may be
// negative. Bit i of begin_mask or end_mask leaves that bound out.
struct StridedSliceOptions {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  std::vector<int64_t> strides = {};  // empty: all 1
  int64_t begin_mask = 0;
  int64_t end_mask = 0;
};
Output StridedSlice(Operand x, const StridedSliceOptions& options);

// `value` put around x: paddings = {before 0, after 0, before 1, after 1, ...}.
Output Pad(Operand x, const std::vector<int64_t>& paddings, double value = 0);

// x repeated multiples[i] times along each dimension i.
Output Tile(Operand x, const std::vector<int64_t>& multiples);

// The order of elements turned round along each of `axes`.
Output Reverse(Operand x, const std::vector<int64_t>& axes);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_ARRAY_H_
