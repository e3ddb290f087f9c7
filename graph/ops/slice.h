// Parts of a tensor, and the reverse: a tensor as part of a larger one.
#ifndef SLUICE_GRAPH_OPS_SLICE_H_
#define SLUICE_GRAPH_OPS_SLICE_H_

#include <cstdint>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// size[i] elements from begin[i] on, for every dimension; -1: to the end.
Output Slice(Operand x, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& size);

// NumPy's x[begin:end:stride] for the leading begin.size() dimensions: bounds
// may be negative, counting from the end, and are clamped; strides may be
// negative. Bit i of begin_mask or end_mask leaves that bound out.
struct StridedSliceOptions {
  std::vector<int64_t> begin = {};
  std::vector<int64_t> end = {};
  std::vector<int64_t> strides = {};  // empty: all 1
  int64_t begin_mask = 0;
  int64_t end_mask = 0;
};
Output StridedSlice(Operand x, const StridedSliceOptions& options);

// `value`, which x's dtype must be able to hold, put around x: paddings =
// {before 0, after 0, before 1, after 1, ...}.
Output Pad(Operand x, const std::vector<int64_t>& paddings,
           const Number& value = 0);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_SLICE_H_
