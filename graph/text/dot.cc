#include "graph/text/dot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/thousands.h"
#include "engine/text/utf8.h"
#include "graph/text/fold.h"

namespace sluice {
namespace {

using Box = FoldedGraph::Box;

// Lines, quoted as Graphviz has it. What cannot be drawn is shown as "\\x0a";
// a bare "&" would begin an entity such as "&lt;".
std::string Label(const std::vector<std::string>& lines) {
  std::string text;
  for (std::string_view line : lines) {
    if (!text.empty()) text += "\\n";
    while (!line.empty()) {
      const auto byte = static_cast<uint8_t>(line[0]);
      bool valid = false;
      const size_t length = CharacterBytes(line, valid);
      if (!valid || byte < 0x20 || byte == 0x7f) {
        text += fmt::format("\\\\x{:02x}", byte);
      } else if (byte == '"' || byte == '\\') {
        text += fmt::format("\\{}", line[0]);
      } else if (byte == '&') {
        text += "&amp;";
      } else {
        text += line.substr(0, length);
      }
      line.remove_prefix(valid ? length : 1);
    }
  }
  return "\"" + text + "\"";
}

// "3,212,288 parameters"
std::string Counted(int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", WithThousands(n), what, n == 1 ? "" : "s");
}

// Shapes, counts and the assignments of running statistics serve others.
bool Matters(const Node& node) {
  const auto& types = node.output_types();
  return !node.op().assigns &&
         std::any_of(types.begin(), types.end(), [](const TensorType& type) {
           return IsFloating(type.dtype);
         });
}

// "2 Conv2D, 2 BatchNorm, Relu, ...": the three most frequent.
std::string Ops(const Box& box) {
  std::vector<const Node*> nodes = box.nodes.empty() ? box.values : box.nodes;
  if (std::any_of(nodes.begin(), nodes.end(),
                  [](const Node* node) { return Matters(*node); })) {
    std::erase_if(nodes, [](const Node* node) { return !Matters(*node); });
  }
  std::vector<std::pair<std::string_view, int>> ops;  // as they come
  for (const Node* node : nodes) {
    const std::string_view name = node->op().name;
    auto it = std::find_if(ops.begin(), ops.end(),
                           [&](const auto& op) { return op.first == name; });
    if (it == ops.end()) it = ops.insert(it, {name, 0});
    ++it->second;
  }
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return a.second > b.second;
  });
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, ops.size()); ++i) {
    if (i > 0) text += ", ";
    if (ops[i].second > 1) text += fmt::format("{} ", ops[i].second);
    text += ops[i].first;
  }
  return ops.size() > kShown ? text + ", ..." : text;
}

int64_t Parameters(const Box& box) {
  int64_t parameters = 0;
  for (const Node* value : box.values) {
    if (value->IsVariable() && value->attrs().Bool("trainable")) {
      parameters += value->output_type(0).shape.elements();
    }
  }
  return parameters;
}

template <typename Nodes>
std::set<std::string> DevicesOf(const Nodes& nodes) {
  std::set<std::string> devices;
  for (const auto& node : nodes) {
    if (!node->device().empty()) devices.insert(node->device());
  }
  return devices;
}

constexpr char kStyle[] =
    "  compound=true; newrank=true; nodesep=0.4; ranksep=0.3;\n"
    "  fontname=\"sans-serif\"; fontsize=12; color=gray60;\n"
    "  node [shape=box, style=filled, fillcolor=aliceblue, color=steelblue,\n"
    "        fontname=\"sans-serif\", fontsize=11];\n"
    "  edge [fontname=\"sans-serif\", fontsize=9, color=gray40];\n";

class Printer {
 public:
  Printer(const Graph& graph, const FoldedGraph& folded)
      : graph_(graph),
        folded_(folded),
        several_devices_(DevicesOf(graph.nodes()).size() > 1) {}

  std::string Run() {
    const size_t boxes = folded_.boxes.size();
    text_ = fmt::format("// {} as {} box{}\ndigraph {{\n{}",
                        Counted(std::ssize(graph_.nodes()), "node"), boxes,
                        boxes == 1 ? "" : "es", kStyle);
    Contents(FoldedGraph::kNone, "  ");
    for (const FoldedGraph::Edge& edge : folded_.edges) PrintEdge(edge);
    return text_ + "}\n";
  }

 private:
  // What lies in a cluster, or in none.
  void Contents(int cluster, const std::string& indent) {
    for (size_t i = 0; i < folded_.boxes.size(); ++i) {
      if (folded_.boxes[i].cluster != cluster) continue;
      PrintBox(static_cast<int>(i), indent);
    }
    for (size_t i = 0; i < folded_.clusters.size(); ++i) {
      if (folded_.clusters[i].parent != cluster) continue;
      text_ += fmt::format("{}subgraph cluster_{} {{\n{}  label={};\n", indent,
                           i, indent, Label({folded_.clusters[i].name}));
      Contents(static_cast<int>(i), indent + "  ");
      text_ += indent + "}\n";
    }
  }

  // Below its cluster's name.
  std::string ShortName(const Box& box) const {
    if (box.cluster == FoldedGraph::kNone) return box.name;
    const std::string& around = folded_.clusters[box.cluster].name;
    return box.name.starts_with(around + "/")
               ? box.name.substr(around.size() + 1)
               : box.name;
  }

  // The box's name, what it computes, how much of it there is, and where.
  std::vector<std::string> Lines(const Box& box) const {
    std::string name = ShortName(box);
    if (box.part == Part::kBackward) {
      name = name.empty() ? "gradients" : "gradients of " + name;
    } else if (name.empty()) {
      name = "forward";
    }
    std::vector<std::string> lines = {name, Ops(box)};
    std::vector<std::string> sizes;
    if (box.nodes.size() > 1) {
      sizes.push_back(Counted(std::ssize(box.nodes), "node"));
    }
    if (const int64_t parameters = Parameters(box); parameters > 0) {
      sizes.push_back(Counted(parameters, "parameter"));
    }
    if (!sizes.empty()) {
      lines.push_back(fmt::format("{}", fmt::join(sizes, ", ")));
    }
    if (several_devices_) {
      lines.push_back(fmt::format("{}", fmt::join(DevicesOf(box.nodes), ", ")));
    }
    return lines;
  }

  void PrintBox(int index, const std::string& indent) {
    const Box& box = folded_.boxes[index];
    std::string_view style = "";
    if (box.part != Part::kForward) {
      style = ", style=\"filled,dashed\", fillcolor=gray95, color=gray60";
    } else if (box.nodes.size() == 1 &&
               (box.nodes[0]->IsPlaceholder() || box.nodes[0]->op().sink)) {
      style = ", shape=ellipse, fillcolor=white";
    }
    text_ += fmt::format("{}b{} [label={}{}];\n", indent, index,
                         Label(Lines(box)), style);
  }

  void PrintEdge(const FoldedGraph::Edge& edge) {
    const int cluster = edge.from.cluster;
    int tail = cluster == FoldedGraph::kNone
                   ? edge.from.box
                   : folded_.clusters[cluster].first_box;
    int head = edge.to;
    std::string attributes = "style=dashed";
    if (const auto& tensors = edge.tensors; !tensors.empty()) {
      const std::string label = tensors.size() == 1
                                    ? tensors[0].type().ToString()
                                    : Counted(std::ssize(tensors), "tensor");
      attributes = "label=" + Label({" " + label});  // " ": beside the line
    }
    if (cluster != FoldedGraph::kNone) {
      attributes += fmt::format(", ltail=cluster_{}", cluster);
    }
    const Part from = folded_.boxes[tail].part, to = folded_.boxes[head].part;
    if (from != Part::kForward && to != Part::kForward) {
      // Gradients flow up beside the layers, which flow down.
      std::swap(tail, head);
      attributes += ", dir=back";
    } else if (to == Part::kBackward) {
      const bool own = edge.from == folded_.boxes[head].of;
      attributes +=
          own ? ", minlen=0, weight=2" : ", weight=0";  // side by side
    } else if (from != to) {
      attributes += ", constraint=false";
    } else {
      attributes += ", weight=8";  // straight down
    }
    if (from == Part::kForward && to != Part::kForward) {
      attributes += ", color=gray80, fontcolor=gray60";
    }
    text_ += fmt::format("  b{} -> b{} [{}];\n", tail, head, attributes);
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  const bool several_devices_;
  std::string text_;
};

}  // namespace

std::string PrintOverview(const Graph& graph, int max_boxes) {
  const FoldedGraph folded = Fold(graph, max_boxes);
  return Printer(graph, folded).Run();
}

}  // namespace sluice
