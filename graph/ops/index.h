// Ops that take positions as data. Indices are int32 or int64 and counted from
// 0; one outside its range fails the step with kOutOfRange, naming the node,
// the index and the limit.
#ifndef SLUICE_GRAPH_OPS_INDEX_H_
#define SLUICE_GRAPH_OPS_INDEX_H_

#include <cstdint>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// A new last dimension of `depth` elements: `on` at the index, else `off`, both
// of which dtype must be able to hold.
struct OneHotOptions {
  Number on = 1;
  Number off = 0;
  DType dtype = DType::kFloat32;
};
Output OneHot(Operand indices, int64_t depth,
              const OneHotOptions& options = {});

// The k largest along the last dimension, largest first, the first of equals
// first; NaN counts as the largest. Indices are int64.
struct TopKOutputs {
  Output values;
  Output indices;
};
TopKOutputs TopK(Operand x, int64_t k);

// For each row of predictions[n, classes]: are fewer than k classes rated
// higher than the target class? targets[n]; a target rated NaN is not in.
Output InTopK(Operand predictions, Operand targets, int64_t k);

// Along `axis` the elements at `indices`: of params[A..., n, R...] and
// indices[J...] the result is [A..., J..., R...]. The first batch_dims
// dimensions (at most axis) are shared: of params[B..., A..., n, R...] and
// indices[B..., J...] the result is [B..., A..., J..., R...].
struct GatherOptions {
  int64_t axis = 0;
  int64_t batch_dims = 0;
};
Output Gather(Operand params, Operand indices,
              const GatherOptions& options = {});

// x with each slice of `updates` added at its index, in the order of the
// indices: the transpose of Gather, updates having the shape of its result.
Output ScatterAdd(Operand x, Operand indices, Operand updates,
                  const GatherOptions& options = {});

// Adds up the slices of one row: of rows[n...], of a table of `limit` of them,
// and values[n..., R...], which belong to them, the first slice of each row
// becomes the sum of its slices in their order, each further one zeros, of row
// -1, which stands for none. Its gradient takes time and memory by the number
// of slices and the limit.
struct SumRowsOutputs {
  Output rows;
  Output sums;
};
SumRowsOutputs SumRows(Operand rows, Operand values, int64_t limit);

// The rows of table[n, ...] at ids.
Output EmbeddingLookup(Operand table, Operand ids);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_INDEX_H_
