// What a training that is resumed must have in common with what was, and how
// epochs go on where batches were of another size.
#include "models/train/run/training_terms.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/toy_training.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::kPoints;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

TrainerSpec Accumulating(int64_t batches) {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [batches](const RunContext&) {
    return optimizers::Sgd(0.1).With(gradients::Accumulate(batches));
  };
  return spec;
}

struct Run {
  std::string error, notes;
  TrainingResult result;
};

Run Train(const TrainerSpec& spec, const RunContext& context,
          const std::string& log_dir, int64_t stop = 0) {
  Run run;
  testing::RecordingReporter notes;
  try {
    Trainer trainer(spec, context, {.log_dir = log_dir, .reporter = &notes});
    if (stop > 0) trainer.AddHook(std::make_unique<StopAtStep>(stop));
    run.result = trainer.Train();
  } catch (const Error& error) {
    run.error = error.what();
  }
  run.notes = notes.text();
  return run;
}

TEST_CASE("a training goes on with updates by as many batches") {
  for (const int64_t other : {1, 2, 6}) {
    CAPTURE(other);
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    REQUIRE(Train(Accumulating(3), ToyRun(3), log, 7).error == "");
    const std::string error = Train(Accumulating(other), ToyRun(3), log).error;
    CHECK(Contains(error, "an update after every 3 batches"));
    CHECK(Contains(error, "--accumulate 3"));
    CHECK(Train(Accumulating(3), ToyRun(3), log).error == "");
  }
  // Nor does one that had none go on with some.
  const TemporaryFolder folder;
  REQUIRE(Train(Accumulating(1), ToyRun(3), folder / "log", 7).error == "");
  CHECK(Contains(Train(Accumulating(3), ToyRun(3), folder / "log").error,
                 "--accumulate 1"));
}

TEST_CASE("batches that will be in no update are told") {
  CHECK(Contains(Train(Accumulating(4), ToyRun(1), "").notes,
                 "the last 2 of 10 batches will be in no update"));
  for (const int64_t whole : {1, 5}) {
    CHECK_FALSE(Contains(Train(Accumulating(whole), ToyRun(1), "").notes,
                         "in no update"));
  }
}

RunContext WithBatches(int64_t size, double epochs) {
  RunContext run = ToyRun(epochs);
  run.batch_size = size;
  return run;
}

TEST_CASE("a training goes on with batches of the same size") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(Train(ToySpec(), WithBatches(25, 1), log).result.steps == 10);
  // Which would be two epochs done of two, after one that was seen.
  const std::string error = Train(ToySpec(), WithBatches(50, 2), log).error;
  CHECK(Contains(error, "batches of 25 examples, now they are of 50"));
  CHECK(Contains(error, "--batch-size 25"));
  CHECK(Train(ToySpec(), WithBatches(25, 2), log).result.steps == 20);
}

// By one worker with 25 examples in each step, then two, one and two.
TEST_CASE("epochs go on by examples where batches go by the workers") {
  const TemporaryFolder folder;
  TrainerSpec spec = testing::PlainSpec();
  spec.optimizer = [](const RunContext& run) {
    return optimizers::Sgd(Schedule("4:0.01->0.05", run));
  };
  int64_t steps = 0, examples = 0;
  std::vector<int64_t> evaluated;  // after how many examples
  // What is measured in each step.
  class Look : public Hook {
   public:
    Look(int64_t* steps, int64_t* examples, std::vector<int64_t>* evaluated)
        : steps_(steps), examples_(examples), evaluated_(evaluated) {}
    bool Measures(const TrainingRun&, int64_t) const override { return true; }
    void AfterStep(TrainingRun& run) override {
      const double before = static_cast<double>(*examples_) / kPoints;
      CHECK(run.measurement().learning_rate ==
            doctest::Approx(0.01 + 0.04 * before / 4).epsilon(1e-5));
      ++*steps_;
      *examples_ += run.batch_size();
      CHECK(run.step() == *steps_);
      CHECK(run.epoch() ==
            doctest::Approx(static_cast<double>(*examples_) / kPoints));
    }
    void AfterEvaluation(TrainingRun&, const Evaluation& evaluation) override {
      if (evaluation.due) evaluated_->push_back(*examples_);
    }

   private:
    int64_t* const steps_;
    int64_t* const examples_;
    std::vector<int64_t>* const evaluated_;
  };
  const auto train = [&](int64_t batch, int64_t stop) {
    Trainer trainer(spec, WithBatches(batch, 4),
                    {.log_dir = folder / "log", .batch_by_workers = true});
    trainer.AddHook(std::make_unique<Look>(&steps, &examples, &evaluated));
    if (stop > 0) trainer.AddHook(std::make_unique<StopAtStep>(stop));
    return trainer.Train();
  };
  train(25, 16);  // 400 examples
  train(50, 20);  // 600
  train(25, 22);  // 650
  // 350 are left of 1000, which are 7 batches of 50.
  const TrainingResult result = train(50, 0);
  CHECK(result.steps == 29);
  CHECK(examples == 4 * kPoints);
  CHECK(evaluated == std::vector<int64_t>{250, 500, 750, 1000});
  // Another that does not count so cannot go on.
  CHECK(Contains(Train(spec, WithBatches(50, 5), folder / "log").error,
                 "batches of several sizes"));
  CHECK(train(25, 0).steps == 29);  // nothing is left
}

TEST_CASE("what an older checkpoint does not say is taken for the same") {
  Checkpoint checkpoint;
  checkpoint.state.step = 5;
  const TrainingTerms terms = {.accumulates = 3, .batch_size = 10};
  CHECK(Contains(ErrorOf([&] { terms.Check(checkpoint, "it"); }),
                 "--accumulate 1"));
  checkpoint.tensors = {{"w/gradient_sum", Tensor::Scalar<float>(0)}};
  terms.Check(checkpoint, "it");
  CHECK(terms.ExamplesOf(checkpoint.state) == 50);
}

TEST_CASE("what an older checkpoint says badly is a broken one's error") {
  const TrainingTerms terms = {
      .virtual_workers = 12, .accumulates = 12, .batch_size = 12};
  Checkpoint whole;
  whole.state.step = 1;
  terms.Save(12, &whole.state);
  terms.Check(whole, "it");
  for (const auto& [key, value] : whole.state.extra) {
    for (const std::string& bad :
         {value + "abc", value + " ", " " + value, "+" + value, std::string(),
          "99999999999999999999" + value}) {
      Checkpoint broken = whole;
      broken.state.extra[key] = bad;
      CAPTURE(bad);
      const std::string error = ErrorOf([&] { terms.Check(broken, "it"); });
      CHECK(error == "'it': metadata 'extra." + key + "' is no number");
      // Also where these are not compared.
      broken.state.step = 0;
      CHECK(ErrorOf([&] { terms.Check(broken, "it"); }) == error);
    }
  }
}

}  // namespace
}  // namespace sluice
