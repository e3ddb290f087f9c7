// Variables that are kept beside others. Internal to models/optim.
#ifndef SLUICE_MODELS_OPTIM_BESIDE_H_
#define SLUICE_MODELS_OPTIM_BESIDE_H_

#include "graph/graph.h"

namespace sluice {

// Of one of the same shape, element by element: of a part, too.
inline VariableOptions BesideOptions(const Output& variable) {
  return {.trainable = false, .part_of = variable.node().part_of()};
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_BESIDE_H_
