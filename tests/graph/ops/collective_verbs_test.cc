// Graphs of all collectives, run by threads that are workers, against loops
// over all workers' values in double, and gradients against differences of
// these.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/trace.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/dist/collective/ranks.h"
#include "tests/graph/ops/verbs.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using dist::testing::Groups;
using dist::testing::InThreads;
using dist::testing::JoinAll;
using dist::testing::JoinEach;
using dist::testing::Watchdog;
using namespace testing;  // NOLINT: verbs.h

// A verb over value `a`, or with `local` what a worker makes of two values.
struct Line {
  bool local = false;
  Verb verb = Verb::kAllReduce;
  size_t a = 0, b = 0;
  int root = 0;
  size_t group = 0;
};

// Value 0 is x; line i makes value i + 1. Values are rows of kColumns elements.
constexpr int64_t kColumns = 2;
struct Program {
  int workers = 1;
  int64_t rows = 0;  // of x
  std::vector<Line> lines;
};

// `grouped`: four workers meet in rows and columns, too.
Program RandomProgram(int workers, std::mt19937& random, bool grouped = true) {
  Program program;
  program.workers = workers;
  const int64_t part = 1 + static_cast<int64_t>(random() % 2);
  program.rows = random() % 8 == 0 ? 0 : workers * part;
  std::vector<int64_t> rows = {program.rows};
  while (program.lines.size() < 12) {
    Line line;
    line.a = random() % rows.size();
    line.b = random() % rows.size();
    line.group = workers == 4 && grouped ? random() % 3 : 0;
    const int meeting =
        static_cast<int>(PartsOf(line.group, workers)[0].size());
    line.root = static_cast<int>(random() % At(meeting));
    line.verb = static_cast<Verb>(random() % kVerbs);
    line.local = random() % 4 == 0;
    int64_t made = rows[line.a];
    if (line.local) {
      if (rows[line.b] != made) line.b = line.a;
    } else if (line.verb == Verb::kGather) {
      made *= meeting;
      if (made > 40) continue;
    } else if (line.verb == Verb::kScatter || line.verb == Verb::kScatterMean ||
               line.verb == Verb::kTrade) {
      if (made % meeting != 0) continue;
      if (line.verb != Verb::kTrade) made /= meeting;
    }
    rows.push_back(made);
    program.lines.push_back(line);
  }
  return program;
}

// How much element i of value v counts in the loss of a worker.
double WeightOf(size_t v, size_t i, int rank) {
  return std::sin(static_cast<double>(3 * v + 7 * i) + rank);
}

// The values of all lines, of all workers.
std::vector<Values> ValuesOf(const Program& program, const Values& x) {
  std::vector<Values> values = {x};
  for (const Line& line : program.lines) {
    if (!line.local) {
      values.push_back(AppliedIn(PartsOf(line.group, program.workers),
                                 line.verb, values[line.a], line.root));
      continue;
    }
    Values y = values[line.a];
    for (size_t rank = 0; rank < y.size(); ++rank) {
      for (size_t i = 0; i < y[rank].size(); ++i) {
        y[rank][i] =
            std::tanh(0.3 * y[rank][i] * (1.0 + static_cast<double>(rank)) -
                      values[line.b][rank][i]);
      }
    }
    values.push_back(std::move(y));
  }
  return values;
}

// Of all workers together.
double LossOf(const Program& program, const Values& x) {
  double loss = 0;
  const std::vector<Values> values = ValuesOf(program, x);
  for (size_t v = 1; v < values.size(); ++v) {
    for (int rank = 0; rank < program.workers; ++rank) {
      const auto& mine = values[v][At(rank)];
      for (size_t i = 0; i < mine.size(); ++i) {
        loss += WeightOf(v, i, rank) * std::sin(mine[i]);
      }
    }
  }
  return loss;
}

Tensor TensorOf(const std::vector<double>& values, DType dtype) {
  Tensor tensor(DType::kFloat64,
                {static_cast<int64_t>(values.size()) / kColumns, kColumns});
  std::copy(values.begin(), values.end(), tensor.data<double>());
  return tensor.Cast(dtype);
}

// Holds up a worker at some instructions, others in each run; of several
// devices on their threads.
class Dawdler final : public Observer {
 public:
  explicit Dawdler(uint32_t seed) : calls_(seed) {}
  Status AfterInstruction(const RanInstruction&) override {
    const uint32_t call = calls_.fetch_add(0x9e3779b9u);
    if ((call >> 16) % 8 == 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds((call >> 20) % 400));
    }
    return {};
  }

 private:
  std::atomic<uint32_t> calls_;
};

// What a worker has: the values of all lines, and the gradient of x. Where the
// session has several devices they share out the lines.
std::vector<Tensor> RunAsWorker(const Program& program, int rank,
                                const Tensor& x_value,
                                const SessionOptions& options, bool slow) {
  Graph graph;
  const Output x =
      graph.Placeholder("x", x_value.dtype(), {kUnknown, kColumns});
  // The graph is the same for all.
  const Output factor = graph.Placeholder("factor", x_value.dtype(), {});
  std::vector<Feed> feeds = {{x, x_value}};
  feeds.push_back({factor, Tensor::Scalar(1.0 + rank).Cast(x_value.dtype())});
  std::vector<Output> values = {x};
  Output loss;
  for (const Line& line : program.lines) {
    const DeviceScope there(graph,
                            options.devices[(values.size() * 5 / 3 + At(rank)) %
                                            options.devices.size()]);
    const Output& a = values[line.a];
    values.push_back(line.local
                         ? Tanh(0.3 * a * factor - values[line.b])
                         : Apply(line.verb, a, line.root, kGroups[line.group]));
  }
  const std::vector<Values> shaped = ValuesOf(
      program, Values(At(program.workers),
                      std::vector<double>(
                          static_cast<size_t>(program.rows * kColumns), 0)));
  for (size_t v = 1; v < values.size(); ++v) {
    std::vector<double> weights(shaped[v][At(rank)].size());
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = WeightOf(v, i, rank);
    }
    const Tensor weight = TensorOf(weights, x_value.dtype());
    const Output fed = graph.Placeholder(fmt::format("weight_{}", v),
                                         weight.dtype(), weight.shape());
    feeds.push_back({fed, weight});
    const Output term = Sum(fed * Sin(values[v]));
    loss = loss.valid() ? loss + term : term;
  }
  std::vector<Output> fetches(values.begin() + 1, values.end());
  fetches.push_back(Gradients({loss}, {x})[0]);
  Session session(graph, options);
  Dawdler dawdler(static_cast<uint32_t>(rank * 77 + program.rows));
  if (slow) session.SetObserver(&dawdler);
  std::vector<Tensor> results;
  for (int run = 0; run < 2; ++run) results = session.Run(feeds, fetches);
  return results;
}

// Elements apart by more than rounding.
int64_t Apart(const Tensor& got, const std::vector<double>& wanted,
              double slack) {
  if (got.elements() != static_cast<int64_t>(wanted.size())) return -1;
  int64_t apart = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double want = wanted[static_cast<size_t>(i)];
    const double off = std::abs(got.At(i) - want);
    apart += !(off <= slack * (1 + std::abs(want)));
  }
  return apart;
}

TEST_CASE("each worker knows which one it is, in each of its groups") {
  Graph graph;
  std::vector<Output> ranks;
  for (const char* group : kGroups) {
    ranks.push_back(WorkerRank(graph, "rank", group));
  }
  Session alone(graph);
  CHECK(alone.Run({}, ranks[0]).IntAt(0) == 0);
  for (const int workers : {1, 3, 4}) {
    CAPTURE(workers);
    const Watchdog watchdog;
    Groups groups = JoinAll(workers);
    InThreads(workers, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      ThrowIfError(Split(*groups[i]));
      SessionOptions options;
      options.collective = std::move(groups[i]);
      Session session(graph, options);
      const size_t known = workers == 4 ? 3 : 1;
      for (size_t group = 0; group < known; ++group) {
        const int64_t got = session.Run({}, ranks[group]).IntAt(0);
        for (const Ranks& part : PartsOf(group, workers)) {
          const auto mine = std::find(part.begin(), part.end(), rank);
          if (mine != part.end()) CHECK(got == mine - part.begin());
        }
      }
      if (known == 3) return;
      CHECK_THROWS_AS(session.Run({}, ranks[1]), Error);
    });
  }
}

// A program with what each worker begins with, and what came of it.
struct Trial {
  Program program;
  Values x;
  std::vector<std::vector<Tensor>> got;

  Trial(Program p, std::mt19937& random)
      : program(std::move(p)), x(At(program.workers)), got(x.size()) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (auto& mine : x) {
      mine.resize(static_cast<size_t>(program.rows * kColumns));
      for (double& element : mine) element = uniform(random);
    }
  }
  void Run(int rank, const SessionOptions& options, bool slow) {
    got[At(rank)] = RunAsWorker(
        program, rank, TensorOf(x[At(rank)], DType::kFloat64), options, slow);
  }
  // Returns how many slopes there are.
  int Check() const {
    int slopes_there = 0;
    const std::vector<Values> wanted = ValuesOf(program, x);
    for (int rank = 0; rank < program.workers; ++rank) {
      CAPTURE(rank);
      REQUIRE(got[At(rank)].size() == program.lines.size() + 1);
      for (size_t i = 0; i < program.lines.size(); ++i) {
        CAPTURE(i);
        CHECK(Apart(got[At(rank)][i], wanted[i + 1][At(rank)], 1e-12) == 0);
      }
      std::vector<double> slopes = x[At(rank)];
      for (size_t i = 0; i < slopes.size(); ++i) {
        constexpr double kStep = 1e-5;
        Values up = x, down = x;
        up[At(rank)][i] += kStep;
        down[At(rank)][i] -= kStep;
        slopes[i] = (LossOf(program, up) - LossOf(program, down)) / (2 * kStep);
        slopes_there += slopes[i] != 0;
      }
      CHECK(Apart(got[At(rank)].back(), slopes, 1e-6) == 0);
    }
    return slopes_there;
  }
};

constexpr dist::Overlap kOverlaps[] = {dist::Overlap::kOn, dist::Overlap::kOff};

Groups JoinOverlapping(int workers, int trial) {
  return JoinEach(workers, [&](int rank) {
    dist::GroupOptions options;
    options.overlap = kOverlaps[(trial + rank) % 2];
    return options;
  });
}

// Workers may differ in how they run their steps.
SessionOptions OptionsOf(int rank, int trial) {
  constexpr ExecutorMode kModes[] = {
      ExecutorMode::kDataflow, ExecutorMode::kSerial, ExecutorMode::kChecked};
  SessionOptions options;
  options.executor = kModes[(rank + trial / 3) % 3];
  options.fuse = options.simplify = rank != 1;
  options.devices = {"/cpu:0"};
  if ((rank + trial) % 3 == 0) options.devices.emplace_back("/cpu:1");
  return options;
}

}  // namespace

TEST_CASE("random graphs of all collectives: values and gradients") {
  std::mt19937 random(1);
  SetComputeThreads(2);
  int gradients = 0;
  for (int i = 0; i < Rounds(60); ++i) {
    const int workers = 2 + i % 3;
    Trial trial(RandomProgram(workers, random), random);
    Groups groups = JoinOverlapping(workers, i);
    const Watchdog watchdog;
    InThreads(workers, [&](int rank) {
      ThrowIfError(Split(*groups[At(rank)]));
      SessionOptions options = OptionsOf(rank, i);
      options.collective = std::move(groups[At(rank)]);
      trial.Run(rank, options, /*slow=*/(i + rank) % 4 == 0);
    });
    CAPTURE(i);
    gradients += trial.Check();
  }
  CHECK(gradients > Rounds(300));
  SetComputeThreads(0);
}

// Each worker has three at a time, in the job and in two parts of it.
TEST_CASE("runs under way in several groups at the same time") {
  std::mt19937 random(2);
  SetComputeThreads(2);
  constexpr int kWorkers = 4, kRuns = 3;
  for (int i = 0; i < Rounds(8); ++i) {
    // The job's, those of rows and those of columns.
    std::vector<Trial> trials;
    for (const int workers : {4, 2, 2, 2, 2}) {
      trials.emplace_back(RandomProgram(workers, random, /*grouped=*/false),
                          random);
    }
    Groups groups = JoinOverlapping(kWorkers, i);
    const Watchdog watchdog;
    InThreads(kWorkers, [&](int rank) {
      dist::Group& job = *groups[At(rank)];
      ThrowIfError(Split(job));
      InThreads(kRuns, [&](int run) {
        dist::Group& group =
            run == 0 ? job : *job.Subgroup(kGroups[static_cast<size_t>(run)]);
        const int trial = run == 0 ? 0 : run == 1 ? 1 + rank / 2 : 3 + rank % 2;
        SessionOptions options = OptionsOf(rank + run, i);
        options.collective =
            std::shared_ptr<Collective>(std::shared_ptr<void>(), &group);
        trials[static_cast<size_t>(trial)].Run(group.rank(), options,
                                               /*slow=*/run == i % kRuns);
      });
    });
    CAPTURE(i);
    for (const Trial& trial : trials) trial.Check();
  }
  SetComputeThreads(0);
}

// Small whole numbers, which every dtype has and every sum keeps.
TEST_CASE("collectives of every dtype") {
  constexpr DType kAll[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                            DType::kBFloat16, DType::kInt32,   DType::kInt64,
                            DType::kUInt8,    DType::kBool};
  for (const DType dtype : kAll) {
    for (int kind = 0; kind < kVerbs; ++kind) {
      const Verb verb = static_cast<Verb>(kind);
      const bool moves = verb == Verb::kGather || verb == Verb::kTrade ||
                         verb == Verb::kBroadcast;
      const bool sums = verb == Verb::kScatter || verb == Verb::kReduce ||
                        verb == Verb::kAllReduce;
      if (!moves && !IsFloating(dtype) && !(sums && kIndex.Contains(dtype))) {
        continue;
      }
      CAPTURE(NameOf(dtype));
      CAPTURE(kind);
      constexpr int kWorkers = 2;
      Values x(kWorkers, std::vector<double>(8 * kColumns));
      for (size_t rank = 0; rank < x.size(); ++rank) {
        for (size_t i = 0; i < x[rank].size(); ++i) {
          x[rank][i] = static_cast<double>((i * (rank + 3)) % 7 * 2);
          if (dtype == DType::kBool) x[rank][i] = x[rank][i] > 5;
        }
      }
      Groups groups = JoinAll(kWorkers);
      std::vector<Tensor> got(kWorkers);
      const Watchdog watchdog;
      InThreads(kWorkers, [&](int rank) {
        Graph graph;
        const Output fed = graph.Placeholder("x", dtype, {kUnknown, kColumns});
        const Output y = Apply(verb, fed, /*root=*/1);
        SessionOptions options;
        options.collective = std::move(groups[At(rank)]);
        Session session(graph, options);
        got[At(rank)] = session.Run({{fed, TensorOf(x[At(rank)], dtype)}}, y);
      });
      const Values wanted = Applied(verb, x, /*root=*/1);
      for (int rank = 0; rank < kWorkers; ++rank) {
        CHECK(got[At(rank)].dtype() == dtype);
        CHECK(Apart(got[At(rank)], wanted[At(rank)], 0) == 0);
      }
    }
  }
}

TEST_CASE("one worker has its own x of every collective") {
  const Tensor value = TensorOf({1, 2, 3, 4, 5, 6}, DType::kFloat32);
  for (int kind = 0; kind < kVerbs; ++kind) {
    CAPTURE(kind);
    for (const bool grouped : {false, true}) {
      Graph graph;
      const Output x =
          graph.Placeholder("x", DType::kFloat32, {kUnknown, kColumns});
      const Output y = Apply(static_cast<Verb>(kind), x, 0);
      const Output dx = Gradients({Sum(y * 3)}, {x})[0];
      SessionOptions options;
      if (grouped) options.collective = dist::Group::Alone();
      Session session(graph, options);
      const auto got = session.Run({{x, value}}, {y, dx, NumWorkers(graph)});
      CHECK(got[0].BitEqual(value));
      for (int64_t i = 0; i < value.elements(); ++i) CHECK(got[1].At(i) == 3);
      CHECK(got[2].At(0) == 1);
    }
  }
}

}  // namespace sluice
