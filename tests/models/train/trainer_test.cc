// The trainer: learning, resuming bit for bit, exact evaluation, checkpoints
// that do not fit.
#include "models/train/trainer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "engine/threads.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
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

Checkpoint Newest(const std::string& log_dir) {
  return CheckpointManager::Open(log_dir)
      .ValueOrThrow()
      .RestoreNewest()
      .ValueOrThrow()
      ->checkpoint;
}

void CheckEqual(const Checkpoint& a, const Checkpoint& b) {
  CHECK(a.state.step == b.state.step);
  CHECK(a.state.dataset_position == b.state.dataset_position);
  REQUIRE(a.tensors.size() == b.tensors.size());
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& t : b.tensors) by_name[t.name] = t.tensor;
  for (const NamedTensor& t : a.tensors) {
    CAPTURE(t.name);
    CHECK(t.tensor.BitEqual(by_name.at(t.name)));
  }
}

TrainingResult TrainFor(const std::string& log_dir, double epochs,
                        int64_t stop_at, TrainingOptions options = {}) {
  options.log_dir = log_dir;
  Trainer trainer(ToySpec(), ToyRun(epochs), options);
  trainer.AddHook(std::make_unique<StopAtStep>(stop_at));
  return trainer.Train();
}

TEST_CASE("it learns") {
  Trainer trainer(ToySpec(), ToyRun(10), {});
  const TrainingResult result = trainer.Train();
  CHECK(result.steps == 100);
  REQUIRE(result.evaluation.has_value());
  CHECK(result.evaluation->examples == testing::kPoints);
  CHECK(*result.evaluation->Find("accuracy") > 0.8);
  CHECK(*result.evaluation->Find("loss") < 0.6);
  CHECK(result.examples_per_second > 0);
}

TEST_CASE("200 steps are 100, a resume and 100, bit for bit") {
  TemporaryFolder folder;
  TrainFor(folder / "whole", 20, 200);
  TrainFor(folder / "parts", 20, 100);
  // In the middle of an epoch, too.
  TrainFor(folder / "parts", 20, 133);
  const TrainingResult result = TrainFor(folder / "parts", 20, 200);
  CHECK(result.steps == 200);
  CheckEqual(Newest(folder / "parts"), Newest(folder / "whole"));
}

TEST_CASE("one and two threads give the same bits when deterministic") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.session.deterministic = true;
  SetComputeThreads(1);
  TrainFor(folder / "one", 5, 50, options);
  SetComputeThreads(2);
  TrainFor(folder / "two", 5, 50, options);
  SetComputeThreads(0);
  CheckEqual(Newest(folder / "one"), Newest(folder / "two"));
}

TEST_CASE("without reports of steps the same is trained") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.session.deterministic = true;
  for (const int64_t every : {1000, 0, -1}) {
    options.log_every = every;
    TrainFor(folder / std::to_string(every), 2, 15, options);
    CheckEqual(Newest(folder / std::to_string(every)), Newest(folder / "1000"));
  }
}

TEST_CASE("epochs without end are trained until a hook stops them") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.session.deterministic = true;
  TrainFor(folder / "some", 1000, 12, options);
  int number = 0;
  for (const double epochs : {HUGE_VAL, 1e300, 1e18}) {
    CAPTURE(epochs);
    const std::string log = folder / std::to_string(++number);
    const TrainingResult result = TrainFor(log, epochs, 12, options);
    CHECK(result.steps == 12);
    CHECK(Contains(result.stop_reason, "step 12 is reached"));
    CheckEqual(Newest(log), Newest(folder / "some"));
    RunContext run = ToyRun(epochs);
    run.steps_per_epoch = 10;
    CHECK(run.total_steps() == RunContext::kEndless);
    run.steps_per_epoch = 0;  // of no examples
    CHECK(run.total_steps() == 0);
  }
}

TEST_CASE("a finished training is not trained further") {
  TemporaryFolder folder;
  TrainFor(folder / "log", 2, 100);
  const Checkpoint before = Newest(folder / "log");
  const TrainingResult result = TrainFor(folder / "log", 2, 100);
  CHECK(result.steps == 20);
  CHECK(result.examples_per_second == 0);
  CHECK(result.evaluation.has_value());
  CheckEqual(Newest(folder / "log"), before);
}

TEST_CASE("evaluation is exact over the whole set, remainder included") {
  TemporaryFolder folder;
  TrainFor(folder / "log", 3, 30);
  std::map<int64_t, Evaluation> by_batch;
  for (int64_t batch : {1, 25, 99, 250, 1000}) {
    RunContext run = ToyRun(3);
    run.batch_size = batch;
    Trainer trainer(ToySpec(), run, {.log_dir = folder / "log"});
    by_batch[batch] = trainer.Evaluate().value();
    CHECK(by_batch[batch].step == 30);
    CHECK(by_batch[batch].examples == testing::kPoints);
    CHECK(*by_batch[batch].Find("accuracy") == *by_batch[1].Find("accuracy"));
    CHECK(*by_batch[batch].Find("loss") ==
          doctest::Approx(*by_batch[1].Find("loss")).epsilon(1e-6));
  }

  // Counted by hand from the predictions.
  RunContext run = ToyRun(3);
  run.batch_size = 99;
  Trainer trainer(ToySpec(), run, {.log_dir = folder / "log"});
  int64_t right = 0, seen = 0;
  trainer.Predict([&](const Example& batch, const Example& exports) {
    const Tensor& p = exports["probabilities"];
    for (int64_t i = 0; i < p.shape()[0]; ++i, ++seen) {
      int64_t best = 0;
      for (int64_t c = 1; c < 3; ++c) {
        if (p.At(3 * i + c) > p.At(3 * i + best)) best = c;
      }
      right += best == batch["label"].IntAt(i) ? 1 : 0;
    }
    return true;
  });
  CHECK(seen == testing::kPoints);
  CHECK(*by_batch[25].Find("accuracy") ==
        static_cast<double>(right) / static_cast<double>(seen));
}

TEST_CASE("evaluating leaves variables that are shared alone") {
  TemporaryFolder folder;
  std::vector<Tensor> weights[2];
  for (const bool shared : {false, true}) {
    TrainerSpec spec = ToySpec();
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(0.1, 0.9).WithAverages(0.9);
    };
    TrainingOptions options;
    options.log_dir = folder / (shared ? "shared" : "own");
    options.evaluate_every = 0.5;
    if (shared) options.session.container = "evaluating";
    Trainer(spec, ToyRun(2), options).Train();
    const auto saved = CheckpointManager::ForReading(options.log_dir)
                           .RestoreNewest()
                           .ValueOrThrow();
    REQUIRE(saved);
    for (const NamedTensor& tensor : saved->checkpoint.tensors) {
      weights[shared].push_back(tensor.tensor);
    }
  }
  REQUIRE(weights[0].size() == weights[1].size());
  for (size_t i = 0; i < weights[0].size(); ++i) {
    CHECK(weights[0][i].BitEqual(weights[1][i]));
  }
}

TEST_CASE("each evaluation is of the newest checkpoint") {
  TemporaryFolder folder;
  TrainFor(folder / "log", 1, 10);
  Trainer trainer(ToySpec(), ToyRun(3), {.log_dir = folder / "log"});
  CHECK(trainer.Evaluate()->step == 10);
  trainer.Train();
  CHECK(trainer.Evaluate()->step == 30);
}

TEST_CASE("an epoch that is no whole number of steps is evaluated once") {
  class Steps : public Hook {
   public:
    explicit Steps(std::vector<int64_t>* steps) : steps_(steps) {}
    void AfterEvaluation(TrainingRun& run, const Evaluation&) override {
      steps_->push_back(run.step());
    }

   private:
    std::vector<int64_t>* steps_;
  };
  for (const int64_t batch : {7, 30, 60, 99, 120}) {
    for (const double every : {0.5, 1.0, 2.0}) {
      CAPTURE(batch);
      CAPTURE(every);
      RunContext run = ToyRun(6);
      run.batch_size = batch;
      std::vector<int64_t> steps, expected;
      Trainer trainer(ToySpec(), run, {.evaluate_every = every});
      trainer.AddHook(std::make_unique<Steps>(&steps));
      trainer.Train();
      const double per_epoch = 250.0 / static_cast<double>(batch);
      const auto total = static_cast<int64_t>(std::ceil(6 * per_epoch - 1e-9));
      for (double e = every; e < 6; e += every) {
        expected.push_back(
            std::min<int64_t>(total, std::llround(e * per_epoch)));
      }
      if (expected.empty() || expected.back() != total) {
        expected.push_back(total);
      }
      CHECK(steps == expected);
    }
  }
}

TEST_CASE("what the evaluation lacks is missed before the first step") {
  TemporaryFolder folder;
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    if (!run.training()) throw Error(Code::kNotFound, "no test data");
    return testing::Points(run);
  };
  Trainer trainer(spec, ToyRun(2), {.log_dir = folder / "log"});
  class NoStep : public Hook {
    void Begin(TrainingRun&) override { FAIL("it has begun"); }
  };
  trainer.AddHook(std::make_unique<NoStep>());
  CHECK(Contains(ErrorOf([&] { trainer.Train(); }), "no test data"));
}

TEST_CASE("an evaluation that fails leaves what was trained behind") {
  TemporaryFolder folder;
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    Dataset points = testing::Points(run);
    if (run.training()) return points;
    return points.Map([](Example& batch) {
      if (batch["x"].shape()[0] > 1)
        throw Error(Code::kNotFound, "no test data");
    });
  };
  const std::string log = folder / "log";
  Trainer trainer(spec, ToyRun(2), {.log_dir = log});
  CHECK(Contains(ErrorOf([&] { trainer.Train(); }), "no test data"));
  const auto saved =
      CheckpointManager::ForReading(log).RestoreNewest().ValueOrThrow();
  REQUIRE(saved);
  CHECK(saved->checkpoint.state.step == 10);
  CHECK_FALSE(saved->checkpoint.state.metric);
}

TEST_CASE("metrics with a state are those of the whole set") {
  TemporaryFolder folder;
  TrainFor(folder / "log", 3, 30);
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    const Output& probabilities = model.exports[0].second;
    const Output first = Slice(probabilities, {0, 0}, {-1, 1});
    model.metrics.emplace_back("f1", F1(probabilities, in["label"]));
    model.metrics.emplace_back(
        "first_auc",
        AreaUnderCurve(first, Cast(Equal(in["label"], 0), DType::kInt64)));
    return model;
  };
  RunContext run = ToyRun(3);
  run.batch_size = 99;
  Trainer trainer(spec, run, {.log_dir = folder / "log"});
  const Evaluation evaluation = trainer.Evaluate().value();
  std::vector<double> score;
  std::vector<int64_t> label, predicted;
  trainer.Predict([&](const Example& batch, const Example& exports) {
    const Tensor& p = exports["probabilities"];
    for (int64_t i = 0; i < p.shape()[0]; ++i) {
      score.push_back(p.At(3 * i));
      label.push_back(batch["label"].IntAt(i));
      predicted.push_back(0);
      for (int64_t c = 1; c < 3; ++c) {
        if (p.At(3 * i + c) > p.At(3 * i + predicted.back())) {
          predicted.back() = c;
        }
      }
    }
    return true;
  });
  double f1 = 0, won = 0, pairs = 0;
  for (int64_t c = 0; c < 3; ++c) {
    double both = 0, either = 0;
    for (size_t i = 0; i < label.size(); ++i) {
      both += label[i] == c && predicted[i] == c;
      either += (label[i] == c) + (predicted[i] == c);
    }
    f1 += 2 * both / either / 3;
  }
  for (size_t i = 0; i < label.size(); ++i) {
    for (size_t j = 0; j < label.size(); ++j) {
      if (label[i] != 0 || label[j] == 0) continue;
      ++pairs;
      won += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
    }
  }
  CHECK(*evaluation.Find("f1") == doctest::Approx(f1).epsilon(1e-9));
  CHECK(*evaluation.Find("first_auc") ==
        doctest::Approx(won / pairs).epsilon(1e-9));
  CHECK(*evaluation.Find("first_auc") > 0.5);
}

TEST_CASE("a checkpoint that does not fit is named and left alone") {
  TemporaryFolder folder;
  Trainer(ToyWithUnits(4, "logits"), ToyRun(1), {.log_dir = folder / "log"})
      .Train();
  const Checkpoint before = Newest(folder / "log");

  const std::string reshaped = ErrorOf([&] {
    Trainer(ToyWithUnits(5, "logits"), ToyRun(2), {.log_dir = folder / "log"})
        .Train();
  });
  CHECK(Contains(reshaped,
                 "reshaped: 'fc1/weights' is float32[3,4] in the "
                 "file, float32[3,5] in the model"));
  CHECK(Contains(reshaped, "--restart"));
  const std::string renamed = ErrorOf([&] {
    Trainer(ToyWithUnits(4, "head"), ToyRun(2), {.log_dir = folder / "log"})
        .Train();
  });
  CHECK(Contains(renamed, "missing: 'head/weights' float32[4,3]"));
  CHECK(Contains(renamed, "extra: 'logits/weights'"));
  RunContext seeded = ToyRun(2);
  seeded.seed = 8;
  CHECK(Contains(ErrorOf([&] {
                   Trainer(ToyWithUnits(4, "logits"), seeded,
                           {.log_dir = folder / "log"})
                       .Train();
                 }),
                 "--seed 7"));
  CheckEqual(Newest(folder / "log"), before);
}

TEST_CASE("restart sets the earlier training aside") {
  TemporaryFolder folder;
  TrainFor(folder / "log", 2, 20);
  const Checkpoint first = Newest(folder / "log");
  // All that is of the one training, so that nobody takes it for the other's.
  FileSystem& files = FileSystem::Posix();
  std::map<std::string, std::string> beside;
  REQUIRE(files.WriteAtomically(folder / "log/run.json", "{}").ok());
  for (const char* name : {"run.json", "step.graph", "scalars.csv"}) {
    beside[name] = files.Read(JoinPath(folder / "log", name)).ValueOrThrow();
  }
  const std::string events = "evaluator/events.out.tfevents.1";
  beside[events] = "an evaluator's";
  REQUIRE(files.MakeDirectories(folder / "log/evaluator").ok());
  REQUIRE(
      files.WriteAtomically(JoinPath(folder / "log", events), beside[events])
          .ok());
  REQUIRE(files.WriteAtomically(folder / "log/notes.txt", "mine").ok());
  REQUIRE(files.MakeDirectories(folder / "log/train").ok());
  REQUIRE(files.WriteAtomically(folder / "log/train/picture.png", "mine").ok());
  TrainingOptions options;
  options.restart = true;
  const TrainingResult result = TrainFor(folder / "log", 2, 10, options);
  CHECK(result.steps == 10);
  CHECK(Newest(folder / "log").state.step == 10);
  CheckEqual(Newest(folder / "log/previous-1"), first);
  for (const auto& [name, text] : beside) {
    CAPTURE(name);
    CHECK(
        files.Read(JoinPath(folder / "log/previous-1", name)).ValueOrThrow() ==
        text);
  }
  CHECK_FALSE(*files.Exists(folder / "log/run.json"));
  CHECK_FALSE(*files.Exists(JoinPath(folder / "log", events)));
  CHECK(*files.Exists(folder / "log/notes.txt"));
  CHECK(*files.Exists(folder / "log/train/picture.png"));
  if (*files.Exists(folder / "log/eval")) {  // with event files
    for (const char* part : {"train", "eval"}) {
      CHECK(files.List(JoinPath(folder / "log/previous-1", part))->size() == 1);
      CHECK(files.List(JoinPath(folder / "log", part))->size() ==
            (part == std::string("train") ? 2 : 1));
    }
  }
  // One that cannot begin moves nothing.
  options.freeze = "nobody/*";
  CHECK_THROWS_AS(TrainFor(folder / "log", 2, 10, options), Error);
  CHECK_FALSE(*files.Exists(folder / "log/previous-2"));
  CHECK(Newest(folder / "log").state.step == 10);
}

TEST_CASE("nothing trained cannot be evaluated") {
  TemporaryFolder folder;
  Trainer trainer(ToySpec(), ToyRun(1), {.log_dir = folder / "none"});
  CHECK(Contains(ErrorOf([&] { trainer.Evaluate(); }), "no checkpoint in"));
  CHECK(!std::filesystem::exists(folder / "none"));
}

TEST_CASE("an input that ends, and its smaller last batch") {
  TrainerSpec spec = ToySpec();
  spec.input = testing::PointsOnce;
  RunContext run = ToyRun(3);
  run.batch_size = 99;
  const TrainingResult result = Trainer(spec, run, {}).Train();
  CHECK(result.steps == 3);
  CHECK(Contains(result.stop_reason, "the input ended after 3 steps"));
  CHECK(result.evaluation->examples == testing::kPoints);
}

TEST_CASE("batches of another size than was asked for are refused") {
  TemporaryFolder folder;
  TrainerSpec spec = ToySpec();
  int64_t size = 10;
  spec.input = [&](const RunContext& run) {
    RunContext other = run;
    other.batch_size = size;
    return testing::Points(other);
  };
  RunContext run = ToyRun(1);
  run.batch_size_given = true;
  const auto train = [&] {
    Trainer(spec, run, {.log_dir = folder / "log"}).Train();
  };
  const std::string smaller = ErrorOf(train);
  CHECK(Contains(smaller, "batches of 10"));
  CHECK(Contains(smaller, "batch size is 25"));
  // Larger than a pass, of which there is no whole batch.
  size = 1000;
  CHECK(Contains(ErrorOf(train), "batches of 1000"));
  CHECK(CheckpointManager::ForReading(folder / "log")
            .Steps()
            ->empty());  // nothing was trained
  size = 25;
  train();

  // An evaluation weighs every batch by its size, so that any will do.
  size = 99;
  const auto evaluation =
      Trainer(spec, ToyRun(1), {.log_dir = folder / "log"}).Evaluate();
  CHECK(evaluation->examples == testing::kPoints);
}

TEST_CASE("mistakes of a spec are told") {
  TrainerSpec no_model = ToySpec();
  no_model.model = nullptr;
  CHECK(Contains(ErrorOf([&] { Trainer(no_model, ToyRun(1), {}); }),
                 "needs an input and a model"));
  TrainerSpec endless = ToySpec();
  endless.input = [](const RunContext& run) {
    return testing::Points(run).Repeat();
  };
  CHECK(Contains(ErrorOf([&] { Trainer(endless, ToyRun(1), {}).Train(); }),
                 "repeats for ever"));
  TrainerSpec misspelt = ToySpec();
  misspelt.model = [](Scope&, const Features& in, const RunContext&) {
    return ModelSpec{.loss = Mean(in["picture"])};
  };
  CHECK(Contains(ErrorOf([&] { Trainer(misspelt, ToyRun(1), {}).Train(); }),
                 "the input has no 'picture', only: x, label"));
}

}  // namespace
}  // namespace sluice
