// Several workers evaluate what was trained: the figures of one, whatever their
// number, and none is left waiting.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::Evaluated;
using testing::EvaluateWith;
using testing::kPoints;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToldAtQuestion;
using testing::ToyRun;
using testing::ToySpec;

// The first n points to evaluate on.
Dataset FirstPoints(const RunContext& run, int64_t n) {
  RunContext whole = run;
  whole.batch_size = kPoints;
  const Example all = testing::PointsOnce(whole).First();
  return datasets::FromTensors({{"x", all["x"].Rows(0, n).Clone()},
                                {"label", all["label"].Rows(0, n).Clone()}})
      .Batch(run.batch_size);
}

// A training by one worker, of which rank 0 alone has the folder.
class Trained {
 public:
  explicit Trained(TrainerSpec spec) : spec_(std::move(spec)) {
    TrainingOptions options;
    options.log_dir = folder_.path();
    Trainer(spec_, ToyRun(2), options).Train();
  }

  // Its evaluation on so many points.
  Task Evaluation(int64_t points, int64_t batch_size) const {
    Task task;
    task.run = ToyRun(2);
    task.run.batch_size = batch_size;
    task.spec = [=, spec = spec_](int) {
      TrainerSpec on_some = spec;
      on_some.input = [points](const RunContext& run) {
        return FirstPoints(run, points);
      };
      return on_some;
    };
    task.options = [folder = folder_.path()](int rank) {
      TrainingOptions options;
      options.log_dir = rank == 0 ? folder : "/no/such/folder";
      return options;
    };
    task.tells_failure = true;
    return task;
  }
  std::string newest() const {
    return CheckpointManager::ForReading(folder_.path())
        .RestoreNewest()
        .ValueOrThrow()
        ->path;
  }

 private:
  TrainerSpec spec_;
  TemporaryFolder folder_;
};

void CheckFigures(const Evaluated& each, const Evaluated& one) {
  REQUIRE(each.error == "");
  REQUIRE(one.error == "");
  REQUIRE(each.evaluation.has_value());
  REQUIRE(one.evaluation.has_value());
  CHECK(each.evaluation->step == one.evaluation->step);
  CHECK(each.evaluation->examples == one.evaluation->examples);
  CHECK(each.evaluation->checkpoint == one.evaluation->checkpoint);
  REQUIRE(each.evaluation->values.size() == one.evaluation->values.size());
  for (size_t i = 0; i < one.evaluation->values.size(); ++i) {
    const auto& [name, value] = one.evaluation->values[i];
    CAPTURE(name);
    CHECK(each.evaluation->values[i].first == name);
    if (std::isnan(value)) {  // the area of one class alone
      CHECK(std::isnan(each.evaluation->values[i].second));
    } else {
      CHECK(each.evaluation->values[i].second ==
            doctest::Approx(value).epsilon(1e-5));
    }
  }
}

// Metrics with a state, batch normalisation that is folded, averages in place
// of variables; sets that end with a batch of which some have nothing, or of
// fewer examples than there are workers.
TEST_CASE("any number of workers evaluates as one does") {
  TrainerSpec averaged = PlainSpec();
  averaged.optimizer = [](const RunContext&) {
    return optimizers::Adam(0.01).WithAverages(0.9);
  };
  std::vector<std::unique_ptr<Trained>> trainings;
  for (const TrainerSpec& spec : {PlainSpec(), ToySpec(), averaged}) {
    trainings.push_back(std::make_unique<Trained>(spec));
  }
  std::mt19937 random(1);
  for (int trial = 0; trial < 18; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    const int64_t batch = workers + static_cast<int64_t>(random() % 40);
    const int64_t points = trial % 3 == 0
                               ? 1 + trial / 3 % 3
                               : 1 + static_cast<int64_t>(random() % kPoints);
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(batch);
    CAPTURE(points);
    const Task task = trainings[static_cast<size_t>(trial / 3 % 3)]->Evaluation(
        points, batch);
    const Evaluated one = EvaluateWith(1, task)[0];
    const std::vector<Evaluated> all = EvaluateWith(workers, task);
    CHECK(one.evaluation->examples == points);
    for (const Evaluated& each : all) {
      CheckFigures(each, one);
      // All have the very same.
      if (points > 50) {
        CHECK(each.evaluation->values == all[0].evaluation->values);
      }
    }
  }
}

TEST_CASE("weights from elsewhere are read by rank 0 alone") {
  const Trained trained(PlainSpec());
  Task task = trained.Evaluation(100, 30);
  task.options = [weights = trained.newest()](int rank) {
    TrainingOptions options;
    options.weights = rank == 0 ? weights : "/no/such/weights";
    return options;
  };
  const Evaluated one = EvaluateWith(1, task)[0];
  for (const Evaluated& each : EvaluateWith(3, task)) {
    CheckFigures(each, one);
    CHECK(each.evaluation->step == 0);
    CHECK(each.evaluation->checkpoint.empty());
  }
  CheckFigures(EvaluateWith(3, trained.Evaluation(100, 30))[2],
               EvaluateWith(1, trained.Evaluation(100, 30))[0]);
}

TEST_CASE("all are told of the training, and of each other") {
  TrainerSpec named = PlainSpec();
  named.class_names = [](const RunContext&) {
    return std::vector<std::string>{"one", "two", "three"};
  };
  const Trained trained(named);
  Task task = trained.Evaluation(60, 20);
  std::vector<RunContext> told(3);
  task.spec = [&, spec = task.spec](int rank) {
    TrainerSpec listening = spec(rank);
    listening.model = [&told, rank](Scope& scope, const Features& in,
                                    const RunContext& run) {
      told[static_cast<size_t>(rank)] = run;
      return testing::Plain(scope, in, run);
    };
    return listening;
  };
  for (const Evaluated& each : EvaluateWith(3, task)) REQUIRE(each.error == "");
  for (size_t rank = 0; rank < told.size(); ++rank) {
    CHECK(told[rank].mode == Mode::kEval);
    CHECK(told[rank].class_names ==
          std::vector<std::string>{"one", "two", "three"});
    CHECK(told[rank].trained_on == told[0].trained_on);
    CHECK(told[rank].trained_on != "");
    CHECK(told[rank].rank == static_cast<int64_t>(rank));
    CHECK(told[rank].size == 3);
  }
}

// Which all are told, in words that say what differs and where.
TEST_CASE("workers that do not evaluate the same are refused") {
  const Trained trained(PlainSpec());
  const Task given = trained.Evaluation(60, 20);
  const auto refused = [](const Task& task, const std::string& part) {
    CAPTURE(part);
    const std::vector<Evaluated> all = EvaluateWith(3, task);
    for (const Evaluated& each : all) {
      CHECK(Contains(each.error, part));
      CHECK(!each.evaluation.has_value());
    }
  };
  Task other = given;
  other.spec = [&](int rank) {
    TrainerSpec spec = given.spec(rank);
    if (rank == 2)
      spec.input = [](const RunContext& run) { return FirstPoints(run, 59); };
    return spec;
  };
  refused(other, "evaluation input of rank 2 of 3");
  other.spec = [&](int rank) {
    return rank == 1 ? testing::ToyWithUnits(16, "logits") : given.spec(rank);
  };
  refused(other, "of rank 1 of 3 is another");
  other = given;
  other.options = [&](int rank) {
    TrainingOptions options = given.options(rank);
    if (rank == 1) options.session.precision = Precision::kBFloat16;
    return options;
  };
  refused(other, "precision of rank 1 of 3");
  refused(trained.Evaluation(60, 2), "batches of 2 cannot be shared out");
}

TEST_CASE("what one cannot read ends the evaluation of all") {
  const Trained trained(PlainSpec());
  Task none = trained.Evaluation(60, 20);
  const TemporaryFolder empty;
  none.options = [&](int) {
    TrainingOptions options;
    options.log_dir = empty.path();
    return options;
  };
  for (const Evaluated& each : EvaluateWith(3, none)) {
    CHECK(Contains(each.error, "no checkpoint in '" + empty.path()));
  }
  // Of the second batch, in the share of rank 1.
  Task unreadable = trained.Evaluation(60, 30);
  unreadable.spec = [given = unreadable.spec](int rank) {
    TrainerSpec spec = given(rank);
    spec.input = [](const RunContext& run) {
      RunContext whole = run;
      whole.batch_size = 60;
      const Example all = FirstPoints(whole, 60).First();
      Tensor number(DType::kInt64, {60});
      for (int64_t i = 0; i < 60; ++i) number.data<int64_t>()[i] = i;
      return datasets::FromTensors(
                 {{"x", all["x"]}, {"label", all["label"]}, {"n", number}})
          .Map([](Example& example) {
            if (example["n"].IntAt(0) == 45) {
              throw Error(Code::kDataLoss, "an example cannot be read");
            }
          })
          .Batch(run.batch_size);
    };
    return spec;
  };
  const std::vector<Evaluated> all = EvaluateWith(3, unreadable);
  for (const Evaluated& each : all) {
    CHECK(Contains(each.error, "an example cannot be read"));
  }
  CHECK(Contains(all[0].error, "rank 1"));
  CHECK(Contains(all[2].error, "rank 1"));
}

// By whichever, before whichever batch.
TEST_CASE("an evaluation that one is told to end ends for all") {
  const Trained trained(PlainSpec());
  for (int question = 0; question < 5; ++question) {
    const int told = question % 3;
    CAPTURE(question);
    Task task = trained.Evaluation(100, 25);  // four, and the end
    const ToldAtQuestion stop(question);
    task.options = [&, given = task.options](int rank) {
      TrainingOptions options = given(rank);
      if (rank == told) options.stop = &stop;
      return options;
    };
    const bool all_were_done = question == 4;
    for (const Evaluated& each : EvaluateWith(3, task)) {
      CHECK(each.error == "");
      CHECK(each.evaluation.has_value() == all_were_done);
      const std::string reason =
          told == 0 ? "told to"
                    : "rank " + std::to_string(told) + " of 3: told to";
      CHECK(each.interrupted == (all_were_done ? "" : reason));
    }
  }
}

TEST_CASE("who looks at the batches does so alone") {
  const Trained trained(PlainSpec());
  const Task task = trained.Evaluation(60, 20);
  const std::vector<std::string> errors = testing::InWorkers(
      2, task, [&](int rank, const TrainingOptions& options) {
        Trainer(task.spec(rank), task.run, options)
            .Evaluate([](const Example&, const Example&) { return true; });
      });
  for (const std::string& error : errors) {
    CHECK(Contains(error, "looked at by one worker alone, there are 2"));
  }
}

}  // namespace
}  // namespace sluice
