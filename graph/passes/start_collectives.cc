#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

// Those of a node that another op has as well.
Attributes AttrsFor(const OpDef& op, const Node& node) {
  Attributes attrs;
  for (const AttrDef& def : op.attrs) {
    const AttrValue* const value = node.attrs().Find(def.name);
    if (value != nullptr) attrs.Set(def.name, *value);
  }
  return attrs;
}

}  // namespace

// The node becomes the wait, so that who uses its result stays as it is. Starts
// keep the order of the collectives among themselves, and so do waits
// (OrderVariables has put it there).
Status StartCollectives(Graph& graph) {
  std::vector<Node*> waits;
  std::map<std::string, int64_t> in_step;  // by group
  for (const auto& node : graph.nodes()) {
    if (node->op().start == nullptr) continue;
    waits.push_back(node.get());
    ++in_step[node->attrs().String("group")];
  }
  const OpTable& ops = OpTable::Global();
  std::unordered_map<const Node*, Node*> starts;
  for (Node* wait : waits) {
    const OpDef& op = ops.Get(wait->op().start);
    Attributes attrs = AttrsFor(op, *wait);
    attrs.Set("in_step", in_step.at(wait->attrs().String("group")));
    Node& start = graph.AddRaw(graph.UniqueName(wait->name() + "/start"),
                               wait->origin(), op, std::move(attrs),
                               {wait->input(0)}, {wait->output_type(0)});
    SLUICE_RETURN_IF_ERROR(Graph::Infer(start));
    start.set_device(wait->device());
    start.set_location(wait->location());
    starts[wait] = &start;
  }
  for (Node* wait : waits) {
    Node& start = *starts.at(wait);
    std::vector<Node*> earlier;  // waits
    for (Node* control : wait->control_inputs()) {
      const auto collective = starts.find(control);
      if (collective != starts.end()) earlier.push_back(control);
      start.AddControlInput(collective != starts.end() ? collective->second
                                                       : control);
    }
    const OpDef& op = ops.Get(start.op().wait);
    wait->Become(op, AttrsFor(op, *wait), {start.output(0)});
    wait->set_control_inputs(earlier);
  }
  return {};
}

}  // namespace sluice::passes
