#include "models/optim/loss_scale.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "graph/ops/collective.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/ops/state.h"

namespace sluice {

LossScale::LossScale(Graph& graph, const LossScaleOptions& options)
    : options_(options) {
  if (!(options.initial >= kLeastLossScale) ||
      !(options.initial <= kMostLossScale) || options.window < 1) {
    throw Error(Code::kInvalidArgument,
                fmt::format("loss scaling: wanted a scale from 1 to 2^126 and "
                            "a window of at least 1 step, got {} and {}",
                            options.initial, options.window));
  }
  if (const Node* there = graph.Find("loss_scale/scale")) {
    throw Error(Code::kInvalidArgument,
                fmt::format("loss scaling: there is '{}' already; a graph has "
                            "one loss scale, of one training ({})",
                            there->name(), there->location()));
  }
  NameScope names(Scope(graph, "loss_scale"));
  DeviceScope anywhere(graph, "");
  const auto variable = [&](const char* name, const Initializer& first) {
    return graph.Variable(name, first, {.trainable = false});
  };
  scale_ = variable("scale", Filled(options.initial, {}));
  good_steps_ = variable("good_steps", Zeros({}, DType::kInt64));
  skipped_ = variable("skipped_steps", Zeros({}, DType::kInt64));
}

Output LossScale::Seed(const Output& loss) const {
  return Cast(scale_, loss.dtype());
}

Output LossScale::Unscale(std::vector<GradientAndVariable>& pairs) const {
  Graph& graph = scale_.graph();
  NameScope names(graph, "unscale");
  // What Reciprocal yields is float32, and where the rest is float16 so is a
  // product with one such number (passes::MixPrecision), even if a hook puts it
  // through products of its own: gradients may be too small for half without
  // the scale.
  const Output inverse = Reciprocal(scale_);
  std::map<std::pair<std::string, DType>, std::vector<Output>> groups;
  bool parts = false;
  for (GradientAndVariable& pair : pairs) {
    const std::string& device = pair.variable.node().device();
    DeviceScope there(graph, device);
    pair.gradient = pair.gradient * Cast(inverse, pair.gradient.dtype());
    groups[{device, pair.gradient.dtype()}].push_back(pair.gradient);
    parts |= pair.variable.node().part_of() > 0;
  }
  Output finite;
  for (const auto& [group, gradients] : groups) {
    DeviceScope there(graph, group.first);
    const Output here = AllFinite(gradients);
    finite = finite.valid() ? LogicalAnd(finite, here) : here;
  }
  if (!parts) return finite;
  // Of what each worker has for itself all must know.
  const Output bad = Cast(LogicalNot(finite), DType::kFloat32);
  return Equal(AllReduce(bad, Reduction::kSum, "not_finite"), 0);
}

Operation LossScale::Update(const Output& finite) const {
  Graph& graph = scale_.graph();
  NameScope names(graph, "loss_scale");
  const Output good = Select(finite, good_steps_ + 1, 0);
  const Output grows = GreaterEqual(good, options_.window);
  const Output larger = Select(grows, scale_ * 2, scale_);
  const Output smaller = Maximum(scale_ * 0.5, kLeastLossScale);
  const Output next = Select(finite, larger, smaller);
  return Group(graph,
               {Assign(scale_, Minimum(next, kMostLossScale)),
                Assign(good_steps_, Select(grows, 0, good)),
                AssignAdd(skipped_, Cast(LogicalNot(finite), DType::kInt64))},
               "update");
}

}  // namespace sluice
