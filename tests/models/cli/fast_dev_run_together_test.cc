// The rehearsal by several workers: together where a training is, rank 0 alone
// where one process is.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "models/cli/fast_dev_run.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;

struct Outcome {
  std::vector<std::string> errors, reasons;  // by rank; empty: none
  std::string notes;                         // of all
};

Outcome Rehearse(int workers, const Task& task) {
  Outcome outcome;
  outcome.reasons.resize(static_cast<size_t>(workers));
  outcome.notes = testing::StderrOf([&] {
    outcome.errors = testing::InWorkers(
        workers, task, [&](int rank, const TrainingOptions& options) {
          outcome.reasons[static_cast<size_t>(rank)] =
              FastDevRun(task.spec(rank), task.run, options);
        });
  });
  return outcome;
}

Task Plainly() {
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(10)};
  task.run.batch_size = 20;
  task.tells_failure = true;
  return task;
}

int Times(const std::string& part, const std::string& text) {
  int times = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

// Optimizers that take several batches to an update, too.
TEST_CASE("several get through what one does") {
  for (const int64_t accumulates : {1, 2}) {
    Task task = Plainly();
    std::atomic<int> predicted = 0, evaluated = 0;
    task.spec = [&](int) {
      TrainerSpec spec = PlainSpec();
      spec.model = [&](Scope& scope, const Features& in,
                       const RunContext& run) {
        predicted += run.mode == Mode::kPredict ? 1 : 0;
        evaluated += run.mode == Mode::kEval && run.size == 3 ? 1 : 0;
        return testing::Network(scope, in, run);
      };
      spec.optimizer = [=](const RunContext&) {
        return optimizers::Adam().With(gradients::Accumulate(accumulates));
      };
      return spec;
    };
    const Outcome outcome = Rehearse(3, task);
    CAPTURE(outcome.notes);
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK(outcome.errors[rank] == "");
      CHECK(outcome.reasons[rank] == "");
    }
    const auto times = [&](const std::string& stage) {
      return Times("fast dev run: " + stage + ": ", outcome.notes);
    };
    CHECK(times(std::to_string(2 * accumulates) + " training steps") == 3);
    CHECK(times("resuming for one more step") == 3);
    CHECK(times("evaluation") == 3);
    CHECK(times("prediction") == 1);
    CHECK(times("export") == 1);
    CHECK(times("prediction of the exported model") == 1);
    CHECK(Times("fast dev run: all is well", outcome.notes) == 3);
    CHECK(evaluated == 9);  // two trainings and what they have saved
    CHECK(predicted == 2);
  }
}

TEST_CASE("what fails on one fails on all, in its stage") {
  const auto failing = [](int failing_rank, Mode mode, int time) {
    Task task = Plainly();
    task.spec = [=](int rank) {
      TrainerSpec spec = PlainSpec();
      spec.model = testing::Network;
      const auto calls = std::make_shared<int>(0);
      spec.input = [=](const RunContext& run) {
        if (rank == failing_rank && run.mode == mode && ++*calls == time) {
          throw Error(Code::kNotFound, "no file 'digits'");
        }
        return testing::Points(run);
      };
      return spec;
    };
    return Rehearse(3, task);
  };
  Outcome outcome = failing(0, Mode::kPredict, 1);
  CHECK(outcome.errors[0] == "fast dev run: prediction: no file 'digits'");
  for (const int rank : {1, 2}) {
    CHECK(Contains(outcome.errors[static_cast<size_t>(rank)],
                   "fast dev run: prediction: no file 'digits'"));
  }
  outcome = failing(2, Mode::kEval, 3);
  CHECK(outcome.errors[2] == "fast dev run: evaluation: no file 'digits'");
  CHECK(Contains(outcome.errors[0], "fast dev run: evaluation: rank 2 of 3"));
  CHECK(Contains(outcome.errors[1], "no file 'digits'"));
}

TEST_CASE("it may be interrupted anywhere, by any of them") {
  bool whole = false;
  int early = 0;
  for (int question = 0; question < 60 && !whole; question += 3) {
    CAPTURE(question);
    const int told = question / 3 % 2;
    const testing::ToldAtQuestion stop(question);
    Task task = Plainly();
    task.spec = [](int) { return testing::ToySpec(); };
    task.options = [&](int rank) {
      TrainingOptions options;
      if (rank == told) options.stop = &stop;
      return options;
    };
    const Outcome outcome = Rehearse(2, task);
    for (size_t rank = 0; rank < 2; ++rank) CHECK(outcome.errors[rank] == "");
    CHECK(outcome.reasons[0] == outcome.reasons[1]);
    whole = outcome.reasons[0].empty();
    if (whole) continue;
    ++early;
    CHECK(outcome.reasons[0] ==
          (told == 0 ? "told to" : "rank 1 of 2: told to"));
    CHECK(Times("ended early: " + outcome.reasons[0], outcome.notes) == 2);
  }
  CHECK(whole);
  CHECK(early > 3);
}

}  // namespace
}  // namespace sluice
