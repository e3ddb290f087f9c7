#include <fmt/format.h>

#include "graph/text/text.h"
#include "graph/text/text_tensor.h"

namespace sluice {
namespace {

std::string NameText(const std::string& name) {
  return IsPlainName(name) ? name : QuotedText(name);
}

std::string OperandText(const Output& output) {
  const std::string name = NameText(output.node().name());
  return output.index() == 0 ? name
                             : fmt::format("{}:{}", name, output.index());
}

void Append(std::string_view separator, std::string_view item,
            std::string* list) {
  if (!list->empty()) *list += separator;
  *list += item;
}

std::string PrintNode(const Node& node) {
  std::string operands, attributes, types;
  for (const Output& input : node.inputs()) {
    Append(", ", OperandText(input), &operands);
  }
  for (const Node* control : node.control_inputs()) {
    Append(", ", "^" + NameText(control->name()), &operands);
  }
  for (const auto& [name, value] : node.attrs()) {
    Append(", ", fmt::format("{} = {}", name, PrintValue(value)), &attributes);
  }
  for (const TensorType& type : node.output_types()) {
    Append(", ", type.ToString(), &types);
  }
  std::string line = fmt::format("{} = {}({})", NameText(node.name()),
                                 node.op().name, operands);
  if (!attributes.empty()) line += " {" + attributes + "}";
  if (!types.empty()) line += " : " + types;
  if (const std::string& device = node.device(); !device.empty()) {
    line += " @ " + (IsPlainDevice(device) ? device : QuotedText(device));
  }
  if (node.origin() != node.name()) line += " from " + NameText(node.origin());
  return line + "\n";
}

// The colour of a device's nodes in Graphviz, by order of appearance.
std::string_view ColourOf(const std::string& device,
                          std::map<std::string, size_t>* devices) {
  constexpr std::string_view kColours[] = {
      "white", "lightblue", "lightyellow", "honeydew", "mistyrose", "lavender"};
  const size_t i = devices->emplace(device, devices->size()).first->second;
  return kColours[i % std::size(kColours)];
}

}  // namespace

std::string PrintGraph(const Graph& graph) {
  std::string text;
  for (const Node* node : graph.TopologicalOrder()) text += PrintNode(*node);
  return text;
}

std::string PrintDot(const Graph& graph) {
  std::string text =
      "digraph {\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
  std::map<std::string, size_t> devices;
  for (const auto& node : graph.nodes()) {
    std::string label = fmt::format("{}\n{}", node->op().name, node->name());
    if (!node->device().empty()) label += "\n" + node->device();
    text += fmt::format("  n{} [label={}, fillcolor={}];\n", node->id(),
                        QuotedText(label), ColourOf(node->device(), &devices));
    for (const Output& input : node->inputs()) {
      text += fmt::format("  n{} -> n{} [label={}];\n", input.node().id(),
                          node->id(), QuotedText(input.type().ToString()));
    }
    for (const Node* control : node->control_inputs()) {
      text += fmt::format("  n{} -> n{} [style=dashed];\n", control->id(),
                          node->id());
    }
  }
  return text + "}\n";
}

}  // namespace sluice
