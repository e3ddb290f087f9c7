// Batch normalisation with constant statistics behind a linear op with constant
// weights: gamma (w x + b - mean) / std + beta is linear in x too, with other
// weights and another bias.
#include <cmath>
#include <unordered_map>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

bool ScalesChannels(const Node& node) {
  const auto scales = node.op().scales_channels;
  return scales != nullptr && scales(node);
}

// normal = BatchNormInference(linear [+ bias]), all but x constant and nothing
// else using what lies between.
struct Match {
  Node* normal = nullptr;
  Node* bias = nullptr;  // BiasAdd, or null
  Node* linear = nullptr;
};

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph) {
    for (const auto& node : graph.nodes()) {
      for (const Output& input : node->inputs()) ++uses_[&input.node()];
      for (const Node* control : node->control_inputs()) ++uses_[control];
    }
  }

  void Run() {
    std::vector<Match> matches;
    for (const auto& node : graph_.nodes()) {
      const Match match = MatchAt(*node);
      if (match.linear != nullptr) matches.push_back(match);
    }
    for (const Match& match : matches) {
      DispatchFloatDouble(match.normal->output_type(0).dtype,
                          [&]<typename T>(TypeTag<T>) { Fold<T>(match); });
    }
  }

 private:
  Match MatchAt(Node& node) const {
    if (!node.Is("BatchNormInference") ||
        !kFloatDouble.Contains(node.output_type(0).dtype)) {
      return {};
    }
    for (int i = 1; i < node.num_inputs(); ++i) {
      if (ConstantValue(node.input(i)) == nullptr) return {};
    }
    Match match{&node, nullptr, &node.input(0).node()};
    if (!Alone(*match.linear)) return {};
    if (match.linear->Is("BiasAdd")) {
      match.bias = match.linear;
      if (ConstantValue(match.bias->input(1)) == nullptr) return {};
      match.linear = &match.bias->input(0).node();
      if (!Alone(*match.linear)) return {};
    }
    const bool fits = ScalesChannels(*match.linear) &&
                      ConstantValue(match.linear->input(1)) != nullptr;
    return fits ? match : Match();
  }

  // Used once, by what follows.
  bool Alone(const Node& node) const { return uses_.at(&node) == 1; }

  // Adds the constant beside `user`.
  Output Constant(Tensor value, const std::string& what, const Node& user) {
    const std::string name = graph_.UniqueName(user.name() + "/" + what);
    const TensorType type{value.dtype(), value.shape()};
    Node& node = graph_.AddRaw(name, name, OpTable::Global().Get("Const"),
                               {{"value", std::move(value)}}, {}, {type});
    node.set_device(user.device());
    node.set_location(user.location());
    return node.output(0);
  }

  template <typename T>
  void Fold(const Match& match) {
    const auto vector = [&](int input) {
      return ConstantValue(match.normal->input(input))->data<T>();
    };
    const T *scale = vector(1), *offset = vector(2);
    const T *mean = vector(3), *variance = vector(4);
    const Tensor& old_weights = *ConstantValue(match.linear->input(1));
    const int64_t channels = match.normal->input(1).shape()[0];
    const double epsilon = match.normal->attrs().Float("epsilon");
    const T* old_bias = match.bias == nullptr
                            ? nullptr
                            : ConstantValue(match.bias->input(1))->data<T>();

    Tensor weights(old_weights.dtype(), old_weights.shape());
    Tensor bias(old_weights.dtype(), {channels});
    std::vector<double> factor(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) {
      factor[c] = scale[c] / std::sqrt(variance[c] + epsilon);
      const double before = old_bias == nullptr ? 0 : old_bias[c];
      bias.data<T>()[c] =
          static_cast<T>((before - mean[c]) * factor[c] + offset[c]);
    }
    for (int64_t i = 0; i < weights.elements(); i += channels) {
      for (int64_t c = 0; c < channels; ++c) {
        weights.data<T>()[i + c] =
            static_cast<T>(old_weights.data<T>()[i + c] * factor[c]);
      }
    }
    match.linear->set_input(
        1, Constant(std::move(weights), "weights", *match.linear));
    match.normal->Become(OpTable::Global().Get("BiasAdd"), {},
                         {match.linear->output(0),
                          Constant(std::move(bias), "bias", *match.normal)});
  }

  Graph& graph_;
  std::unordered_map<const Node*, int> uses_;
};

}  // namespace

void FoldBatchNorm(Graph& graph) {
  Folder(graph).Run();
}

}  // namespace sluice::passes
