#include "models/optim/own_updates.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/ops/element_updates.h"
#include "graph/traversal.h"
#include "models/optim/loss_scale.h"
#include "models/optim/reduce_gradients.h"

namespace sluice {
namespace {

bool IsAmong(const std::vector<Node*>& nodes, const Node* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

void AddDependencies(const Node& node, std::vector<const Node*>* nodes) {
  ForEachDependency(node, [&](const Node& from) { nodes->push_back(&from); });
}

bool Writes(const Node* node) {
  return node->mutates() > 0;
}

Node* Twin(const Node& update) {
  Graph& graph = update.graph();
  const DeviceScope there(graph, update.device());
  Node& twin = graph.Add(
      {update.op().name,
       std::vector<Operand>(update.inputs().begin(), update.inputs().end()),
       update.attrs()});
  twin.set_location(update.location());
  for (Node* before : update.control_inputs()) twin.AddControlInput(before);
  return &twin;
}

std::vector<Operation> TrainingsBy(const Output& step) {
  std::vector<Operation> trainings;
  for (const auto& node : step.graph().nodes()) {
    const std::vector<Node*>& runs = node->control_inputs();
    const bool counts = std::any_of(
        runs.begin(), runs.end(),
        [&](const Node* run) { return Writes(run) && run->input(0) == step; });
    if (counts && node->Is("NoOp")) trainings.emplace_back(node.get());
  }
  return trainings;
}

// Whether the write is left out where gradients overflow.
bool FollowsLossScale(const Node& write) {
  const Output condition = ConditionOf(write);
  if (!condition.valid()) return false;
  const auto needed = Needed({&condition.node()});
  return std::any_of(needed.begin(), needed.end(), [](const Node* node) {
    return node->IsVariable() && IsLossScaleState(node->name());
  });
}

}  // namespace

std::vector<Operation> OwnUpdates(const std::vector<Operation>& updates,
                                  const Output& loss) {
  std::vector<Node*> given;
  for (const Operation& update : updates) given.push_back(&update.node());
  const std::vector<Node*> members = MembersOf(given);
  std::vector<const Node*> users = {&loss.node()};
  for (const Node* member : members) AddDependencies(*member, &users);
  const auto needed = Needed(users);
  const bool any_need_writes =
      std::any_of(needed.begin(), needed.end(), Writes);
  std::vector<Operation> own;
  for (Node* member : members) {
    const bool separable =
        Writes(member) && !needed.contains(member) &&
        (!any_need_writes || WritesOf({Operation(member)}).size() == 1);
    own.emplace_back(separable ? Twin(*member) : member);
  }
  return own;
}

void CheckOwnWrites(const std::vector<Node*>& writes, const Output& step,
                    bool leaves_out) {
  std::vector<Node*> others;
  if (leaves_out) {
    std::vector<Operation> trained = TrainingsBy(step);
    const std::vector<Output>& losses = step.graph().losses();
    trained.insert(trained.end(), losses.begin(), losses.end());
    others = WritesOf(trained);
  }
  for (const Node* write : writes) {
    if (leaves_out ? !IsAmong(others, write) : !FollowsLossScale(*write)) {
      continue;
    }
    throw Error(
        Code::kUnimplemented,
        fmt::format("'{}' updates '{}' in several trainings of the graph, on "
                    "the way to another update or to a loss: one with loss "
                    "scaling (float16) cannot leave it out for itself; give "
                    "each a graph of its own ({})",
                    write->name(), write->input(0).name(), write->location()));
  }
}

}  // namespace sluice
