// Internal to models/optim.
#ifndef SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
#define SLUICE_MODELS_OPTIM_SQUARED_NORM_H_

#include "graph/ops/collective.h"
#include "graph/ops/loss.h"

namespace sluice {

// The SquaredNorm of a tensor that belongs to a variable. If the variable is a
// part of a tensor that the workers share out, it is over all parts.
inline Output SquaredNorm(const Output& x, const Output& variable) {
  const Output mine = SquaredNorm(x);
  if (variable.node().part_of() == 0) return mine;
  return AllReduce(mine, Reduction::kSum, "squared_norm_of_parts");
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
