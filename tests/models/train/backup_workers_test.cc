// Trainings on parameter servers whose steps do not wait for all workers: what
// is applied is what was admitted, whole, once; a slow one holds up nobody; and
// where all are waited for, the bits of a ring.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "models/optim/contributions.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/centred_model.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckVariables;
using testing::Contains;
using testing::JobServers;
using testing::kSync;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToldAtQuestion;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

// As a worker's variables are of a training without servers.
void ForgetContributions(Trained& trained) {
  std::erase_if(trained.variables, [](const auto& variable) {
    return IsContribution(variable.first);
  });
}

std::vector<Trained> TrainBacked(int servers, int workers, int64_t backups,
                                 Task task) {
  JobServers job(servers);
  task.options = [&job, backups, before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.servers = job.For(rank, kSync);
    options.servers.backups = backups;
    return options;
  };
  std::vector<Trained> all = TrainWith(workers, task);
  for (Trained& each : all) ForgetContributions(each);
  return all;
}

void Sleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Of the worker of one rank, before its first step.
class AtBegin : public Hook {
 public:
  explicit AtBegin(std::function<void(TrainingRun& run)> fn)
      : fn_(std::move(fn)) {}
  void Begin(TrainingRun& run) override { fn_(run); }

 private:
  const std::function<void(TrainingRun& run)> fn_;
};

int64_t SumOf(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST_CASE("two that are both waited for have the bits of a ring") {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Task task{.spec =
                  [seed](int) {
                    TrainerSpec spec = ToySpec();
                    spec.optimizer = [seed](const RunContext&) {
                      std::mt19937 same(seed);
                      return testing::RandomOptimizer(same);
                    };
                    // Half of them end with a batch that has not something for
                    // all.
                    if (seed % 4 >= 2) spec.input = testing::PointsOnce;
                    return spec;
                  },
              .run = ToyRun(2)};
    const std::vector<Trained> ring = TrainWith(2, task);
    const std::vector<Trained> served =
        TrainBacked(1 + static_cast<int>(seed) % 3, 2, 0, task);
    for (const Trained& each : served) {
      CheckEqual(each, ring[0]);
      CHECK(each.result.dropped == std::vector<int64_t>{0, 0});
    }
    REQUIRE(served[0].result.evaluation.has_value());
    CHECK(served[0].result.evaluation->values ==
          ring[0].result.evaluation->values);
  }
}

TEST_CASE("more that are all waited for are a ring to rounding") {
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(2)};
  const std::vector<Trained> ring = TrainWith(4, task);
  for (const Trained& each : TrainBacked(2, 4, 0, task)) {
    testing::CheckNear(each, ring[0], 1e-4);
  }
}

// The third has its first step before it when the others have done all, and
// then goes through theirs; its places hold NaN all the time.
TEST_CASE("who is late holds up nobody, and what it has does not count") {
  constexpr int64_t kRounds = 10;
  const auto of_parts = [](int64_t parts) {
    TrainerSpec spec = PlainSpec();
    spec.input = [parts](const RunContext& run) {
      // Of every six examples those of the first `parts` workers of three.
      const int64_t rows = 2 * parts * kRounds;
      Tensor x(DType::kFloat32, {rows, 3});
      Tensor label(DType::kInt64, {rows});
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t number = i / (2 * parts) * 6 + i % (2 * parts);
        label.data<int64_t>()[i] = number % 3;
        for (int64_t j = 0; j < 3; ++j) {
          x.data<float>()[3 * i + j] =
              std::sin(static_cast<float>(3 * number + j));
        }
      }
      Dataset all = datasets::FromTensors({{"x", x}, {"label", label}});
      if (run.training()) all = all.Repeat();
      return all.Batch(run.batch_size);
    };
    return spec;
  };
  const auto options = [](int) { return TrainingOptions{.evaluate_every = 0}; };
  Task two{.spec = [&](int) { return of_parts(2); }, .run = ToyRun(1)};
  two.run.batch_size = 4;
  two.run.steps = kRounds;
  two.options = options;
  const std::vector<Trained> ring = TrainWith(2, two);

  std::atomic<int64_t> done[3] = {};
  thread_local int mine = 0;
  Task three{.spec = [&](int) { return of_parts(3); }, .run = two.run};
  three.run.batch_size = 6;
  three.options = [&](int rank) {
    mine = rank;
    return options(rank);
  };
  three.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<AtBegin>([&](TrainingRun& run) {
      if (mine != 2) return;
      for (const Output& variable : run.graph().Variables()) {
        if (!variable.name().ends_with("/contribution_2")) continue;
        Tensor nothing = run.session().Read(variable);
        std::fill_n(nothing.data<float>(), nothing.elements(),
                    std::numeric_limits<float>::quiet_NaN());
        run.session().Write(variable, nothing);
      }
      while (done[0] < kRounds || done[1] < kRounds) Sleep();
    }));
  };
  three.after_step = [&](int rank, TrainingRun& run) {
    CHECK(run.step() == ++done[rank]);
    // Of the input none is behind.
    CHECK(run.examples() == 4 * (rank == 2 ? kRounds : run.step()));
  };
  const std::vector<Trained> all = TrainBacked(2, 3, 1, three);
  for (const Trained& each : all) {
    REQUIRE(each.error == "");
    CHECK(each.result.steps == kRounds);
    // As of when it was known: a fast one's last step is the last.
    CHECK(each.result.dropped == std::vector<int64_t>{0, 0, kRounds});
    CheckVariables(each, ring[0]);
  }
  for (const Trained& each : all) CHECK(each.losses == ring[0].losses);
}

// Two of which one is waited for: the first `first` rounds are rank 0's alone,
// the others rank 1's. By how much each of rank 1's moved the weights, whose
// gradients are means of what dropout leaves of ones.
std::vector<Tensor> MovedByRankOne(int64_t first, int64_t rounds) {
  std::atomic<int64_t> done[2] = {};
  thread_local int mine = 0;
  Task task{.run = ToyRun(1)};
  task.run.batch_size = 8;
  task.run.steps = rounds;
  task.spec = [](int) {
    TrainerSpec spec{.name = "dropped"};
    spec.input = [](const RunContext& run) {
      const Dataset ones = datasets::FromTensors(
          {{"x", Tensor::Full(DType::kFloat32, {8, 32}, 1)}});
      return (run.training() ? ones.Repeat() : ones).Batch(run.batch_size);
    };
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output x =
          layers::Dropout(scope / "dropout", in["x"],
                          {.rate = 0.5, .training = run.training()});
      const Output w = scope.graph().Variable("w", Zeros({32, 1}));
      return ModelSpec{.loss = Mean(MatMul(x, w))};
    };
    spec.optimizer = [](const RunContext&) { return optimizers::Sgd(1); };
    return spec;
  };
  task.options = [](int rank) {
    mine = rank;
    return TrainingOptions{.evaluate_every = 0};
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<AtBegin>([&](TrainingRun&) {
      while (mine == 1 ? done[0] < first : first == 0 && done[1] < rounds) {
        Sleep();
      }
    }));
  };
  Tensor before = Tensor::Zeros(DType::kFloat32, {32, 1});
  std::vector<Tensor> moved;
  task.after_step = [&](int rank, TrainingRun& run) {
    const int64_t step = ++done[rank];
    while (rank == 0 && step == first && done[1] < rounds) Sleep();
    if (rank == 0) return;
    const Tensor now = std::as_const(run).session().Read(run.graph().Get("w"));
    Tensor by = now.Clone();
    for (int64_t i = 0; i < by.elements(); ++i) {
      by.data<float>()[i] -= before.data<float>()[i];
    }
    before = now.Clone();
    if (step > first) moved.push_back(by);
  };
  for (const Trained& each : TrainBacked(1, 2, 1, task)) {
    REQUIRE(each.error == "");
  }
  return moved;
}

TEST_CASE("who went through others' rounds draws dropout by the next step") {
  constexpr int64_t kFirst = 4, kRounds = 9;
  const std::vector<Tensor> all = MovedByRankOne(0, kRounds);
  const std::vector<Tensor> later = MovedByRankOne(kFirst, kRounds);
  REQUIRE(all.size() == kRounds);
  REQUIRE(later.size() == kRounds - kFirst);
  for (size_t i = 0; i < later.size(); ++i) {
    CAPTURE(i);
    // Of quarters, so exact.
    CHECK(later[i].BitEqual(all[i + kFirst]));
    CHECK(!later[i].BitEqual(all[i]));
  }
}

// Each example moves one weight of its own, by 1 in the mean of those admitted.
TEST_CASE("what is applied is what was admitted, whole and once") {
  std::mt19937 random(5);
  for (uint32_t trial = 0; trial < 12; ++trial) {
    const int workers = 2 + static_cast<int>(trial % 4);
    const int64_t backups = static_cast<int64_t>(random() % workers);
    CAPTURE(workers);
    CAPTURE(backups);
    constexpr int64_t kRounds = 15;
    const int64_t rows = workers * kRounds;
    const auto admitted = static_cast<float>(workers - backups);
    Task task{.run = ToyRun(1)};
    task.run.batch_size = workers;
    task.run.steps = kRounds;
    task.spec = [=](int) {
      TrainerSpec spec{.name = "marks"};
      spec.input = [=](const RunContext& run) {
        Tensor x = Tensor::Zeros(DType::kFloat32, {rows, rows});
        for (int64_t i = 0; i < rows; ++i) {
          x.data<float>()[i * rows + i] = admitted;
        }
        return datasets::FromTensors({{"x", x}}).Batch(run.batch_size);
      };
      spec.model = [=](Scope& scope, const Features& in, const RunContext&) {
        Graph& graph = scope.graph();
        // On servers of their own.
        std::vector<Output> terms;
        for (const char* name : {"a", "b"}) {
          const Output w = graph.Variable(name, Zeros({rows, 1}));
          terms.push_back(Mean(MatMul(in["x"], w)));
        }
        return ModelSpec{.loss = terms[0] + terms[1]};
      };
      spec.optimizer = [](const RunContext&) { return optimizers::Sgd(1); };
      return spec;
    };
    task.options = [](int) { return TrainingOptions{.evaluate_every = 0}; };
    task.after_step = [trial](int rank, TrainingRun&) {
      thread_local std::mt19937 mine(trial * 16 + static_cast<uint32_t>(rank));
      if (mine() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 8));
      }
    };
    const std::vector<Trained> all = TrainBacked(2, workers, backups, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckVariables(each, all[0]);
    }
    std::vector<int64_t> dropped(static_cast<size_t>(workers));
    const Tensor& a = all[0].variables.at("a");
    CHECK(a.BitEqual(all[0].variables.at("b")));
    for (int64_t round = 0; round < kRounds; ++round) {
      int64_t in = 0;
      for (int rank = 0; rank < workers; ++rank) {
        const double moved = a.At(round * workers + rank);
        CHECK((moved == 0 || moved == -1));
        in += moved == -1;
        dropped[static_cast<size_t>(rank)] += moved == 0;
      }
      CHECK(in == workers - backups);
    }
    CHECK(all[0].result.dropped == dropped);
    CHECK(SumOf(dropped) == backups * kRounds);
    CHECK(all[0].variables.at("global_step").At(0) == kRounds);
  }
}

TEST_CASE("they meet to save, evaluate and stop, and others go on from it") {
  std::mt19937 random(6);
  for (uint32_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    TemporaryFolder folder;
    const int workers = 2 + static_cast<int>(seed % 3);
    const int64_t backups = static_cast<int64_t>(seed / 3) % workers;
    const ToldAtQuestion token(20 + static_cast<int>(random() % 40));
    Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(1000)};
    task.options = [&](int rank) {
      TrainingOptions options{.log_dir = folder / "log",
                              .save_every = {.steps = 3},
                              .evaluate_every = 0.5,
                              .log_every = 2};
      if (rank == 1) options.stop = &token;
      return options;
    };
    task.after_step = [&](int rank, TrainingRun&) {
      thread_local std::mt19937 mine(seed * 16 + static_cast<uint32_t>(rank));
      if (mine() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 6));
      }
    };
    const std::vector<Trained> all = TrainBacked(2, workers, backups, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CHECK(each.result.steps == all[0].result.steps);
      CHECK(Contains(each.result.interrupted, "told to"));
      CHECK(SumOf(each.result.dropped) == backups * each.result.steps);
      CheckVariables(each, all[0]);
    }
    const int64_t steps = all[0].result.steps;
    CHECK(all[0].variables.at("global_step").At(0) == steps);
    testing::CheckSaved(folder / "log", all[0]);
    // Also one process, which has no such places.
    task.run.steps = steps;
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log"};
    };
    task.after_step = nullptr;
    const Trained alone = TrainWith(1, task)[0];
    CHECK(alone.result.steps == steps);
    CheckVariables(alone, all[0]);
  }
}

TEST_CASE("stopped and gone on with, a training has the same bits") {
  TemporaryFolder folder;
  Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(2)};
  const Trained whole = TrainBacked(2, 2, 0, task)[0];
  int64_t stop = 7;
  task.options = [&](int) {
    return TrainingOptions{.log_dir = folder / "log"};
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<StopAtStep>(stop));
  };
  CHECK(TrainBacked(1, 2, 0, task)[0].result.steps == stop);
  stop = 13;
  CHECK(TrainWith(2, task)[0].result.steps == stop);  // a ring
  stop = 1000;
  CheckVariables(TrainBacked(3, 2, 0, task)[0], whole);
}

TEST_CASE("a loss that is no number ends all") {
  Task task{.spec = [](int) { return testing::TrappedSpec(); },
            .run = ToyRun(20)};
  task.options = [](int) { return TrainingOptions{.log_every = 5}; };
  task.tells_failure = true;
  const std::vector<Trained> all = TrainBacked(1, 3, 1, task);
  for (const Trained& each : all) CHECK(each.error != "");
  CHECK(std::any_of(all.begin(), all.end(), [](const Trained& each) {
    return Contains(each.error, "the loss is");
  }));
}

TEST_CASE("a worker that fails ends the others, which name it") {
  for (const int64_t backups : {0, 1, 2}) {
    for (const bool first : {false, true}) {
      CAPTURE(backups);
      Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1000)};
      task.after_step = [](int rank, TrainingRun& run) {
        if (rank == 1 && run.step() >= 12) {
          throw Error(Code::kUnavailable, "it has had enough");
        }
      };
      thread_local int mine = 0;
      if (first) {
        task.after_step = nullptr;
        task.options = [](int rank) {
          mine = rank;
          return TrainingOptions();
        };
        task.add_hooks = [](Trainer& trainer) {
          trainer.AddHook(std::make_unique<AtBegin>([](TrainingRun&) {
            if (mine == 1) {
              throw Error(Code::kUnavailable, "it has had enough");
            }
          }));
        };
      }
      task.tells_failure = true;
      const std::vector<Trained> all = TrainBacked(1, 3, backups, task);
      CHECK(Contains(all[1].error, "had enough"));
      for (const int rank : {0, 2}) {
        CAPTURE(all[rank].error);
        CHECK(Contains(all[rank].error, "rank 1 of 3 failed"));
      }
    }
  }
}

TEST_CASE("what cannot be is said before the first step") {
  const auto error = [](int64_t backups, const Task& task) {
    const std::vector<Trained> all = TrainBacked(1, 2, backups, task);
    for (const Trained& each : all) CHECK(each.losses.empty());
    return all[0].error;
  };
  const Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  CHECK(Contains(error(2, task), "2 backup workers of 2"));
  CHECK(Contains(error(-1, task), "-1 backup workers"));
  Task wrong = task;
  wrong.options = [](int) {
    return TrainingOptions{.gradients_between = DType::kBFloat16};
  };
  CHECK(Contains(error(1, wrong), "--compress-gradients"));
  wrong.options = [](int) { return TrainingOptions{.virtual_workers = 2}; };
  CHECK(Contains(error(1, wrong), "virtual workers"));
  for (const bool exchanges : {true, false}) {
    wrong = task;
    wrong.spec = [exchanges](int) {
      TrainerSpec spec = PlainSpec();
      spec.model = [exchanges](Scope& scope, const Features& in,
                               const RunContext& run) {
        ModelSpec model = testing::Network(scope, in, run);
        model.loss = exchanges
                         ? AllReduce(model.loss, Reduction::kMean, "met")
                         : model.loss / Cast(NumWorkers(model.loss.graph()),
                                             DType::kFloat32);
        return model;
      };
      return spec;
    };
    const std::string said = error(1, wrong);
    CHECK(Contains(said, "' is for workers that do each step together"));
    if (exchanges) CHECK(Contains(said, "'met'"));
  }
  wrong.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(0.1).WithSparseRows();
    };
    return spec;
  };
  CHECK(Contains(error(1, wrong), "sparse rows"));
  wrong.spec = [](int) { return testing::CentredSpec(); };
  CHECK(Contains(error(1, wrong), "updates 'centre', and the loss is of what"));
}

}  // namespace
}  // namespace sluice
