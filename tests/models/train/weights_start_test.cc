// Trainings that begin with weights.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "models/train/hooks/hooks.h"
#include "models/train/trainer.h"
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

}  // namespace
}  // namespace sluice
