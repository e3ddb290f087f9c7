// What bench times: the steps of one worker, and of several together.
#include "models/cli/benchmark.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;

Task Plainly(int64_t batch_size) {
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(10)};
  task.run.batch_size = batch_size;
  task.tells_failure = true;
  return task;
}

std::vector<BenchmarkResult> Time(
    int workers, const Task& task, std::vector<std::string>* errors,
    const std::function<BenchmarkOptions(int rank)>& options = [](int) {
      return BenchmarkOptions{.warm_up = 2, .steps = 7};
    }) {
  std::vector<BenchmarkResult> results(static_cast<size_t>(workers));
  *errors = testing::InWorkers(
      workers, task, [&](int rank, const TrainingOptions& training) {
        results[static_cast<size_t>(rank)] =
            Benchmark(task.spec(rank), task.run, training, options(rank));
      });
  return results;
}

// Of two examples in all some have none.
TEST_CASE("the figures of any number of workers") {
  for (const int workers : {1, 2, 3}) {
    for (const int64_t batch : {25, 3, 2}) {
      CAPTURE(workers);
      CAPTURE(batch);
      Task task = Plainly(batch == 2 ? 25 : batch);
      task.spec = [=](int) {
        TrainerSpec spec = PlainSpec();
        if (batch > 2) return spec;
        spec.input = [](const RunContext& run) {
          return datasets::FromTensors(
                     {{"x", Tensor::Zeros(DType::kFloat32, {2, 3})},
                      {"label", Tensor::Zeros(DType::kInt64, {2})}})
              .Batch(run.batch_size);
        };
        return spec;
      };
      std::vector<std::string> errors;
      const auto results = Time(workers, task, &errors);
      for (const std::string& error : errors) CHECK(error == "");
      for (const BenchmarkResult& each : results) {
        CHECK(each.interrupted == "");
        CHECK(each.workers == workers);
        CHECK(each.examples == batch);  // of all
        CHECK(each.mean > 0);
        CHECK(each.median <= each.p90);
        CHECK(each.examples_per_second ==
              doctest::Approx(static_cast<double>(batch) / each.mean));
        CHECK(each.exchange_waits.size() == (workers > 1 ? workers : 0));
        for (const double wait : each.exchange_waits) {
          CHECK(wait > 0);
          CHECK(wait <= 1);
        }
        // All have the same, which is the slowest's.
        CHECK(each.mean == results[0].mean);
        CHECK(each.p90 == results[0].p90);
        // The steps are those of a training together.
        bool reduces = false;
        for (const auto& [op, providers] : each.info.ProviderCounts()) {
          reduces = reduces || op.starts_with("AllReduce");
        }
        CHECK(reduces == (workers > 1));
      }
    }
  }
}

TEST_CASE("weights to begin with are read by rank 0 alone") {
  TemporaryFolder folder;
  TrainingOptions training;
  training.log_dir = folder.path();
  const std::string weights =
      Trainer(PlainSpec(), ToyRun(1), training).Train().checkpoint;
  Task task = Plainly(20);
  task.options = [&](int rank) {
    TrainingOptions options;
    options.weights = rank == 0 ? weights : folder / "none";
    return options;
  };
  std::vector<std::string> errors;
  Time(2, task, &errors);
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("steps that one is told to end are no figures for any") {
  for (const int question : {0, 1, 4, 8, 9}) {
    const int told = question % 2;
    CAPTURE(question);
    const testing::ToldAtQuestion stop(question);
    Task task = Plainly(20);
    task.options = [&](int rank) {
      TrainingOptions options;
      if (rank == told) options.stop = &stop;
      return options;
    };
    std::vector<std::string> errors;
    const auto results = Time(2, task, &errors);
    for (size_t rank = 0; rank < 2; ++rank) {
      CHECK(errors[rank] == "");
      CHECK(results[rank].interrupted == (question == 9 ? ""  // all were done
                                          : told == 0
                                              ? "told to"
                                              : "rank 1 of 2: told to"));
    }
  }
}

TEST_CASE("workers that do not do the same are told so, and none waits") {
  std::vector<std::string> errors;
  Time(2, Plainly(20), &errors, [](int rank) {
    return BenchmarkOptions{.warm_up = 1, .steps = 4 + 2 * rank};
  });
  for (const std::string& error : errors) CHECK(error != "");
  Task other = Plainly(20);
  other.spec = [](int rank) {
    return rank == 0 ? PlainSpec() : testing::ToyWithUnits(8, "logits");
  };
  Time(2, other, &errors);
  for (const std::string& error : errors) {
    CHECK(Contains(error, "graph of rank 1 of 2 is another"));
  }
}

}  // namespace
}  // namespace sluice
