// A small classification task for tests of training: three classes of points
// around corners of a cube, and a network with one hidden layer.
#ifndef SLUICE_TESTS_SUPPORT_TOY_TRAINING_H_
#define SLUICE_TESTS_SUPPORT_TOY_TRAINING_H_

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/nn/metrics.h"
#include "models/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

inline constexpr int64_t kPoints = 250;

// x float32 [3], label int64.
inline Dataset Points(const RunContext& run) {
  Tensor x(DType::kFloat32, {kPoints, 3});
  Tensor label(DType::kInt64, {kPoints});
  uint32_t state = run.training() ? 1 : 2;
  for (int64_t i = 0; i < kPoints; ++i) {
    label.data<int64_t>()[i] = i % 3;
    for (int64_t j = 0; j < 3; ++j) {
      state = state * 1664525u + 1013904223u;
      x.data<float>()[3 * i + j] =
          (i % 3 == j ? 1.0f : 0.0f) +
          1.5f * (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
    }
  }
  Dataset points = datasets::FromTensors({{"x", x}, {"label", label}});
  if (run.training()) points = points.Shuffle(kPoints, run.seed).Repeat();
  return points.Batch(run.batch_size).Prefetch(2);
}

// Shared out by the program itself, as no input of several workers may be.
inline Dataset PointsOfRank(const RunContext& run) {
  return datasets::FromTensors({{"x", Tensor(DType::kFloat32, {20, 3})},
                                {"label", Tensor::Zeros(DType::kInt64, {20})}})
      .Shard(run.rank, run.size)
      .Batch(run.batch_size);
}

// An input that ends, in training too: those of evaluations.
inline Dataset PointsOnce(const RunContext& run) {
  RunContext once = run;
  once.mode = Mode::kEval;
  return Points(once);
}

inline ModelSpec Network(Scope& scope, const Features& in,
                         const RunContext& run) {
  Output x = layers::Dense(scope / "fc1", in["x"], {.units = 16});
  x = layers::BatchNorm(scope / "norm", x,
                        {.training = run.training(), .activation = Relu});
  x = layers::Dropout(scope / "dropout", x,
                      {.rate = 0.2, .training = run.training()});
  const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}},
          .exports = {{"probabilities", Softmax(logits)}}};
}

inline TrainerSpec ToySpec() {
  return {.name = "toy",
          .input = Points,
          .model = Network,
          .optimizer = [](const RunContext& run) {
            return optimizers::Momentum(
                Schedule("2:0.01->0.1,10:0.1=>0.01", run), 0.9);
          }};
}

// Without a layer between: the last one's name, and units of the first.
inline TrainerSpec ToyWithUnits(int64_t units, const std::string& name) {
  TrainerSpec spec = ToySpec();
  spec.model = [=](Scope& scope, const Features& in, const RunContext&) {
    const Output hidden =
        layers::Dense(scope / "fc1", in["x"], {.units = units});
    const Output logits =
        layers::Dense(scope / name, hidden, {.units = 3, .use_bias = false});
    return ModelSpec{.loss =
                         Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
  };
  return spec;
}

// With a loss that is no number in step 14: from there on it has the logarithm
// of a negative number, 'trap/log'.
inline TrainerSpec Trapped(TrainerSpec spec) {
  spec.model = [network = spec.model](Scope& scope, const Features& in,
                                      const RunContext& run) {
    ModelSpec model = network(scope, in, run);
    if (!run.training()) return model;
    const Output step = Cast(GlobalStep(scope.graph()), DType::kFloat32);
    NameScope names(scope.graph(), "trap");
    model.loss = model.loss + 0 * Log(12.5 - step);
    return model;
  };
  return spec;
}
inline TrainerSpec TrappedSpec() {
  return Trapped(ToySpec());
}

// Ten steps an epoch.
inline RunContext ToyRun(double epochs) {
  RunContext run;
  run.batch_size = 25;
  run.epochs = epochs;
  run.seed = 7;
  return run;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TOY_TRAINING_H_
