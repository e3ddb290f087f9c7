#include "graph/pinned_reads.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/ops/control.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

constexpr std::string_view kPinned = "pinned";

}  // namespace

PinnedReads::PinnedReads(const std::vector<Output>& given) {
  std::vector<const Node*> roots;
  for (const Output& output : given) roots.push_back(&output.node());
  for (const Node* node : Needed(roots)) {
    if (node->IsInitializer()) continue;
    for (int i = 0; i < node->mutates(); ++i) {
      if (node->input(i).node().IsVariable()) written_.insert(node->input(i));
    }
  }
}

Output PinnedReads::Of(const Node& node, const Output& variable) {
  Output& read = reads_[{&node, variable}];
  if (read.valid()) return read;
  const DeviceScope there(variable.graph(), variable.node().device());
  read = Identity(variable, std::string(kPinned));
  read.node().set_origin(node.name());
  // Depends on the writes that the node does, and on no others, whatever scope
  // gradients are built in.
  read.node().set_control_inputs({});
  for (const Output& input : node.inputs()) {
    if (!input.node().IsVariable()) read.node().AddControlInput(&input.node());
  }
  for (Node* control : node.control_inputs()) {
    read.node().AddControlInput(control);
  }
  return read;
}

const Node* PinnedReads::ReaderOf(const Node& node, const Graph& graph) {
  const std::string_view name = node.name();
  const bool pinned = node.op().view && node.origin() != name &&
                      name.substr(name.rfind('/') + 1).starts_with(kPinned);
  return pinned ? graph.Find(node.origin()) : nullptr;
}

std::vector<Output> PinnedReads::InputsOf(const Node& node) {
  std::vector<Output> inputs = node.inputs();
  for (Output& input : inputs) Replace(node, &input);
  return inputs;
}

void PinnedReads::Pin(const Node& node, size_t begin,
                      std::vector<Output>* outputs) {
  if (written_.empty()) return;
  const auto& nodes = node.graph().nodes();
  for (size_t n = begin; n < nodes.size(); ++n) {
    Node& added = *nodes[n];
    for (int i = added.mutates(); i < added.num_inputs(); ++i) {
      Output input = added.input(i);
      Replace(node, &input);
      if (!(input == added.input(i))) added.set_input(i, input);
    }
  }
  for (Output& output : *outputs) {
    if (output.valid()) Replace(node, &output);
  }
}

void PinnedReads::Replace(const Node& node, Output* output) {
  const auto& inputs = node.inputs();
  if (!Concerns(*output) ||
      std::find(inputs.begin(), inputs.end(), *output) == inputs.end()) {
    return;
  }
  *output = Of(node, *output);
}

}  // namespace sluice
