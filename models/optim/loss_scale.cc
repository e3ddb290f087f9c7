#include "models/optim/loss_scale.h"

#include <fmt/format.h>

#include <limits>
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
      !(options.initial <= std::numeric_limits<float>::max()) ||
      options.window < 1) {
    throw Error(Code::kInvalidArgument,
                fmt::format("loss scaling: wanted a finite scale of at least "
                            "1 and a window of at least 1 step, got {} and {}",
                            options.initial, options.window));
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
  // What Reciprocal yields is float32, and so the product is (HalfRule).
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
  const Output doubled = scale_ * 2;
  const Output larger =
      Select(LogicalAnd(grows, IsFinite(doubled)), doubled, scale_);
  const Output smaller = Maximum(scale_ * 0.5, kLeastLossScale);
  return Group(graph,
               {Assign(scale_, Select(finite, larger, smaller)),
                Assign(good_steps_, Select(grows, 0, good)),
                AssignAdd(skipped_, Cast(LogicalNot(finite), DType::kInt64))},
               "update");
}

}  // namespace sluice
