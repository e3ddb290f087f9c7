// A model that uses what it writes in the same step: gradients are of the moved
// centre.
#ifndef SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_
#define SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_

#include "tests/support/toy_training.h"

namespace sluice::testing {

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

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CENTRED_MODEL_H_
