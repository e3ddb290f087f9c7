// What Minimize updates by: gradients, some of them of rows.
#ifndef SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_
#define SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_

#include <map>
#include <vector>

#include "graph/autograd.h"
#include "graph/graph.h"
#include "models/optim/gradient_hooks.h"

namespace sluice {

// A gradient whose variable is in `rows` is of slices of these (RowsGradient).
struct FoundGradients {
  std::vector<GradientAndVariable> pairs;
  std::map<Output, Output> rows;  // by variable
};

// Of the loss, for the variables that are `wanted` (empty: all trainable ones
// that it depends on); those of `tables` may be of rows. Throws Error where the
// loss does not depend on one that is wanted, or on any.
FoundGradients FindGradients(const Operand& loss,
                             const std::vector<Output>& wanted,
                             const std::vector<Output>& tables,
                             const std::vector<Output>& seeds,
                             const GradientOptions& options);

// Makes the slices one of each row, and zeros, for those who look at them.
void SumSlices(FoundGradients& gradients);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_
