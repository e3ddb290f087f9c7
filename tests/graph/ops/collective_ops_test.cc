// Ops in which workers meet: values, gradients, order, and what is keyed by
// replica. Workers are threads.
#include "graph/ops/collective.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

#include "engine/runtime/trace.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/initializers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using dist::testing::InThreads;
using dist::testing::JoinAll;
using testing::Contains;
using testing::ErrorOf;

SessionOptions With(std::unique_ptr<dist::Group>& group) {
  SessionOptions options;
  options.collective = std::move(group);
  return options;
}

Tensor Ramp(int rank, const Shape& shape) {
  Tensor x(DType::kFloat32, shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((rank + 1) * (i % 13) - i % 5);
  }
  return x;
}

TEST_CASE("one worker's all-reduce changes nothing") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {3});
  const Output y = AllReduce(x, Reduction::kSum) + AllReduce(x);
  Session session(graph);
  const Tensor value = session.Run({{x, Ramp(0, {3})}}, y);
  for (int64_t i = 0; i < 3; ++i) CHECK(value.At(i) == 2 * Ramp(0, {3}).At(i));
}

TEST_CASE("values and gradients over workers") {
  constexpr int kWorkers = 3;
  const Shape shape = {5, 7};
  auto groups = JoinAll(kWorkers);
  std::vector<std::vector<Tensor>> results(kWorkers);
  const dist::testing::Watchdog watchdog;
  InThreads(kWorkers, [&](int rank) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, shape);
    const Output sum = AllReduce(x, Reduction::kSum);
    const Output mean = AllReduce(x);
    // Each worker makes something else of them.
    const Output loss =
        Sum(sum * sum * (rank + 1.0f)) + Sum(mean * mean * mean);
    const Output dx = Gradients({loss}, {x})[0];
    Session session(graph, With(groups[static_cast<size_t>(rank)]));
    results[static_cast<size_t>(rank)] =
        session.Run({{x, Ramp(rank, shape)}}, {sum, mean, dx});
  });
  for (int64_t i = 0; i < shape.elements(); ++i) {
    double sum = 0, of_sum = 0;
    for (int rank = 0; rank < kWorkers; ++rank) {
      sum += Ramp(rank, shape).At(i);
    }
    const double mean = sum / kWorkers;
    // Of all losses added up, by any worker's x.
    for (int rank = 0; rank < kWorkers; ++rank) of_sum += 2 * sum * (rank + 1);
    const double dx = of_sum + 3 * mean * mean;
    for (const auto& result : results) {
      CHECK(result[0].At(i) == doctest::Approx(sum));
      CHECK(result[1].At(i) == doctest::Approx(mean));
      CHECK(result[2].At(i) == doctest::Approx(dx));
    }
  }
}

// Every collective of an x of n elements that all workers have alike, or a few
// of them, so that x comes out again. `kind` says which, `root` who has it in
// between.
Output ThereAndBack(uint32_t kind, const Output& x, int64_t n, int workers,
                    int root) {
  switch (kind) {
    case 0:
      return AllReduce(x);
    case 1:
      return ReduceScatter(AllGather(x));
    case 2:
      return Broadcast(x, root);
    case 3:
      return Broadcast(Reduce(x, root), root) /
             Cast(NumWorkers(x.graph()), x.dtype());
    case 4:  // what is for another comes back
      if (n % workers != 0) return x;
      return AllToAll(AllToAll(x));
    default: {  // as gradients are joined
      const Output both =
          AllReduce(Concat({Reshape(x, {-1}), Reshape(x * 2, {-1})}, 0));
      return Slice(both, {n}, {n}) - Slice(both, {0}, {n});
    }
  }
}

// A graph of elementwise ops and collectives, the same for a seed.
Output RandomGraph(uint32_t seed, const Output& x, int workers) {
  const int64_t n = x.shape().elements();
  std::mt19937 random(seed);
  std::vector<Output> values = {x};
  for (int i = 0; i < 30; ++i) {
    const Output a = values[random() % values.size()];
    const Output b = values[random() % values.size()];
    const uint32_t kind = random() % 6;
    const auto root = static_cast<int>(random() % 2) % workers;
    switch (random() % 4) {
      case 0:
      case 1:
        values.push_back(ThereAndBack(kind, a, n, workers, root));
        break;
      case 2:
        values.push_back(Tanh(a + b));
        break;
      default:
        values.push_back(a * 0.5f - b);
    }
  }
  return Stack(values);
}

// Nothing but the order in which they were added says which of two comes first.
// All workers have the same x, so that every mean is what one worker has alone.
TEST_CASE("collectives have one order on all workers, whoever does them") {
  std::mt19937 random(1);
  SetComputeThreads(2);
  constexpr dist::Overlap kOverlaps[] = {dist::Overlap::kOn,
                                         dist::Overlap::kOff};
  for (int trial = 0; trial < 40; ++trial) {
    const int workers = 2 + trial % 3;
    const uint32_t seed = random();
    const int64_t n = trial % 4 == 0 ? 20000 : trial % 7;  // also none
    Graph alone;
    const Output x0 = alone.Placeholder("x", DType::kFloat32, {n});
    const Output y0 = RandomGraph(seed, x0, /*workers=*/1);
    Session reference(alone, {.simplify = false, .fuse = false});
    const Tensor wanted = reference.Run({{x0, Ramp(0, {n})}}, y0);
    auto groups = dist::testing::JoinEach(workers, [&](int rank) {
      dist::GroupOptions options;
      options.overlap = kOverlaps[(trial + rank) % 2];
      return options;
    });
    std::vector<Tensor> values(static_cast<size_t>(workers));
    const dist::testing::Watchdog watchdog;
    InThreads(workers, [&](int rank) {
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {n});
      const Output y = RandomGraph(seed, x, workers);
      SessionOptions options = With(groups[static_cast<size_t>(rank)]);
      // They may differ in how they run them.
      options.executor =
          rank == 0 ? ExecutorMode::kDataflow : ExecutorMode::kSerial;
      options.fuse = rank != 1;
      Session session(graph, options);
      for (int run = 0; run < 3; ++run) {
        values[static_cast<size_t>(rank)] = session.Run({{x, Ramp(0, {n})}}, y);
      }
    });
    for (const Tensor& value : values) {
      REQUIRE(value.elements() == wanted.elements());
      bool same = true;
      for (int64_t i = 0; i < value.elements(); ++i) {
        same &=
            value.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-4).scale(1);
      }
      CHECK(same);
    }
  }
  SetComputeThreads(0);
}

// Each alone of what it is made of is fed.
TEST_CASE("a step has the collectives that it needs, in the graph's order") {
  const dist::testing::Watchdog watchdog;
  constexpr int kWorkers = 3;
  constexpr size_t kSums = 12;
  auto groups = dist::testing::JoinAll(kWorkers, {});
  std::vector<int> right(kWorkers), wrong(kWorkers);
  InThreads(kWorkers, [&](int rank) {
    const auto self = static_cast<size_t>(rank);
    Graph graph;
    std::vector<Output> x, sums;
    for (size_t i = 0; i < kSums; ++i) {
      x.push_back(graph.Placeholder("x", DType::kFloat32, {2}));
      sums.push_back(Identity(AllReduce(x[i], Reduction::kSum)) *
                     static_cast<float>(i));
    }
    SessionOptions options = With(groups[self]);
    options.executor =
        rank == 0 ? ExecutorMode::kDataflow : ExecutorMode::kSerial;
    options.simplify = rank != 1;
    Session session(graph, options);
    std::mt19937 random(1);  // the same on all
    for (int step = 0; step < 30; ++step) {
      std::vector<Feed> feeds;
      std::vector<Output> fetches;
      std::vector<float> wanted;
      for (size_t i = 0; i < kSums; ++i) {
        if (random() % 3 == 0) continue;
        const auto value = static_cast<float>(random() % 100);
        const float own = value + static_cast<float>(rank);
        feeds.push_back({x[i], Tensor::Full(DType::kFloat32, {2}, own)});
        fetches.push_back(sums[i]);
        wanted.push_back((kWorkers * value + 3) * static_cast<float>(i));
      }
      std::vector<size_t> order(fetches.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(),
                   std::mt19937(static_cast<uint32_t>(rank)));
      std::vector<Output> shuffled;
      for (const size_t i : order) shuffled.push_back(fetches[i]);
      const std::vector<Tensor> got = session.Run(feeds, shuffled);
      for (size_t i = 0; i < got.size(); ++i) {
        ++(got[i].At(1) == wanted[order[i]] ? right : wrong)[self];
      }
    }
  });
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    CHECK(right[rank] > 100);
    CHECK(wrong[rank] == 0);
  }
}

// Fails a step at its nth instruction.
class FailingObserver final : public Observer {
 public:
  explicit FailingObserver(int at) : left_(at) {}
  Status AfterInstruction(const RanInstruction&) override {
    return left_-- == 0 ? Cancelled("no more") : Status();
  }
  int left_;
};

// At every place, also between a start and its wait: what is under way ends,
// both ranks have an error, and nothing hangs.
TEST_CASE("a step that fails with collectives under way") {
  const dist::testing::Watchdog watchdog;
  int failed = 0;
  for (int at = 0; at < 200; ++at) {
    auto groups = dist::testing::JoinEach(2, [&](int) {
      dist::GroupOptions options;
      options.overlap = dist::Overlap::kOn;
      return options;
    });
    bool fails[2] = {false, false};
    InThreads(2, [&](int rank) {
      Graph graph;
      const Shape shape = {20000};
      const Output x = graph.Placeholder("x", DType::kFloat32, shape);
      const Output y = RandomGraph(17, x, /*workers=*/2);
      dist::Group& group = *groups[static_cast<size_t>(rank)];
      Session session(graph, With(groups[static_cast<size_t>(rank)]));
      FailingObserver observer(rank == 1 ? at : -1);
      session.SetObserver(&observer);
      const std::string error = ErrorOf([&] {
        session.Run({{x, Ramp(0, shape)}}, y);
      });
      fails[rank] = error != "(no error)";
      if (rank == 1 && fails[rank]) {
        CHECK(Contains(error, "no more"));
        group.Leave(Cancelled(error));
      }
      // As the next step would.
      const Status next = group.Barrier("next");
      if (rank == 0) {
        fails[0] |= !next.ok();
        CHECK(group.status().ok() == !fails[0]);
        if (fails[0]) CHECK(Contains(group.status().message(), "rank 1 of 2"));
      }
    });
    CHECK(fails[0] == fails[1]);
    if (!fails[1]) break;  // it has fewer instructions
    ++failed;
  }
  CHECK(failed > 30);
}

TEST_CASE("steps' randomness differs by worker, first values do not") {
  auto groups = JoinAll(2);
  std::vector<std::vector<Tensor>> drawn(2);
  InThreads(2, [&](int rank) {
    Graph graph;
    const Output first = graph.Variable(
        "first", initializers::HeNormal()({10, 10}, DType::kFloat32));
    const Output random = RandomUniform(graph, {100});
    Session session(graph, With(groups[static_cast<size_t>(rank)]));
    session.Initialize();
    drawn[static_cast<size_t>(rank)] = session.Run({}, {first, random});
  });
  CHECK(drawn[0][0].BitEqual(drawn[1][0]));
  CHECK(!drawn[0][1].BitEqual(drawn[1][1]));
}

TEST_CASE("what differs between workers is an error on both") {
  auto groups = JoinAll(2);
  std::vector<std::string> errors(2);
  InThreads(2, [&](int rank) {
    Graph graph;
    const Output x = graph.Constant(Ramp(0, {3 + rank}));
    const Output y = AllReduce(x);
    Session session(graph, With(groups[static_cast<size_t>(rank)]));
    errors[static_cast<size_t>(rank)] = ErrorOf([&] { session.Run({}, y); });
  });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(Contains(error, "all_reduce"));
    CHECK(Contains(error, "rank 0"));
    CHECK(Contains(error, "rank 1"));
  }
}

TEST_CASE("integers are added up, and have no mean") {
  auto groups = JoinAll(2);
  std::vector<std::string> errors(2);
  InThreads(2, [&](int rank) {
    Graph graph;
    const Output x = graph.Constant(Tensor::Vector<int64_t>(
        std::vector<int64_t>{rank + 1, int64_t{1} << 53}));
    Session session(graph, With(groups[static_cast<size_t>(rank)]));
    const Tensor sum = session.Run({}, AllReduce(x, Reduction::kSum));
    CHECK(sum.IntAt(0) == 3);
    CHECK(sum.IntAt(1) == int64_t{1} << 54);
    errors[static_cast<size_t>(rank)] = ErrorOf([&] { AllReduce(x); });
  });
  for (const std::string& error : errors) {
    CHECK(Contains(error, "int64 has no mean"));
  }
}

TEST_CASE("a session in a group has one run at a time") {
  Graph graph;
  SessionOptions options;
  options.collective = dist::Group::Alone();
  options.concurrent_runs = 2;
  CHECK(Contains(ErrorOf([&] { Session session(graph, options); }),
                 "one run at a time"));
}

}  // namespace
}  // namespace sluice
