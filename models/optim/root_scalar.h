// Scalar variables that exist once in a training: not trained, on any device,
// named from the root whatever the current scope. Internal to models/optim.
#ifndef SLUICE_MODELS_OPTIM_ROOT_SCALAR_H_
#define SLUICE_MODELS_OPTIM_ROOT_SCALAR_H_

#include <string_view>

#include "graph/graph.h"

namespace sluice {

struct RootScalar {
  const char* name;
  DType dtype;
  std::string_view purpose;  // for messages
};

// The variable; not valid() if there is none. Throws Error(kInvalidArgument) if
// something else has the name.
Output FindRootScalar(const Graph& graph, const RootScalar& scalar);
// FindRootScalar, but if there is no such variable it is made, with first value
// `first`.
Output FindOrMakeRootScalar(Graph& graph, const RootScalar& scalar,
                            const Initializer& first);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_ROOT_SCALAR_H_
