#include "models/optim/root_scalar.h"

#include <fmt/format.h>

namespace sluice {

Output FindRootScalar(const Graph& graph, const RootScalar& scalar) {
  const Node* node = graph.Find(scalar.name);
  if (node == nullptr) return {};
  if (node->IsVariable() && node->output_type(0).dtype == scalar.dtype &&
      node->output_type(0).shape.scalar()) {
    return node->output(0);
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("'{}' is the name of {}; give {} another ({})", scalar.name,
                  scalar.purpose, node->Describe(), node->location()));
}

Output FindOrMakeRootScalar(Graph& graph, const RootScalar& scalar,
                            const Initializer& first) {
  const Output found = FindRootScalar(graph, scalar);
  if (found.valid()) return found;
  NameScope root{Scope(graph)};
  DeviceScope anywhere(graph, "");
  return graph.Variable(scalar.name, first, {.trainable = false});
}

}  // namespace sluice
