// Finds the gradients that Minimize updates by, some of which are of rows.
#ifndef SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_
#define SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_

#include <map>
#include <vector>

#include "graph/autograd.h"
#include "graph/graph.h"
#include "models/optim/gradient_hooks.h"

namespace sluice {

// If a variable is in `rows`, its gradient consists of slices for these rows
// (RowsGradient).
struct FoundGradients {
  std::vector<GradientAndVariable> pairs;
  std::map<Output, Output> rows;  // by variable
};

// The gradients of the loss for the `wanted` variables (empty: all trainable
// ones that it depends on); those of `tables` may be of rows. Throws Error if
// the loss does not depend on a wanted variable, or on any.
FoundGradients FindGradients(const Operand& loss,
                             const std::vector<Output>& wanted,
                             const std::vector<Output>& tables,
                             const std::vector<Output>& seeds,
                             const GradientOptions& options);

// Sums the slices of each row into one and fills up with zeros, for hooks that
// look at gradients.
void SumSlices(FoundGradients& gradients);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_FIND_GRADIENTS_H_
