// Whether a node has the output that a handle speaks of.
#ifndef SLUICE_GRAPH_OUTPUT_INDEX_H_
#define SLUICE_GRAPH_OUTPUT_INDEX_H_

#include <cstdint>
#include <string>

#include "engine/status.h"
#include "graph/graph.h"

namespace sluice {

// kInvalidArgument, "Relu 'relu' has 1 outputs, no output 1", where it has not.
inline Status CheckOutputIndex(const Node& node, int64_t index) {
  if (index >= 0 && index < node.num_outputs()) return {};
  return InvalidArgument(node.Describe() + " has " +
                         std::to_string(node.num_outputs()) +
                         " outputs, no output " + std::to_string(index));
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OUTPUT_INDEX_H_
