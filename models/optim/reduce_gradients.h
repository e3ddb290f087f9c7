// Reductions that Minimize adds if several workers train one model, each on its
// share of every batch (Optimizer::WithAllReduce).
#ifndef SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_
#define SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "graph/graph.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/optimizers.h"

namespace sluice {

class Contributions;

// Replaces each gradient by the mean over all workers. Gradients are reduced,
// and small ones of one device and dtype joined, in the reverse of the given
// order, about that in which differentiation finishes them. A bucket is named
// by its variables and their order: if workers differ in these, all get an
// error rather than sums of different gradients. Gradients of float32 are
// rounded to `between` for that, and so are the means; buckets count bytes of
// that dtype. The gradient of a variable that is a part (VariableOptions) is
// not reduced: it is the sum over all workers already. Those of variables in
// `rows` (FoundGradients) are left to ReduceRows.
void ReduceGradients(std::vector<GradientAndVariable>& pairs,
                     DType between = DType::kFloat32,
                     const BucketBytes& buckets = {},
                     const std::map<Output, Output>& rows = {});

// The nodes that write variables when `operations` run, including nodes that
// these need, in the graph's order.
std::vector<Node*> WritesOf(const std::vector<Operation>& operations);

// Throws Error(kUnimplemented) if `operations` write a variable: "'y' updates
// 'v', and `what` what it wrote: not `where`".
void RefuseWrites(const std::vector<Operation>& operations,
                  std::string_view what, std::string_view where);

// What becomes of a worker's own writes of what is reduced.
enum class OwnWrites : uint8_t {
  kFirst,    // the mean is written behind them
  kReduced,  // they are run for what is reduced (AllReduceOptions::in_two)
  kNever,    // the mean alone is written (AllReduceOptions::shared)
};

// Makes the floating variables that `writes` (WritesOf) write, such as moving
// statistics, the mean over all workers, too. `weight` is a scalar, the weight
// of this worker's values, with mean 1 over the workers; values of weight 0 may
// be NaN. Empty: all weigh alike. Returns the operations that do it.
// `contributions`, unless null, take the place of all-reduces.
std::vector<Operation> ReduceUpdates(const std::vector<Node*>& writes,
                                     const Output& weight, size_t bucket_bytes,
                                     OwnWrites own,
                                     Contributions* contributions);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_
