#include "graph/passes/fused_cluster.h"

#include <algorithm>

namespace sluice::passes {
namespace {

std::vector<double> ParamsOf(const Node& node) {
  std::vector<double> params;
  for (const char* name : {"alpha", "lo", "hi"}) {
    if (node.attrs().Has(name)) {
      params.push_back(node.attrs().NumberOf(name).real());
    }
  }
  return params;
}

int AddInput(const Output& input, std::vector<Output>* inputs) {
  auto it = std::find(inputs->begin(), inputs->end(), input);
  if (it == inputs->end()) it = inputs->insert(it, input);
  return static_cast<int>(it - inputs->begin());
}

// While a cluster grows, its inputs are numbered from 0 and step s is ~s.
int Numbered(int value, int inputs) {
  return value >= 0 ? value : inputs + ~value;
}
void Number(FusedCluster* cluster) {
  for (FusedStep& step : cluster->steps) {
    for (int& v : step.operands) {
      v = Numbered(v, static_cast<int>(cluster->inputs.size()));
    }
  }
}

// Adds a node's steps; the value is the last one's. False if it cannot be, as
// where choices lie `within` each other deeper than a program is long: each
// takes a step of it, and recursion follows them.
bool AddNode(Node& node, const NodeMerger& merger, DType dtype, size_t within,
             FusedCluster* cluster) {
  if (within == kMostProgramSteps) return false;
  const std::string name(node.op().ScalarFunction(node.attrs()));
  const FusedFunction* function = FindFusedFunction(name);
  if (function == nullptr) return false;
  const bool joins = node.op().inputs[0].variadic;
  if (joins ? node.num_inputs() < 2 : node.num_inputs() != function->arity) {
    return false;
  }
  std::vector<int> operands;
  for (const Output& input : node.inputs()) {
    if (input.dtype() == dtype) {
      operands.push_back(AddInput(input, &cluster->inputs));
      continue;
    }
    if (static_cast<int>(operands.size()) >= function->bools) return false;
    // A choice joins if it is made for this node alone, on the same device.
    Node& choice = input.node();
    if (input.dtype() != DType::kBool || merger.uses(choice).size() != 1 ||
        choice.device() != node.device() ||
        !AddNode(choice, merger, dtype, within + 1, cluster)) {
      return false;
    }
    operands.push_back(~static_cast<int>(cluster->steps.size() - 1));
  }
  if (joins) {
    int joined = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) {
      cluster->steps.push_back({name, {joined, operands[i]}, {}});
      joined = ~static_cast<int>(cluster->steps.size() - 1);
    }
  } else {
    cluster->steps.push_back({name, std::move(operands), ParamsOf(node)});
  }
  cluster->members.push_back(&node);
  return true;
}

}  // namespace

bool FusedCluster::ReadsWhole(const Output& input) const {
  return input.shape().elements() == shape().elements();
}

FusedProgram FusedCluster::Program() const {
  return {static_cast<int>(inputs.size()), steps};
}

NodeMerger::Merged FusedCluster::AsNode() const {
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get("Fused");
  merged.inputs = inputs;
  std::vector<int64_t> values;
  for (int step : outputs) {
    values.push_back(static_cast<int64_t>(inputs.size()) + step);
  }
  merged.types.assign(values.size(), root->output_type(0));
  merged.attrs = {{"program", Program().ToString()},
                  {"outputs", values},
                  {"shape", shape()}};
  for (int i = 0; i < root->num_outputs(); ++i) {
    merged.outputs[root->output(i)] = i;
  }
  return merged;
}

std::optional<FusedCluster> ClusterOf(Node& node, const NodeMerger& merger) {
  if (node.num_outputs() == 0 || !IsFloating(node.output_type(0).dtype)) {
    return std::nullopt;
  }
  FusedCluster cluster;
  cluster.root = &node;
  if (node.Is("Fused")) {
    FusedProgram program =
        ParseFusedProgram(node.attrs().String("program"), node.num_inputs())
            .ValueOrThrow();
    cluster.members = {&node};
    cluster.inputs = node.inputs();
    cluster.steps = std::move(program.steps);
    for (int64_t value : node.attrs().Ints("outputs")) {
      cluster.outputs.push_back(static_cast<int>(value) - program.inputs);
    }
    return cluster;
  }
  if (!AddNode(node, merger, cluster.dtype(), /*within=*/0, &cluster) ||
      cluster.inputs.size() > kMostProgramInputs ||  // a long AddN alone
      cluster.steps.size() > kMostProgramSteps) {    // one of many choices
    return std::nullopt;
  }
  Number(&cluster);
  cluster.outputs = {static_cast<int>(cluster.steps.size()) - 1};
  return cluster;
}

FusedCluster Joined(const FusedCluster& producer, const FusedCluster& consumer,
                    const std::vector<int>& kept) {
  FusedCluster joined;
  joined.root = consumer.root;
  joined.members = producer.members;
  joined.members.insert(joined.members.end(), consumer.members.begin(),
                        consumer.members.end());
  joined.inputs = producer.inputs;
  auto add = [&](const FusedCluster& from, const std::vector<int>& values) {
    const int inputs = static_cast<int>(from.inputs.size());
    const int first = static_cast<int>(joined.steps.size());
    for (FusedStep step : from.steps) {
      for (int& v : step.operands) {
        v = v < inputs ? values[v] : ~(first + v - inputs);
      }
      joined.steps.push_back(std::move(step));
    }
  };
  std::vector<int> values;
  for (size_t i = 0; i < producer.inputs.size(); ++i) {
    values.push_back(static_cast<int>(i));
  }
  add(producer, values);
  values.clear();
  for (const Output& input : consumer.inputs) {
    values.push_back(&input.node() == producer.root
                         ? ~producer.outputs[input.index()]
                         : AddInput(input, &joined.inputs));
  }
  add(consumer, values);
  Number(&joined);
  const int first = static_cast<int>(producer.steps.size());
  for (int step : consumer.outputs) joined.outputs.push_back(first + step);
  for (int output : kept) joined.outputs.push_back(producer.outputs[output]);
  return joined;
}

}  // namespace sluice::passes
