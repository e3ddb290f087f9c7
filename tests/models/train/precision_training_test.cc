// Whole trainings in mixed precision: what they reach, and what their
// checkpoints hold.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "engine/threads.h"
#include "io/checkpoints/checkpoint.h"
#include "models/zoo/mnist_networks.h"
#include "tests/support/error_text.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// The mnist program's perceptron on the digits that it draws.
TrainerSpec DigitsSpec() {
  TrainerSpec spec;
  spec.name = "digits";
  spec.input = [](const RunContext& run) {
    Dataset digits = run.training() ? datasets::SyntheticDigits(10'000, 1)
                                    : datasets::SyntheticDigits(5'000, 2);
    if (run.training()) digits = digits.Shuffle(10'000, run.seed).Repeat();
    return digits.Map(ScaleTo01("image")).Batch(run.batch_size);
  };
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    const Output logits =
        MnistNetwork(scope, "mlp", in["image"], run.training());
    return ModelSpec{
        .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
        .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
  };
  return spec;
}

double AccuracyAfter(Precision precision) {
  RunContext run;
  run.batch_size = 100;
  run.steps = 600;
  TrainingOptions options;
  options.session.precision = precision;
  const TrainingResult result = Trainer(DigitsSpec(), run, options).Train();
  return *result.evaluation->Find("accuracy");
}

TEST_CASE("training reaches the same accuracy") {
  const double fp32 = AccuracyAfter(Precision::kFloat32);
  for (Precision precision : {Precision::kFloat16, Precision::kBFloat16}) {
    const double half = AccuracyAfter(precision);
    MESSAGE(NameOf(precision) << ": " << half << ", fp32: " << fp32);
    CHECK(std::abs(half - fp32) < 0.01);
  }
  CHECK(fp32 > 0.9);
}

Checkpoint TrainFor(const std::string& log_dir, Precision precision,
                    int64_t steps, const TrainerSpec& spec = ToySpec()) {
  RunContext run = ToyRun(0);
  run.steps = steps;
  TrainingOptions options;
  options.log_dir = log_dir;
  options.session.deterministic = true;
  options.session.precision = precision;
  Trainer(spec, run, options).Train();
  return CheckpointManager::Open(log_dir)
      .ValueOrThrow()
      .RestoreNewest()
      .ValueOrThrow()
      ->checkpoint;
}

std::map<std::string, Tensor> ByName(const Checkpoint& checkpoint) {
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& t : checkpoint.tensors) by_name[t.name] = t.tensor;
  return by_name;
}

TEST_CASE("training resumes bit for bit, the loss scale included") {
  TemporaryFolder folder;
  const auto whole =
      ByName(TrainFor(folder / "whole", Precision::kFloat16, 60));
  TrainFor(folder / "parts", Precision::kFloat16, 33);
  const auto parts =
      ByName(TrainFor(folder / "parts", Precision::kFloat16, 60));
  testing::CheckSameTensors(whole, parts);
  CHECK(whole.at("loss_scale/good_steps").At(0) +
            whole.at("loss_scale/skipped_steps").At(0) ==
        60);
}

TEST_CASE(
    "a checkpoint's state has the loss scale that training goes on with") {
  TrainerSpec steep = ToySpec();  // its gradients overflow at first
  steep.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    model.loss = model.loss * 1000;
    return model;
  };
  steep.optimizer = [](const RunContext&) { return optimizers::Sgd(1e-6); };
  TemporaryFolder folder;
  const std::string log = folder / "log";
  const auto scale_of = [](const Checkpoint& checkpoint) {
    return ByName(checkpoint).at("loss_scale/scale").At(0);
  };
  const Checkpoint first = TrainFor(log, Precision::kFloat16, 1, steep);
  CHECK(first.state.loss_scale == 16384);
  CHECK(first.state.loss_scale == scale_of(first));
  const Checkpoint resumed = TrainFor(log, Precision::kFloat16, 20, steep);
  CHECK(resumed.state.loss_scale < first.state.loss_scale);
  CHECK(resumed.state.loss_scale == scale_of(resumed));
  CHECK(ByName(resumed).at("loss_scale/skipped_steps").At(0) ==
        std::log2(32768 / resumed.state.loss_scale));
  // There is none without scaling.
  CHECK(TrainFor(log, Precision::kFloat32, 25, steep).state.loss_scale == 1);
}

TEST_CASE("a program's own loss scaling is kept") {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [](const RunContext&) {
    return optimizers::Sgd(0.01).WithLossScaling({.initial = 64});
  };
  TemporaryFolder folder;
  const Checkpoint one = TrainFor(folder / "log", Precision::kFloat16, 1, spec);
  CHECK(ByName(one).at("loss_scale/good_steps").At(0) == 1);
  CHECK(one.state.loss_scale == 64);
}

TEST_CASE("one and two threads give the same bits") {
  TemporaryFolder folder;
  SetComputeThreads(1);
  const auto one = ByName(TrainFor(folder / "one", Precision::kFloat16, 20));
  SetComputeThreads(2);
  const auto two = ByName(TrainFor(folder / "two", Precision::kFloat16, 20));
  SetComputeThreads(0);
  testing::CheckSameTensors(one, two);
}

TEST_CASE("a checkpoint fits at any precision") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  CHECK(!ByName(TrainFor(log, Precision::kFloat32, 5))
             .contains("loss_scale/scale"));
  const auto half = ByName(TrainFor(log, Precision::kFloat16, 10));
  CHECK(half.at("loss_scale/good_steps").At(0) == 5);
  CHECK(half.at("global_step").At(0) == 10);
  for (const auto& [name, value] : half) {
    CAPTURE(name);
    CHECK(value.dtype() != DType::kFloat16);
  }
  const auto bfloat = ByName(TrainFor(log, Precision::kBFloat16, 15));
  CHECK(bfloat.at("global_step").At(0) == 15);
  CHECK(!bfloat.contains("loss_scale/scale"));
}

TEST_CASE("a loss that never is finite ends training") {
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    model.loss = model.loss / 0.0;
    return model;
  };
  TrainingOptions options;
  options.session.precision = Precision::kFloat16;
  const std::string error =
      ErrorOf([&] { Trainer(spec, ToyRun(10), options).Train(); });
  // 2^15 is halved 15 times before.
  CHECK(Contains(error, "step 15: the loss is inf"));
}

TEST_CASE("a checkpoint of float16 training is a file of weights") {
  TemporaryFolder folder;
  TrainingOptions half = {.log_dir = folder / "half"};
  half.session.precision = Precision::kFloat16;
  Trainer(ToySpec(), ToyRun(1), half).Train();
  const auto saved = CheckpointManager::ForReading(folder / "half");
  TrainingOptions options;
  options.weights = saved.PathOf(10);
  const TrainingResult result = Trainer(ToySpec(), ToyRun(2), options).Train();
  CHECK(result.steps == 20);
}

}  // namespace
}  // namespace sluice
