#include <fmt/format.h>

#include "graph/passes/passes.h"

namespace sluice::passes {

Status CountWorkers(Graph& graph, const WorkersIn& workers) {
  for (const auto& node : graph.nodes()) {
    if (!node->op().collective && !node->Is("NumWorkers")) continue;
    const std::string& name = node->attrs().String("group");
    const int count = workers == nullptr ? 1 : workers(name);
    if (count == 0) {
      return FailedPrecondition(
          fmt::format("{}: this worker is in no group '{}' ({})",
                      node->Describe(), name, node->location()));
    }
    const AttrValue* const given = node->attrs().Find("workers");
    if (given != nullptr && given->get<int64_t>() == 0) {
      node->set_attr("workers", count);
    }
  }
  return {};
}

}  // namespace sluice::passes
