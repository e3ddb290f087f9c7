// What Minimize does where several workers train one model, each on its share
// of every batch (Optimizer::WithAllReduce).
#ifndef SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_
#define SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_

#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "graph/graph.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/optimizers.h"

namespace sluice {

class Contributions;

// Makes each gradient the mean of all workers'. They are reduced, and joined
// where they are small and of one device and dtype, in the reverse of the order
// given, which is about that in which differentiation has them ready. What is
// reduced together has a name by its variables and their order: where workers
// differ in these, all have an error rather than sums of different ones. Those
// of float32 are rounded to `between` for that, and so are the means; buckets
// are of bytes as they travel. Of a variable that is a part (VariableOptions)
// there is nothing to reduce: its gradient is the sum of all workers' already.
// Those of variables in `rows` (FoundGradients) are left to ReduceRows.
void ReduceGradients(std::vector<GradientAndVariable>& pairs,
                     DType between = DType::kFloat32,
                     const BucketBytes& buckets = {},
                     const std::map<Output, Output>& rows = {});

// The nodes that write variables where `operations` run, also on the way to
// them, in the graph's order.
std::vector<Node*> WritesOf(const std::vector<Operation>& operations);

// Throws Error(kUnimplemented) where there is one: "'y' updates 'v', and `what`
// what it wrote: not `where`".
void RefuseWrites(const std::vector<Operation>& operations,
                  std::string_view what, std::string_view where);

// Makes the floating variables that `writes` (WritesOf) write, such as moving
// statistics, the mean of all workers', too. `weight` is a scalar, what this
// worker's count for, of mean 1 over the workers; what counts for nothing may
// be NaN. Empty: all count alike. Returns what does it, to be run with the
// writes; where variables are `shared` (AllReduceOptions) in their place. With
// `contributions`, not null, by those rather than all-reduces.
std::vector<Operation> ReduceUpdates(const std::vector<Node*>& writes,
                                     const Output& weight = Output(),
                                     size_t bucket_bytes = BucketBytes().others,
                                     bool shared = false,
                                     Contributions* contributions = nullptr);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_REDUCE_GRADIENTS_H_
