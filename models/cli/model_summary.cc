#include "models/cli/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/text/thousands.h"
#include "graph/compile/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/traversal.h"
#include "models/cli/console.h"
#include "models/train/run/memory_check.h"

namespace sluice {
namespace {

// --- The forward pass --------------------------------------------------------

// What the loss of a full batch needs, with concrete shapes.
std::unique_ptr<Graph> ForwardPass(const TrainingRun& run) {
  std::unique_ptr<Graph> step = run.StepGraph();
  std::vector<const Node*> fetches;
  for (const auto& node : step->nodes()) {
    if (node->IsFetch()) fetches.push_back(node.get());
  }
  const auto needed = Needed(fetches);
  step->Remove([&](const Node& node) { return !needed.contains(&node); });
  ThrowIfError(passes::CountWorkers(*step, nullptr));
  ThrowIfError(passes::Refine(*step, FoldNode));
  return step;
}

// The names of what the model's exports need.
std::set<std::string> ExportedNames(const TrainingRun& run) {
  std::vector<const Node*> roots;
  for (const auto& [name, output] : run.model().exports) {
    roots.push_back(&output.node());
  }
  std::set<std::string> names;
  for (const Node* node : Needed(roots)) names.insert(node->name());
  return names;
}

// How many the step has whose ops are counted: a leaf's, where there are such.
int64_t ExamplesOf(const TrainingRun& run) {
  return run.workers().ShareOf(run.input().batch_size());
}

using Nodes = std::unordered_set<const Node*>;

// What depends on the batch, or on random numbers, which a generator begins
// with.
Nodes FedNodes(const Graph& forward) {
  Nodes fed;
  for (const Node* node : forward.TopologicalOrder()) {
    const bool begins = node->op().stateful && !node->IsVariable();
    const bool goes_on =
        std::any_of(node->inputs().begin(), node->inputs().end(),
                    [&](const Output& x) { return fed.contains(&x.node()); });
    if (begins || goes_on) fed.insert(node);
  }
  return fed;
}

bool Computes(const Node& node) {
  return node.op().instruction && !node.op().sink;
}

// Counters, such as the global step, are none.
std::vector<Output> ParametersOf(const TrainingRun& run) {
  std::vector<Output> parameters = run.model_variables();
  std::erase_if(parameters,
                [](const Output& x) { return !IsFloating(x.dtype()); });
  return parameters;
}

// --- Layers ------------------------------------------------------------------

// "layer1/0/conv1" of "layer1/0/conv1/weights"; "" of what is in no scope.
std::string ScopeOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

// The layers that have variables.
class LayerNames {
 public:
  LayerNames(const std::vector<Output>& parameters, const Graph& forward) {
    for (const Output& parameter : parameters) {
      parameters_[LayerOf(parameter)] += parameter.shape().elements();
    }
    for (const auto& node : forward.nodes()) {
      if (Computes(*node)) at_home_.insert(Enclosing(*node));
    }
  }

  // Their parameters, by name.
  const std::map<std::string, int64_t>& parameters() const {
    return parameters_;
  }
  // The one that the node is in, or "". Where nothing is computed in the scope
  // of variables, what reads them is of their layer.
  std::string Of(const Node& node) const {
    if (std::string layer = Enclosing(node); !layer.empty()) return layer;
    for (const Output& input : node.inputs()) {
      if (!input.node().IsVariable()) continue;
      std::string layer = LayerOf(input);
      if (parameters_.contains(layer) && !at_home_.contains(layer)) {
        return layer;
      }
    }
    return "";
  }

 private:
  static std::string LayerOf(const Output& variable) {
    const std::string& name = variable.node().name();
    std::string scope = ScopeOf(name);
    return scope.empty() ? name : scope;
  }
  // The innermost scope around the node that has variables, or "".
  std::string Enclosing(const Node& node) const {
    std::string scope = ScopeOf(node.name());
    while (!scope.empty() && !parameters_.contains(scope)) {
      scope = ScopeOf(scope);
    }
    return scope;
  }

  std::map<std::string, int64_t> parameters_;
  std::set<std::string> at_home_;  // what computes in its own scope
};

// One row of the table, with nodes of the forward pass.
struct Layer {
  std::string name;
  int64_t parameters = 0;
  int64_t multiply_adds = 0;  // of the step's examples
  // What multiplies most, and what yields the output; null where the loss needs
  // nothing of it.
  const Node* op = nullptr;
  const Node* last = nullptr;
};

// Sorts the nodes of a forward pass into rows.
class Rows {
 public:
  Rows(const TrainingRun& run, const Graph& forward)
      : fed_(FedNodes(forward)), names_(ParametersOf(run), forward) {
    FindNetwork(forward, ExportedNames(run));
    // In the order in which the model was built.
    for (const auto& node : forward.nodes()) {
      if (Computes(*node)) Add(*node);
    }
    for (const auto& [name, elements] : names_.parameters()) {
      if (!layers_.contains(name)) rows_.push_back({name, elements});
    }
  }

  const std::vector<Layer>& get() const { return rows_; }

 private:
  // What leads to a layer or to what is exported.
  void FindNetwork(const Graph& forward,
                   const std::set<std::string>& exported) {
    std::vector<const Node*> roots;
    for (const auto& node : forward.nodes()) {
      const bool in_layer = Computes(*node) && !names_.Of(*node).empty();
      if (in_layer || exported.contains(node->name())) {
        roots.push_back(node.get());
      }
    }
    network_ = Needed(roots);
  }

  // Multiply-adds of the step's examples, if they are in proportion to the
  // examples.
  int64_t Cost(const Node& node) const {
    const MultiplyAddsFn count = node.op().multiply_adds;
    return count != nullptr && fed_.contains(&node) ? count(node) : 0;
  }

  // Of a node in no layer.
  bool Shown(const Node& node) const {
    if (Cost(node) > 0) return true;
    if (!network_.contains(&node)) return false;
    for (const Output& x : node.inputs()) {
      if (!fed_.contains(&x.node())) continue;
      return !(x.shape() == node.output(0).shape());
    }
    return false;
  }

  void Add(const Node& node) {
    const std::string layer = names_.Of(node);
    if (layer.empty() && !Shown(node)) return;
    size_t i = rows_.size();
    if (!layer.empty()) i = layers_.emplace(layer, i).first->second;
    if (i == rows_.size()) {
      rows_.push_back(layer.empty()
                          ? Layer{node.name()}
                          : Layer{layer, names_.parameters().at(layer)});
    }
    Layer& row = rows_[i];
    row.multiply_adds += Cost(node);
    if (row.op == nullptr || Cost(*row.op) < Cost(node)) row.op = &node;
    // What penalties of weights end in is no output.
    if (row.last == nullptr || fed_.contains(&node)) row.last = &node;
  }

  const Nodes fed_;
  const LayerNames names_;
  Nodes network_;
  std::vector<Layer> rows_;
  std::unordered_map<std::string, size_t> layers_;  // with variables: rows
};

// --- Text --------------------------------------------------------------------

constexpr size_t kWidth = 100;
// Of ops and shapes. Names have what is left, but some at least.
constexpr size_t kWidest = 22;
constexpr size_t kNarrowestName = 12;

using Cells = std::array<std::string, 5>;

// "layer1/0/down...conv1"
std::string Shortened(const std::string& text, size_t width) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= width) return text;
  const size_t tail = (width - kDots.size()) / 2;
  const size_t head = width - kDots.size() - tail;
  return fmt::format("{}{}{}", text.substr(0, head), kDots,
                     text.substr(text.size() - tail));
}

std::string Amount(int64_t number) {
  return number == 0 ? "-" : WithThousands(number);
}

Cells CellsOf(const Layer& layer, int64_t examples) {
  const bool used = layer.op != nullptr;
  return {
      layer.name, Shortened(used ? layer.op->op().name : "-", kWidest),
      used ? Shortened(layer.last->output(0).shape().ToString(), kWidest) : "-",
      Amount(layer.parameters), Amount(layer.multiply_adds / examples)};
}

std::string Table(const std::vector<Layer>& layers, int64_t examples) {
  std::vector<Cells> rows = {
      {"layer", "op", "output", "parameters", "multiply-adds"}};
  for (const Layer& layer : layers) rows.push_back(CellsOf(layer, examples));
  std::array<size_t, 5> widths = {};
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  auto& [name, op, output, parameters, multiply_adds] = widths;
  const size_t others = op + output + parameters + multiply_adds + 4 * 2;
  name = std::min(name, kWidth - std::min(others, kWidth - kNarrowestName));
  std::string text;
  for (const Cells& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}\n",
                        Shortened(row[0], name), name, row[1], op, row[2],
                        output, row[3], parameters, row[4], multiply_adds);
  }
  return text;
}

std::string BytesOf(const std::vector<Output>& variables) {
  size_t bytes = 0;
  for (const Output& variable : variables) bytes += variable.type().bytes();
  return FormatBytes(bytes);
}

std::string Totals(const TrainingRun& run, const std::vector<Layer>& layers) {
  const int64_t examples = ExamplesOf(run);
  int64_t all = 0, trainable = 0, multiply_adds = 0;
  for (const Output& parameter : ParametersOf(run)) {
    const int64_t elements = parameter.shape().elements();
    all += elements;
    if (parameter.node().attrs().Bool("trainable")) trainable += elements;
  }
  for (const Layer& layer : layers) {
    multiply_adds += layer.multiply_adds / examples;
  }
  return fmt::format(
      "parameters     {}: {} trainable, {} not\n"
      "multiply-adds  {} for one example, forward\n"
      "memory         arena {} (step of {} examples), variables {} (the "
      "model's {})",
      WithThousands(all), WithThousands(trainable),
      WithThousands(all - trainable), WithThousands(multiply_adds),
      FormatBytes(run.info().arena_bytes), examples,
      BytesOf(run.graph().Variables()), BytesOf(run.model_variables()));
}

}  // namespace

std::string SummaryOf(const TrainingRun& run) {
  const std::unique_ptr<Graph> forward = ForwardPass(run);
  const Rows rows(run, *forward);
  return fmt::format("{}\n{}", Table(rows.get(), ExamplesOf(run)),
                     Totals(run, rows.get()));
}

}  // namespace sluice
