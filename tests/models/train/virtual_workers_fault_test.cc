// Trainings of virtual workers that are interrupted, or should not begin.
#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "graph/ops/state.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::Contains;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToySpec;
using testing::ToyTask;
using testing::Trained;
using testing::TrainWith;
using testing::Virtual;

TEST_CASE("a training of virtual workers goes on with any number of workers") {
  std::mt19937 random(2);
  const Trained whole = TrainWith(1, ToyTask(4, 6))[0];
  REQUIRE(whole.error == "");
  for (int trial = 0; trial < 4; ++trial) {
    TemporaryFolder folder;
    int64_t step = 0;
    Trained part;
    for (int piece = 0; piece < 4; ++piece) {
      const auto workers = static_cast<int>(1 + random() % 4);
      step = piece == 3 ? 60 : step + 1 + static_cast<int64_t>(random() % 20);
      Task task = ToyTask(4, 6);
      task.options = [&](int) {
        TrainingOptions options = Virtual(4);
        options.log_dir = folder / "log";
        return options;
      };
      task.add_hooks = [&](Trainer& trainer) {
        if (step < 60) trainer.AddHook(std::make_unique<StopAtStep>(step));
      };
      CAPTURE(trial);
      CAPTURE(piece);
      CAPTURE(workers);
      const std::vector<Trained> all = TrainWith(workers, task);
      for (const Trained& each : all) CheckEqual(each, all[0]);
      part = all[0];
    }
    CHECK(part.result.steps == 60);
    for (const auto& [name, value] : whole.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(part.variables.at(name)));
    }
  }
}

TEST_CASE("a training goes on with as many virtual workers as it began with") {
  for (const auto& [before, after] :
       {std::pair<int64_t, int64_t>{4, 2}, {4, 0}, {0, 2}}) {
    TemporaryFolder folder;
    const auto train = [&](int64_t leaves, int64_t stop) {
      Task task = ToyTask(leaves, 6);
      task.options = [&](int) {
        TrainingOptions options = Virtual(leaves);
        options.log_dir = folder / "log";
        return options;
      };
      task.add_hooks = [&](Trainer& trainer) {
        trainer.AddHook(std::make_unique<StopAtStep>(stop));
      };
      return TrainWith(1, task)[0].error;
    };
    CHECK(train(before, 5) == "");
    const std::string error = train(after, 9);
    CAPTURE(error);
    CHECK(Contains(error, "virtual workers, now there are"));
    CHECK(train(before, 9) == "");
  }
}

TEST_CASE("what virtual workers are not made for is refused") {
  const auto errors = [](int workers, const Task& task) {
    std::string all;
    for (const Trained& each : TrainWith(workers, task)) {
      CHECK(each.losses.empty());
      all += each.error + "\n";
    }
    return all;
  };
  CHECK(
      Contains(errors(1, ToyTask(3, 1)), "3 virtual workers: wanted a power"));
  CHECK(Contains(errors(1, ToyTask(-2, 1)), "wanted a power of two"));
  CHECK(
      Contains(errors(3, ToyTask(2, 1)), "2 virtual workers for 3 processes"));
  Task task = ToyTask(2, 1);
  task.options = [](int rank) { return Virtual(rank == 0 ? 2 : 4); };
  CHECK(Contains(errors(2, task), "number of virtual workers"));
  task = ToyTask(2, 1);
  task.run.batch_size = 1;
  CHECK(Contains(errors(1, task), "batches of 1"));
  task = ToyTask(2, 1);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output x =
          layers::BatchNorm(scope / "norm", in["x"],
                            {.training = run.training(), .synchronized = true});
      return ModelSpec{.loss = Mean(x * x)};
    };
    return spec;
  };
  CHECK(Contains(errors(1, task), "batch normalisation"));
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = testing::Network(scope, in, run);
      model.loss = Broadcast(model.loss, 0);
      return model;
    };
    return spec;
  };
  CHECK(Contains(errors(1, task), "no all-reduce over all workers"));
  // What counts has no mean, also where it is written on the way to an update
  // or to the loss.
  for (const int way : {0, 1, 2}) {
    CAPTURE(way);
    task.spec = [way](int) {
      TrainerSpec spec = ToySpec();
      spec.model = [way](Scope& scope, const Features& in,
                         const RunContext& run) {
        ModelSpec model = testing::Network(scope, in, run);
        const Output count = scope.graph().Variable(
            "count", Zeros({}, DType::kInt64), {.trainable = false});
        if (!run.training()) return model;
        const Output counted = AssignAdd(count, 1);
        if (way == 0) scope.graph().AddUpdate(counted);
        if (way == 1) scope.graph().AddUpdate(Identity(counted));
        if (way == 2) {
          model.loss = model.loss + 0 * Cast(counted, DType::kFloat32);
        }
        return model;
      };
      return spec;
    };
    CHECK(Contains(errors(1, task), "updates 'count'"));
  }
  // A hook's sum over the processes, whose number is nobody's to know.
  task.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.optimizer = [](const RunContext&) {
      return optimizers::Sgd(0.1).With(
          [](MinimizeContext& context, std::vector<GradientAndVariable>&) {
            const Output rows = Size(context.graph.Get("label"));
            const Output seen = context.graph.Variable(
                "seen", Zeros({}, DType::kInt64), {.trainable = false});
            context.operations.push_back(
                AssignAdd(seen, AllReduce(rows, Reduction::kSum, "all_rows")));
          });
    };
    return spec;
  };
  CHECK(Contains(errors(1, task), "all_rows' is a sum over all workers"));
  // An input that is shared out by the program itself.
  task.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.input = testing::PointsOfRank;
    return spec;
  };
  CHECK(Contains(errors(1, task), "shared out"));
  CHECK(Contains(errors(2, task), "shared out"));
}

// They would go by the number of processes.
TEST_CASE("measures for which workers meet are refused") {
  for (const testing::AddMeasures& add : testing::MeasuresOfAll()) {
    Task task = ToyTask(4, 1);
    task.spec = [&](int) { return testing::Measuring(add); };
    for (const int workers : {1, 2, 3}) {
      CAPTURE(workers);
      for (const Trained& each : TrainWith(workers, task)) {
        CHECK(Contains(each.error, "'of_all' is of several workers"));
        CHECK(each.losses.empty());
      }
    }
  }
}

// By the worker whose leaf it is.
TEST_CASE("a bad example of one leaf is found by all") {
  constexpr int64_t kExamples = 100, kBatch = 25;
  for (const int64_t leaf : {0, 1, 2, 3}) {
    Task task = ToyTask(4, 3);
    task.spec = [&](int) {
      TrainerSpec spec = PlainSpec();
      spec.input = [leaf](const RunContext& run) {
        Tensor x(DType::kFloat32, {kExamples, 3});
        Tensor label = Tensor::Zeros(DType::kInt64, {kExamples});
        for (int64_t i = 0; i < x.elements(); ++i) {
          x.data<float>()[i] = static_cast<float>(i % 7);
        }
        // The first of its share of the second batch.
        const int64_t bad = kBatch + kBatch * leaf / 4;
        if (run.training()) {
          x.data<float>()[3 * bad] = std::numeric_limits<float>::infinity();
        }
        return datasets::FromTensors({{"x", x}, {"label", label}})
            .Batch(run.batch_size);
      };
      return spec;
    };
    for (const int workers : {1, 2, 4}) {
      const std::vector<Trained> all = TrainWith(workers, task);
      const std::string who = "rank " + std::to_string(leaf * workers / 4) +
                              " of " + std::to_string(workers);
      CAPTURE(leaf);
      for (const Trained& each : all) {
        CAPTURE(each.error);
        CHECK(Contains(each.error, "the loss is"));
        CHECK(Contains(each.error, "'fc1/"));
        CHECK(Contains(each.error, "in step 2"));
        CHECK((workers == 1 || Contains(each.error, who)));
        CHECK(each.error == all[0].error);
      }
    }
  }
}

// Behind two steps, of which nothing was kept in memory.
TEST_CASE("what any leaf could not read is gone on from, with all examples") {
  const auto train = [](int64_t unreadable, const std::string& log_dir) {
    Task task = ToyTask(4, 3);
    task.spec = [=](int) { return testing::Unreadable(unreadable); };
    task.options = [&](int) {
      TrainingOptions options = Virtual(4);
      options.log_dir = log_dir;
      return options;
    };
    return TrainWith(1, task)[0];
  };
  const Trained whole = train(-1, "");
  REQUIRE(whole.error == "");
  for (const int64_t leaf : {0, 1, 2, 3}) {
    CAPTURE(leaf);
    TemporaryFolder folder;
    // The first of its share of the third batch.
    const Trained failed = train(50 + 25 * leaf / 4, folder / "log");
    CAPTURE(failed.error);
    CHECK(Contains(failed.error, "cannot be read"));
    CHECK(failed.losses.size() == 2);
    const auto saved = CheckpointManager::ForReading(folder / "log");
    CHECK(*saved.Steps() == std::vector<int64_t>{2});
    const Trained rest = train(-1, folder / "log");
    REQUIRE(rest.error == "");
    CHECK(rest.result.steps == 12);
    for (const auto& [name, value] : whole.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(rest.variables.at(name)));
    }
  }
}

// Of the second batch, of one example, the last leaf alone has something.
TEST_CASE("a bad example is its worker's whose first leaf has none") {
  Task task = ToyTask(4, 1);
  task.run.batch_size = 4;
  task.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.optimizer = [](const RunContext&) { return optimizers::Sgd(0.1); };
    spec.input = [](const RunContext& run) {
      Tensor x = Tensor::Full(DType::kFloat32, {5, 3}, 1);
      if (run.training()) x.data<float>()[3 * 4] = -1;
      return datasets::FromTensors(
                 {{"x", x}, {"label", Tensor::Zeros(DType::kInt64, {5})}})
          .PaddedBatch(run.batch_size);
    };
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = testing::Plain(scope, in, run);
      const NameScope names(scope.graph(), "trap");
      model.loss = model.loss + 0 * Mean(Log(in["x"]));
      return model;
    };
    return spec;
  };
  for (const Trained& each : TrainWith(2, task)) {
    CAPTURE(each.error);
    CHECK(Contains(each.error, "'trap/log' on rank 1 of 2 in step 2"));
  }
}

}  // namespace
}  // namespace sluice
