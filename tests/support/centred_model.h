// Models that use what they write in the same step.
#ifndef SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_
#define SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_

#include "tests/support/toy_training.h"

namespace sluice::testing {

// Gradients are of the moved centre.
inline ModelSpec Centred(Scope& scope, const Features& in, const RunContext&) {
  Graph& graph = scope.graph();
  const Output centre = graph.Variable(
      "centre", Filled(0, {in["x"].shape()[1]}), {.trainable = false});
  const Output moved =
      Assign(centre, 0.9f * centre + 0.1f * Mean(in["x"], {0}));
  graph.AddUpdate(moved);
  const Output logits = layers::Dense(
      scope / "logits", in["x"] - StopGradient(moved), {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
}

inline TrainerSpec CentredSpec() {
  TrainerSpec spec = ToySpec();
  spec.model = Centred;
  return spec;
}

// Writes two statistics by nodes that are no update: 'mean', on the way to that
// of 'spread', and 'centre', on the way to the loss.
inline ModelSpec Chained(Scope& scope, const Features& in,
                         const RunContext& run) {
  Graph& graph = scope.graph();
  const Output x = in["x"];
  const auto statistic = [&](const char* name) {
    return graph.Variable(name, Filled(0, {x.shape()[1]}),
                          {.trainable = false});
  };
  const auto moved = [](const Output& average, const Output& value) {
    return Assign(average, 0.9f * average + 0.1f * Mean(value, {0}));
  };
  const Output mean = statistic("mean"), spread = statistic("spread");
  Output centre = statistic("centre");
  if (run.training()) {
    graph.AddUpdate(moved(spread, Abs(x - moved(mean, x))));
    centre = StopGradient(moved(centre, x));
  }
  const Output logits =
      layers::Dense(scope / "logits", x - centre, {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

inline TrainerSpec ChainedSpec() {
  TrainerSpec spec = ToySpec();
  spec.model = Chained;
  return spec;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_
