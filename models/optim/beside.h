// Variables kept beside others, such as optimizer slots. Internal to
// models/optim.
#ifndef SLUICE_MODELS_OPTIM_BESIDE_H_
#define SLUICE_MODELS_OPTIM_BESIDE_H_

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace sluice {

// `name` below the current scope, that of a variable, for one beside it; with a
// number behind it where another training of the variable has taken the name.
inline std::string NameBeside(const Graph& graph, std::string_view name) {
  return graph.UniqueName(std::string(name)).substr(graph.scope().size());
}

// For a variable of the same shape as `variable`, element by element; if that
// is a part of a tensor (VariableOptions::part_of), so is this.
inline VariableOptions BesideOptions(const Output& variable) {
  return {.trainable = false, .part_of = variable.node().part_of()};
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_BESIDE_H_
