// How many inputs an op takes, for messages.
#ifndef SLUICE_GRAPH_INPUT_COUNT_H_
#define SLUICE_GRAPH_INPUT_COUNT_H_

#include <string>

#include "graph/op.h"

namespace sluice {

// "2", "2 or 3", "at least 1"
inline std::string InputCountText(const OpDef& op) {
  const int named = op.inputs.size();
  const std::string count = std::to_string(named);
  if (op.TakesInputs(named + 1)) return "at least " + count;
  const bool optional = named > 0 && op.inputs[named - 1].optional;
  return optional ? std::to_string(named - 1) + " or " + count : count;
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_INPUT_COUNT_H_
