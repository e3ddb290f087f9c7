// Internal to models/optim.
#ifndef SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
#define SLUICE_MODELS_OPTIM_SQUARED_NORM_H_

#include "graph/ops/elementwise.h"
#include "graph/ops/loss.h"

namespace sluice {

// sum(x^2) as float64.
inline Output SquaredNorm(const Output& x) {
  return 2 * Cast(L2Loss(x), DType::kFloat64);
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_SQUARED_NORM_H_
