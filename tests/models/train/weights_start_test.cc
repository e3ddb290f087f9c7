// Trainings that begin with weights.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "models/train/trainer.h"
#include "models/train/values/weights_file.h"
#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::ToyWithUnits;

TrainingResult Taught(const std::string& log_dir) {
  return Trainer(ToySpec(), ToyRun(10), {.log_dir = log_dir}).Train();
}

TEST_CASE("weights alone begin a training at step 0") {
  TemporaryFolder folder;
  const TrainingResult taught = Taught(folder / "teacher");
  const std::string file = taught.checkpoint;
  TrainingOptions options;
  options.weights = file;
  Trainer student(ToySpec(), ToyRun(0), options);
  const TrainingResult result = student.Train();
  CHECK(result.steps == 0);
  CHECK(*result.evaluation->Find("loss") == *taught.evaluation->Find("loss"));

  Trainer evaluator(ToySpec(), ToyRun(0), options);
  // To rounding: the evaluator knows that variables stay as they are.
  CHECK(*evaluator.Evaluate()->Find("loss") ==
        doctest::Approx(*taught.evaluation->Find("loss")).epsilon(1e-6));

  options.weights = file;
  CHECK(
      Contains(ErrorOf([&] {
                 Trainer(ToyWithUnits(4, "logits"), ToyRun(1), options).Train();
               }),
               "reshaped: 'fc1/weights'"));
  options.weights = folder / "nothing.safetensors";
  CHECK(
      Contains(ErrorOf([&] { Trainer(ToySpec(), ToyRun(1), options).Train(); }),
               "nothing.safetensors"));
}

TEST_CASE("weights that begin a training are evaluated before averages") {
  TemporaryFolder folder;
  const TrainingResult taught = Taught(folder / "teacher");
  const double wanted = *taught.evaluation->Find("loss");
  TrainerSpec spec = ToySpec();
  spec.optimizer = [](const RunContext&) {
    return optimizers::Momentum(0.1, 0.9).WithAverages(0.9);
  };
  TrainingOptions options = {.log_dir = folder / "log",
                             .weights = taught.checkpoint};
  Trainer student(spec, ToyRun(1), options);
  student.AddHook(std::make_unique<StopAtStep>(0));
  const TrainingResult result = student.Train();
  CHECK(result.steps == 0);
  CHECK(*result.evaluation->Find("loss") == wanted);
  // What was saved then, as a checkpoint and as weights.
  REQUIRE(result.checkpoint != "");
  for (const TrainingOptions& from :
       {TrainingOptions{.log_dir = folder / "log"},
        TrainingOptions{.weights = result.checkpoint}}) {
    Trainer evaluator(spec, ToyRun(1), from);
    CHECK(*evaluator.Evaluate()->Find("loss") ==
          doctest::Approx(wanted).epsilon(1e-6));
  }
}

// The toy, by a model function that reads the step in every mode.
TrainerSpec CountingSpec() {
  TrainerSpec spec = ToySpec();
  spec.model = [network = spec.model](Scope& scope, const Features& in,
                                      const RunContext& run) {
    ModelSpec model = network(scope, in, run);
    const Output step = Cast(GlobalStep(scope.graph()), DType::kFloat32);
    model.metrics.emplace_back("step", step);
    return model;
  };
  return spec;
}

// The toy's weights as PyTorch would have them.
std::vector<NamedTensor> AsPyTorch(const std::vector<NamedTensor>& ours) {
  const std::map<std::string, std::string> names = {
      {"fc1/weights", "fc1.weight"},
      {"fc1/bias", "fc1.bias"},
      {"norm/scale", "norm.weight"},
      {"norm/offset", "norm.bias"},
      {"norm/running_mean", "norm.running_mean"},
      {"norm/running_variance", "norm.running_var"},
      {"logits/weights", "logits.weight"},
      {"logits/bias", "logits.bias"}};
  std::vector<NamedTensor> theirs;
  for (const auto& [name, tensor] : ours) {
    const auto found = names.find(name);
    if (found == names.end()) continue;  // slots and the step
    Tensor value = tensor;
    const Shape& shape = tensor.shape();
    if (shape.rank() == 2) {
      value = Tensor(DType::kFloat32, {shape[1], shape[0]});
      for (int64_t i = 0; i < shape[0]; ++i) {
        for (int64_t j = 0; j < shape[1]; ++j) {
          value.data<float>()[j * shape[0] + i] =
              tensor.data<float>()[i * shape[1] + j];
        }
      }
    }
    theirs.push_back({found->second, value});
  }
  CHECK(theirs.size() == names.size());
  return theirs;
}

TEST_CASE("weights go into a model that reads the step, and begin at 0") {
  TemporaryFolder folder;
  const TrainingResult taught =
      Trainer(CountingSpec(), ToyRun(2), {.log_dir = folder / "teacher"})
          .Train();
  const double wanted = *taught.evaluation->Find("loss");
  CHECK(*taught.evaluation->Find("step") == 20);
  const std::string theirs = folder / "theirs.safetensors";
  REQUIRE(WriteSafetensors(
              theirs,
              AsPyTorch(ReadWeightTensors(taught.checkpoint).ValueOrThrow()))
              .ok());
  for (const std::string& file : {taught.checkpoint, theirs}) {
    CAPTURE(file);
    TrainingOptions options;
    options.weights = file;
    const TrainingResult begun =
        Trainer(CountingSpec(), ToyRun(0), options).Train();
    CHECK(begun.steps == 0);
    CHECK(*begun.evaluation->Find("loss") == wanted);
    CHECK(*begun.evaluation->Find("step") == 0);
    CHECK(Trainer(CountingSpec(), ToyRun(1), options).Train().steps == 10);
    const auto evaluation =
        Trainer(CountingSpec(), ToyRun(0), options).Evaluate();
    CHECK(*evaluation->Find("loss") == doctest::Approx(wanted).epsilon(1e-6));
    CHECK(*evaluation->Find("step") == 0);
  }
}

}  // namespace
}  // namespace sluice
