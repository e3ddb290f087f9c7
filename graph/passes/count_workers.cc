#include <fmt/format.h>

#include "graph/passes/passes.h"

namespace sluice::passes {

Status CountWorkers(Graph& graph, const WorkersIn& workers) {
  for (const auto& node : graph.nodes()) {
    const OpDef& op = node->op();
    if (!op.collective && !op.asks_seat) continue;
    const std::string& name = node->attrs().String("group");
    const Seat seat = workers == nullptr ? Seat() : workers(name);
    if (seat.size == 0) {
      return FailedPrecondition(
          fmt::format("{}: this worker is in no group '{}' ({})",
                      node->Describe(), name, node->location()));
    }
    const AttrValue* const given = node->attrs().Find("workers");
    if (given != nullptr && given->get<int64_t>() == 0) {
      node->set_attr("workers", seat.size);
    }
    const AttrValue* const rank =
        op.asks_seat ? node->attrs().Find("rank") : nullptr;
    if (rank != nullptr && rank->get<int64_t>() < 0) {
      node->set_attr("rank", seat.rank);
    }
  }
  return {};
}

}  // namespace sluice::passes
