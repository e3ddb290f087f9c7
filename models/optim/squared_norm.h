// Internal to models/optim.
#ifndef SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
#define SLUICE_MODELS_OPTIM_SQUARED_NORM_H_

#include "graph/ops/collective.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/loss.h"

namespace sluice {

// sum(x^2) as float64.
inline Output SquaredNorm(const Output& x) {
  return 2 * Cast(L2Loss(x), DType::kFloat64);
}

// The same of what belongs to a variable: where that is a part of a tensor that
// the workers have together, over all parts.
inline Output SquaredNorm(const Output& x, const Output& variable) {
  const Output mine = SquaredNorm(x);
  if (variable.node().part_of() == 0) return mine;
  return AllReduce(mine, Reduction::kSum, "squared_norm");
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
