// Options of variables kept beside others, such as optimizer slots. Internal to
// models/optim.
#ifndef SLUICE_MODELS_OPTIM_BESIDE_H_
#define SLUICE_MODELS_OPTIM_BESIDE_H_

#include "graph/graph.h"

namespace sluice {

// For a variable of the same shape as `variable`, element by element; if that
// is a part of a tensor (VariableOptions::part_of), so is this.
inline VariableOptions BesideOptions(const Output& variable) {
  return {.trainable = false, .part_of = variable.node().part_of()};
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_BESIDE_H_
