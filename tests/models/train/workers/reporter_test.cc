// What the trainer tells its reporter and nobody else, and that a stop token
// ends it.
#include "models/train/workers/reporter.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/stderr_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::RecordingReporter;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

TEST_CASE("what is told goes to the reporter and nowhere else") {
  TemporaryFolder folder;
  RecordingReporter notes;
  TrainingOptions options = {.log_dir = folder / "log"};
  const std::string printed = testing::StderrOf([&] {
    Trainer(ToySpec(), ToyRun(1), options).Train();
    Trainer(ToySpec(), ToyRun(2), options).Train();  // resumes
    options.reporter = &notes;
    Trainer(ToySpec(), ToyRun(3), options).Train();
    Trainer(ToySpec(), ToyRun(3), options).Evaluate();
  });
  CHECK(printed.empty());
  const std::vector<std::string> lines = notes.lines();
  REQUIRE(lines.size() == 2);
  CHECK(Contains(lines[0], "resuming from step 20 of "));
  CHECK(Contains(lines[1], "using "));
}

// Ends what asks it more often than `times`.
class StopAfter : public StopToken {
 public:
  explicit StopAfter(int times) : times_(times) {}
  std::string Reason() const override {
    return asked_++ < times_ ? "" : "enough";
  }

 private:
  int times_;
  mutable int asked_ = 0;
};

std::vector<NamedTensor> Newest(const std::string& log_dir) {
  return CheckpointManager::Open(log_dir)
      .ValueOrThrow()
      .RestoreNewest()
      .ValueOrThrow()
      ->checkpoint.tensors;
}

TEST_CASE("a stop token ends training, which is saved and resumes") {
  TemporaryFolder folder;
  Trainer(ToySpec(), ToyRun(2), {.log_dir = folder / "whole"}).Train();
  const StopAfter stop(8);  // asked once before each step
  TrainingOptions options = {.log_dir = folder / "parts"};
  options.stop = &stop;
  const TrainingResult stopped = Trainer(ToySpec(), ToyRun(2), options).Train();
  CHECK(stopped.steps == 8);
  CHECK(stopped.stop_reason == "enough");
  CHECK(!stopped.evaluation.has_value());
  CHECK(stopped.checkpoint == folder / "parts/checkpoint-8.safetensors");

  options.stop = nullptr;
  const TrainingResult resumed = Trainer(ToySpec(), ToyRun(2), options).Train();
  CHECK(resumed.steps == 20);
  const std::vector<NamedTensor> whole = Newest(folder / "whole");
  const std::vector<NamedTensor> parts = Newest(folder / "parts");
  REQUIRE(parts.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(whole[i].name);
    CHECK(parts[i].name == whole[i].name);
    CHECK(parts[i].tensor.BitEqual(whole[i].tensor));
  }
}

TEST_CASE("a stop token cuts evaluation and prediction short") {
  TemporaryFolder folder;
  TrainingOptions options = {.log_dir = folder / "log"};
  Trainer(ToySpec(), ToyRun(1), options).Train();
  const StopAfter before_all(0), after_two(2);
  options.stop = &before_all;
  CHECK(!Trainer(ToySpec(), ToyRun(1), options).Evaluate().has_value());
  options.stop = &after_two;
  int batches = 0;
  Trainer(ToySpec(), ToyRun(1), options)
      .Predict([&](const Example&, const Example&) { return ++batches > 0; });
  CHECK(batches == 2);
}

TEST_CASE("an evaluation tells how far it is, and shows its batches") {
  class Progress : public RecordingReporter {
   public:
    void Evaluating(int64_t done, int64_t all) override {
      steps.emplace_back(done, all);
    }
    std::vector<std::pair<int64_t, int64_t>> steps;
  };
  TemporaryFolder folder;
  TrainingOptions options = {.log_dir = folder / "log"};
  Progress progress;
  options.reporter = &progress;
  RunContext run = ToyRun(1);
  run.batch_size = 120;  // of 250
  Trainer trainer(ToySpec(), run, options);
  trainer.Train();
  const std::vector<std::pair<int64_t, int64_t>> wanted = {
      {120, 250}, {240, 250}, {250, 250}};
  CHECK(progress.steps == wanted);

  // The exports are those of a prediction, the figures those without a look.
  std::vector<Tensor> predicted;
  trainer.Predict([&](const Example&, const Example& exports) {
    predicted.push_back(exports["probabilities"].Clone());
    return true;
  });
  size_t seen = 0;
  int64_t right = 0;
  const auto evaluation = trainer.Evaluate([&](const Example& batch,
                                               const Example& exports) {
    const Tensor& probabilities = exports["probabilities"];
    CHECK(probabilities.BitEqual(predicted.at(seen++)));
    for (int64_t row = 0; row < probabilities.shape()[0]; ++row) {
      int64_t best = 0;
      for (int64_t i = 1; i < 3; ++i) {
        if (probabilities.At(3 * row + i) > probabilities.At(3 * row + best)) {
          best = i;
        }
      }
      right += best == batch["label"].IntAt(row) ? 1 : 0;
    }
    return true;
  });
  CHECK(seen == 3);
  CHECK(*evaluation->Find("accuracy") ==
        doctest::Approx(static_cast<double>(right) / 250));
  CHECK(evaluation->values == trainer.Evaluate()->values);
  CHECK_FALSE(
      trainer.Evaluate([](const Example&, const Example&) { return false; })
          .has_value());
}

}  // namespace
}  // namespace sluice
