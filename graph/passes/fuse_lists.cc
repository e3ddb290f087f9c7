// Many small nodes of one kind as one node with a list, which saves each the
// price of a node, on a GPU that of a launch:
//
//   the half copies of variables at the start of a step in mixed precision (54
//   in ResNet-50);
//   writes of small values, such as the running statistics of batch
//   normalisation (106 there).
//
// Moves the same bytes, but what a list makes, or reads, lives at once. In a
// training step halves of weights do so anyway, between its forward and its
// backward half; in a step without one, such as an evaluation, each would
// otherwise live only for its layer, so there the list costs memory, up to the
// halves of all weights. A value that is to be written lives until the last of
// its list is there, which is why it must be small.
#include <map>
#include <tuple>

#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

constexpr int64_t kMostAssignedBytes = int64_t{64} << 10;

// In the order of the nodes.
using Groups = std::vector<std::vector<Node*>>;

// The nodes that `belongs` takes, by equal keyOf(node), at most `most` a group.
template <typename Belongs, typename KeyOf>
Groups GroupsOf(const NodeMerger& merger, size_t most, Belongs belongs,
                KeyOf key_of) {
  Groups groups;
  std::map<decltype(key_of(std::declval<const Node&>())), size_t> group_of;
  for (Node* node : merger.Order()) {
    if (!belongs(*node)) continue;
    auto [it, fresh] = group_of.emplace(key_of(*node), groups.size());
    if (!fresh && groups[it->second].size() == most) {
      it->second = groups.size();
      fresh = true;
    }
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(node);
  }
  return groups;
}

// Those of the nodes that can be one: all of them, or else as many as fit with
// the first.
std::vector<Node*> Mergeable(const NodeMerger& merger,
                             const std::vector<Node*>& nodes) {
  if (merger.CanMerge(nodes)) return nodes;
  std::vector<Node*> fit;
  for (Node* node : nodes) {
    fit.push_back(node);
    if (!merger.CanMerge(fit)) fit.pop_back();
  }
  return fit;
}

void FuseCasts(NodeMerger& merger, Fusions* done) {
  const Groups groups = GroupsOf(
      merger, kMostOperands,
      [](const Node& node) {
        return node.Is("Cast") && node.input(0).node().IsVariable() &&
               node.input(0).dtype() == DType::kFloat32 &&
               IsHalf(node.output_type(0).dtype) &&
               node.control_inputs().empty();
      },
      [](const Node& node) {
        return std::tuple(node.device(), node.output_type(0).dtype);
      });
  for (const std::vector<Node*>& group : groups) {
    const std::vector<Node*> casts = Mergeable(merger, group);
    if (casts.size() < 2) continue;
    NodeMerger::Merged list = {.op = &OpTable::Global().Get("CastList"),
                               .attrs = casts[0]->attrs()};
    for (Node* cast : casts) {
      list.outputs[cast->output(0)] = static_cast<int>(list.inputs.size());
      list.inputs.push_back(cast->input(0));
      list.types.push_back(cast->output_type(0));
    }
    MergeAs(merger, casts, *casts[0], list, /*bytes_saved=*/0, done);
  }
}

void FuseAssigns(NodeMerger& merger, Fusions* done) {
  const auto condition = [](const Node& assign) {
    return assign.num_inputs() > 2 ? assign.input(2) : Output();
  };
  // A variable and a value of each, and the condition.
  constexpr size_t kMost = (kMostOperands - 1) / 2;
  const Groups groups = GroupsOf(
      merger, kMost,
      [&](const Node& node) {
        return node.Is("Assign") && !node.IsInitializer() &&
               // Of rows alone there are no lists.
               node.attrs().Int("first_row") < 0 &&
               BytesOf(node.input(1)) <= kMostAssignedBytes &&
               // Another variable's bytes are read before that one's update.
               !IsVariable(node.input(1)) &&
               // A reader of the new value reads one variable's.
               merger.UsesOf(node.output(0)).empty();
      },
      [&](const Node& node) {
        return std::tuple(node.device(), node.input(0).dtype(),
                          condition(node));
      });
  for (const std::vector<Node*>& group : groups) {
    const std::vector<Node*> assigns = Mergeable(merger, group);
    if (assigns.size() < 2) continue;
    Node& first = *assigns[0];
    NodeMerger::Merged list = {
        .op = &OpTable::Global().Get("AssignList"),
        .attrs = {{"variables", static_cast<int64_t>(assigns.size())}},
        .types = {first.output_type(0)}};
    for (int i : {0, 1}) {
      for (const Node* assign : assigns) {
        list.inputs.push_back(assign->input(i));
      }
    }
    const Output apply = condition(first);
    list.inputs.push_back(
        apply.valid()
            ? apply
            : merger.AddConstant(first, "apply", Tensor::Scalar(true)));
    MergeAs(merger, assigns, first, list, /*bytes_saved=*/0, done);
  }
}

}  // namespace

void FuseLists(NodeMerger& merger, Fusions* done) {
  FuseCasts(merger, done);
  FuseAssigns(merger, done);
}

}  // namespace sluice::passes
