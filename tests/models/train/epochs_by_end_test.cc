// Epochs that end where the input does, since nobody knows how large it is:
// against the same training on an input that says it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "models/train/rate_finder.h"
#include "models/train/trainer.h"
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

// The points, numbered, shuffled; kept of these are `kept`; with noise. Where
// it is `counted` it says how many these are, and repeats.
TrainerSpec Spec(int64_t kept, bool counted) {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [](const RunContext& run) {
    return optimizers::Momentum(Schedule("0.05", run), 0.9);
  };
  spec.input = [kept, counted](const RunContext& run) {
    Dataset points = datasets::FromFunction(kPoints, [](int64_t i) {
      Tensor x(DType::kFloat32, {3});
      for (int64_t j = 0; j < 3; ++j) {
        x.data<float>()[j] = (i % 3 == j ? 1.0f : 0.0f) +
                             0.01f * static_cast<float>((i * (j + 3)) % 60);
      }
      return Example{{"x", x},
                     {"label", Tensor::Scalar<int64_t>(i % 3)},
                     {"number", Tensor::Scalar(i)}};
    });
    if (!run.training()) {
      return points
          .Map([](Example& e) {
            e = {{"x", e["x"]}, {"label", e["label"]}};
          })
          .Batch(run.batch_size);
    }
    points = points.Shuffle(50, run.seed)
                 .Filter([kept](const Example& e) {
                   return e["number"].IntAt(0) < kept;
                 })
                 .MapRandom(run.seed, [](Example& e, uint64_t key) {
                   Tensor x = e["x"].Clone();
                   x.data<float>()[0] += 0.001f * static_cast<float>(key % 100);
                   e = {{"x", x}, {"label", e["label"]}};
                 });
    if (counted) points = points.ExpectSize(kept).Repeat();
    return points.Batch(run.batch_size).Prefetch(2);
  };
  return spec;
}

class Evaluations : public Hook {
 public:
  explicit Evaluations(std::vector<int64_t>* steps) : steps_(steps) {}
  void AfterEvaluation(TrainingRun& run,
                       const Evaluation& evaluation) override {
    CHECK(evaluation.step == run.step());
    steps_->push_back(evaluation.step);
  }

 private:
  std::vector<int64_t>* steps_;
};

// Ends the process, as far as a test can.
class Crash : public Hook {
 public:
  explicit Crash(int64_t step) : step_(step) {}
  void AfterStep(TrainingRun& run) override {
    if (run.step() == step_) throw Error(Code::kInternal, "crash");
  }

 private:
  int64_t step_;
};

// The state that a folder's newest checkpoint has.
Checkpoint Newest(const std::string& folder) {
  const auto saved = CheckpointManager::ForReading(folder);
  const std::vector<int64_t> steps = saved.Steps().ValueOrThrow();
  REQUIRE_FALSE(steps.empty());
  return ReadCheckpoint(saved.PathOf(steps.back())).ValueOrThrow();
}

bool SameTensors(const Checkpoint& a, const Checkpoint& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].name != b.tensors[i].name) return false;
    if (!a.tensors[i].tensor.BitEqual(b.tensors[i].tensor)) return false;
  }
  return true;
}

TrainingOptions Into(const std::string& folder, double evaluate_every = 1) {
  TrainingOptions options;
  options.log_dir = folder;
  options.evaluate_every = evaluate_every;
  options.session.deterministic = true;
  options.save_every = {.steps = 0, .seconds = 0};
  return options;
}

TEST_CASE("each end of the input ends an epoch") {
  TemporaryFolder folder;
  for (const double every : {1.0, 2.0, 0.0, 0.5}) {
    CAPTURE(every);
    const std::string text = std::to_string(every);
    std::vector<int64_t> evaluations, counted_evaluations;
    Trainer counted(Spec(200, true), ToyRun(3),
                    Into(folder / ("counted" + text), every));
    counted.AddHook(std::make_unique<Evaluations>(&counted_evaluations));
    CHECK(counted.Train().steps == 24);
    Trainer trainer(Spec(200, false), ToyRun(3),
                    Into(folder / ("ends" + text), every));
    trainer.AddHook(std::make_unique<Evaluations>(&evaluations));
    const TrainingResult result = trainer.Train();
    CHECK(result.steps == 24);
    CHECK(result.stop_reason.empty());
    REQUIRE(result.evaluation.has_value());
    CHECK(result.evaluation->step == 24);
    CHECK(SameTensors(Newest(folder / ("counted" + text)),
                      Newest(folder / ("ends" + text))));
    // Not within epochs, of which nobody knows the middle.
    if (every != 0.5) CHECK(evaluations == counted_evaluations);
  }
}

TEST_CASE("a last batch that is smaller is one of its epoch") {
  TemporaryFolder folder;
  Trainer trainer(Spec(210, false), ToyRun(3), Into(folder / "log"));
  std::vector<int64_t> evaluations;
  trainer.AddHook(std::make_unique<Evaluations>(&evaluations));
  CHECK(trainer.Train().steps == 27);
  CHECK(evaluations == std::vector<int64_t>{9, 18, 27});
}

TEST_CASE("stopped at any step, the same training goes on") {
  TemporaryFolder folder;
  std::vector<int64_t> evaluations;
  Trainer whole(Spec(110, false), ToyRun(3), Into(folder / "whole"));
  whole.AddHook(std::make_unique<Evaluations>(&evaluations));
  whole.Train();
  const Checkpoint wanted = Newest(folder / "whole");
  CHECK(evaluations == std::vector<int64_t>{5, 10, 15});
  for (int64_t stop = 0; stop <= 15; ++stop) {
    CAPTURE(stop);
    const std::string log = folder / ("log" + std::to_string(stop));
    std::vector<int64_t> before, after;
    Trainer first(Spec(110, false), ToyRun(3), Into(log));
    first.AddHook(std::make_unique<Evaluations>(&before));
    first.AddHook(std::make_unique<StopAtStep>(stop));
    CHECK(first.Train().steps == stop);
    Trainer second(Spec(110, false), ToyRun(3), Into(log));
    second.AddHook(std::make_unique<Evaluations>(&after));
    const TrainingResult result = second.Train();
    CHECK(result.steps == 15);
    CHECK(result.stop_reason.empty());
    CHECK(SameTensors(Newest(log), wanted));
    // All of the whole training's, and those of where it was stopped.
    before.insert(before.end(), after.begin(), after.end());
    for (const int64_t step : evaluations) {
      CHECK(std::count(before.begin(), before.end(), step) >= 1);
    }
  }
}

TEST_CASE("killed between checkpoints, the same training comes out") {
  TemporaryFolder folder;
  Trainer(Spec(110, false), ToyRun(3), Into(folder / "whole")).Train();
  const Checkpoint wanted = Newest(folder / "whole");
  for (int64_t killed = 1; killed <= 15; ++killed) {
    CAPTURE(killed);
    const std::string log = folder / ("log" + std::to_string(killed));
    TrainingOptions options = Into(log);
    options.save_every.steps = 2;
    Trainer first(Spec(110, false), ToyRun(3), options);
    first.AddHook(std::make_unique<Crash>(killed));
    CHECK(Contains(ErrorOf([&] { first.Train(); }), "crash"));
    const TrainingResult result =
        Trainer(Spec(110, false), ToyRun(3), options).Train();
    CHECK(result.steps == 15);
    CHECK(SameTensors(Newest(log), wanted));
    // More epochs are what a longer training has.
    if (killed != 7) continue;
    CHECK(Trainer(Spec(110, false), ToyRun(4), options).Train().steps == 20);
    Trainer(Spec(110, false), ToyRun(4), Into(folder / "longer")).Train();
    CHECK(SameTensors(Newest(log), Newest(folder / "longer")));
  }
}

class SomePoints : public Generator {
 public:
  bool Next(Example* example) override {
    if (next_ == 110) return false;
    *example = {{"x", Tensor::Full(DType::kFloat32, {3},
                                   static_cast<double>(next_) / 128)},
                {"label", Tensor::Scalar<int64_t>(next_ % 3)}};
    ++next_;
    return true;
  }

 private:
  int64_t next_ = 0;
};

TEST_CASE("where an epoch could not be begun, the same training goes on") {
  TemporaryFolder folder;
  const auto fails = std::make_shared<std::atomic<bool>>(false);
  TrainerSpec spec = Spec(110, false);
  spec.input = [input = spec.input, fails](const RunContext& run) {
    if (!run.training()) return input(run);
    return datasets::FromGenerator([fails](uint64_t epoch) {
             if (epoch == 1 && fails->exchange(false)) {
               throw Error(Code::kNotFound, "no file");
             }
             return std::make_unique<SomePoints>();
           })
        .Filter([](const Example&) { return true; })
        .Batch(run.batch_size);
  };
  Trainer(spec, ToyRun(2), Into(folder / "whole")).Train();
  *fails = true;
  const TrainingOptions options = Into(folder / "log");
  CHECK(Contains(ErrorOf([&] { Trainer(spec, ToyRun(2), options).Train(); }),
                 "no file"));
  CHECK(Newest(folder / "log").state.step == 5);
  CHECK(Trainer(spec, ToyRun(2), options).Train().steps == 10);
  CHECK(SameTensors(Newest(folder / "log"), Newest(folder / "whole")));
}

TEST_CASE("what must be known of such a training") {
  const auto error = [](const TrainerSpec& spec, double epochs) {
    return ErrorOf([&] { Trainer(spec, ToyRun(epochs), {}).Train(); });
  };
  CHECK(Contains(error(Spec(110, false), 1.5), "a whole number of epochs"));
  CHECK(Contains(error(Spec(0, false), 2), "the dataset is empty"));
  TrainerSpec endless = Spec(110, false);
  endless.input = [input = endless.input](const RunContext& run) {
    const Dataset ends = input(run);
    return run.training() ? ends.Repeat() : ends;
  };
  CHECK(Contains(error(endless, 2), "without Repeat"));
  TrainerSpec scheduled = Spec(110, false);
  scheduled.optimizer = ToySpec().optimizer;
  CHECK(Contains(error(scheduled, 2),
                 "learning rate '2:0.01->0.1,10:0.1=>0.01': how many steps"));
  scheduled.optimizer = [](const RunContext& run) {
    return optimizers::Sgd(schedules::Cosine(0.1, run.total_steps()));
  };
  CHECK(Contains(error(scheduled, 2), "--steps"));
  // With the number of steps they know.
  RunContext run = ToyRun(2);
  run.steps = 4;
  CHECK(Trainer(scheduled, run, {}).Train().steps == 4);
}

TEST_CASE("it is told when evaluations are where epochs are not known") {
  // Of 20 steps, or of 3 epochs of 5.
  const auto check = [](double every, int64_t steps, const char* told,
                        const std::vector<int64_t>& wanted) {
    CAPTURE(every);
    CAPTURE(steps);
    testing::RecordingReporter notes;
    TrainingOptions options;
    options.evaluate_every = every;
    options.reporter = &notes;
    RunContext run = ToyRun(3);
    run.steps = steps;
    TrainerSpec spec = Spec(110, false);
    if (steps > 0) {
      spec.input = [input = spec.input](const RunContext& of) {
        const Dataset ends = input(of);
        return of.training() ? ends.Repeat() : ends;
      };
    }
    Trainer trainer(spec, run, options);
    std::vector<int64_t> evaluations;
    trainer.AddHook(std::make_unique<Evaluations>(&evaluations));
    trainer.Train();
    CHECK(evaluations == wanted);
    const std::string text = notes.text();
    if (told != nullptr) CHECK(Contains(text, told));
    CHECK((text.find("--evaluate-every") != text.npos) == (told != nullptr));
  };
  check(0.25, 20,
        "0.25: how many examples an epoch has is not known; "
        "evaluations are every 5 of all 20 steps",
        {5, 10, 15, 20});
  check(2, 20, "at the end alone", {20});
  check(1, 20, nullptr, {20});
  check(0.5, 0, "at ends of epochs alone", {5, 10, 15});
  check(2, 0, nullptr, {10, 15});
}

TEST_CASE("so many batches of passes of which nobody knows the size") {
  TrainerSpec spec = Spec(110, false);
  spec.input = [](const RunContext& run) {
    return datasets::FromTensors(
               {{"x", Tensor::Full(DType::kFloat32, {20, 3}, 0.5)},
                {"label", Tensor::Zeros(DType::kInt64, {20})}})
        .Filter([](const Example&) { return true; })
        .Repeat()
        .Take(40)
        .Batch(run.batch_size);
  };
  RunContext run = ToyRun(1);
  run.batch_size = 8;
  run.steps = 3;
  const TrainingResult result = Trainer(spec, run, {}).Train();
  CHECK(result.steps == 3);
  REQUIRE(result.evaluation.has_value());
  CHECK(result.evaluation->examples == 40);
}

// So many numbered examples, every other of which is short.
Dataset InBuckets(int64_t examples) {
  return datasets::FromFunction(
             examples,
             [](int64_t i) {
               return Example{
                   {"x", Tensor::Full(DType::kFloat32, {3},
                                      static_cast<double>(i) / 2048)},
                   {"label", Tensor::Scalar<int64_t>(i % 3)}};
             })
      .BucketByLength(
          [](const Example& e) {
            return static_cast<int64_t>(e["x"].At(0) * 2048) % 2 == 0 ? 4 : 12;
          },
          {8}, {64, 16});
}

// Batches are of two sizes: 640 / 64 of the short and 640 / 16 of the long.
TEST_CASE("an epoch of batches by length has all of them") {
  constexpr int64_t kExamples = 1280;
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    std::mutex mutex;
    std::map<int64_t, int> seen;
    testing::Task task{.spec =
                           [](int) {
                             TrainerSpec spec = testing::PlainSpec();
                             spec.optimizer = Spec(1, false).optimizer;
                             spec.input = [](const RunContext&) {
                               return InBuckets(kExamples);
                             };
                             return spec;
                           },
                       .run = ToyRun(1)};
    task.after_step = [&](int, TrainingRun& run) {
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < RowsOf(run.batch()); ++i) {
        ++seen[static_cast<int64_t>(run.batch()["x"].At(3 * i) * 2048)];
      }
    };
    for (const testing::Trained& each : testing::TrainWith(workers, task)) {
      REQUIRE(each.error == "");
      CHECK(each.result.steps == 50);
      REQUIRE(each.result.evaluation.has_value());
      CHECK(each.result.evaluation->examples == kExamples);
    }
    CHECK(seen.size() == kExamples);
    for (const auto& [example, times] : seen) {
      CAPTURE(example);
      CHECK(times == 1);
    }
  }
  TrainerSpec spec = testing::PlainSpec();
  spec.input = [](const RunContext&) { return InBuckets(kExamples); };
  CHECK(Contains(ErrorOf([&] { Trainer(spec, ToyRun(0.5), {}).Train(); }),
                 "how many batches BucketByLength makes"));
  CHECK(InBuckets(0).examples_per_epoch() == 0);
  CHECK(datasets::FromFunction(9,
                               [](int64_t i) {
                                 return Example{{"x", Tensor::Scalar(i)}};
                               })
            .PaddedBatch(4)
            .examples_per_epoch() == 9);
}

// A variable that falls by 1/8 with each update, which is by so many batches,
// of which an epoch has 5.
TrainerSpec Counting(int64_t batches) {
  TrainerSpec spec = Spec(110, false);
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    const Output w = scope.graph().Variable("w", Ones({}));
    return ModelSpec{.loss = w + 0 * Mean(in["x"])};
  };
  spec.optimizer = [batches](const RunContext&) {
    return optimizers::Sgd(0.125).With(gradients::Accumulate(batches));
  };
  return spec;
}

double ValueOf(const Checkpoint& checkpoint, const std::string& name) {
  for (const NamedTensor& tensor : checkpoint.tensors) {
    if (tensor.name == name) return tensor.tensor.At(0);
  }
  FAIL("no ", name);
  return 0;
}

TEST_CASE("batches that are in no update are told at the end, or refused") {
  TemporaryFolder folder;
  for (const int64_t batches : {1, 2, 4, 5, 7, 15, 16, 40}) {
    CAPTURE(batches);
    testing::RecordingReporter notes;
    TrainingOptions options = Into(folder / std::to_string(batches));
    options.reporter = &notes;
    for (const int64_t epochs : {3, 3, 4}) {
      CAPTURE(epochs);
      const int64_t steps = 5 * epochs, updates = steps / batches;
      const std::string error = ErrorOf([&] {
        const RunContext run = ToyRun(static_cast<double>(epochs));
        const auto result = Trainer(Counting(batches), run, options).Train();
        CHECK(result.steps == steps);
      });
      const std::string few = "the input has ended after " +
                              std::to_string(steps) + ": nothing was trained";
      if (updates > 0) {
        CHECK(error == "(no error)");
      } else {
        CHECK(Contains(error, few));
      }
      const Checkpoint saved = Newest(options.log_dir);
      CHECK(saved.state.step == steps);
      CHECK(ValueOf(saved, "w") ==
            doctest::Approx(1 - 0.125 * static_cast<double>(updates)));
      const std::string left = "the last " + std::to_string(steps % batches) +
                               " of " + std::to_string(steps) +
                               " batches are in no update";
      CHECK((notes.text().find(left) != std::string::npos) ==
            (updates > 0 && steps % batches > 0));
    }
  }
  // All of several processes find it out.
  const testing::Task task{.spec = [](int) { return Counting(8); },
                           .run = ToyRun(1)};
  for (const testing::Trained& each : testing::TrainWith(2, task)) {
    CHECK(Contains(each.error, "ended after 5: nothing was trained"));
  }
}

TEST_CASE("a rate is searched for over several epochs") {
  const RateCurve curve =
      FindRate(Spec(110, false), ToyRun(1), {}, {.most = 0.01, .steps = 30});
  CHECK(curve.rates.size() == 30);
}

TEST_CASE("a loss that is no number is found in any epoch") {
  TrainerSpec spec = Spec(110, false);
  spec.model = testing::TrappedSpec().model;  // in step 14, of the third
  CHECK(Contains(ErrorOf([&] { Trainer(spec, ToyRun(4), {}).Train(); }),
                 "'trap/log' in step 14"));
}

}  // namespace
}  // namespace sluice
