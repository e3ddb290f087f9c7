// Runs that wait for others' tensors: they hold no thread, and end in whatever
// order what they wait for comes.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"
#include "tests/support/gated_rendezvous.h"
#include "tests/support/scattered_graph.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice::testing {
namespace {

// y = 3 exp(x) + exp(x): to the second device and back.
struct ThereAndBack {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {4});
  Output a = Exp(x), b = a * 3, y = b + a;

  ThereAndBack() {
    a.node().set_device("/cpu:0");
    b.node().set_device("/cpu:1");
    y.node().set_device("/cpu:0");
  }
  SessionOptions Options(int runs, std::shared_ptr<Rendezvous> rendezvous) {
    SessionOptions options;
    options.devices = {"/cpu:0", "/cpu:1"};
    options.fuse = false;
    options.concurrent_runs = runs;
    options.rendezvous = std::move(rendezvous);
    return options;
  }
  static Tensor Value(int i) {
    return Tensor::Full(DType::kFloat32, {4}, 0.01 * i);
  }
  static bool IsFor(const Tensor& y, int i) {
    return std::abs(y.At(3) - 4 * std::exp(0.01 * i)) < 1e-4;
  }
};

int ThreadsOfProcess() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return 0;
}

Code CodeOf(PendingRun& run) {
  try {
    run.Wait();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

TEST_CASE("64 runs that wait hold two threads, and end as their tensors come") {
  SetComputeThreads(2);
  constexpr int kRuns = 64;
  ThereAndBack model;
  const auto gate = std::make_shared<GatedRendezvous>();
  Session session(model.graph, model.Options(kRuns, gate));
  PreparedStep step = session.Prepare({{model.x, {4}}}, {model.y});
  std::mt19937 random(1);
  ParallelFor(2, 1, [](int64_t, int64_t) {});  // the compute threads are there
  const int threads = ThreadsOfProcess();
  for (int round = 0; round < 3; ++round) {
    std::vector<PendingRun> runs;
    std::vector<std::vector<Tensor>> fetches;
    Tensor feed = ThereAndBack::Value(0);
    for (int i = 0; i < kRuns; ++i) {
      std::fill_n(feed.data<float>(), 4, static_cast<float>(0.01 * i));
      fetches.push_back(step.MakeFetches());
      runs.push_back(step.Start(std::vector{feed}, fetches.back()));
    }
    REQUIRE(gate->AwaitWaiting(kRuns));
    CHECK(ThreadsOfProcess() - threads <= 2);
    for (const PendingRun& run : runs) CHECK(run.under_way());
    const std::vector<uint64_t> keys = gate->Waiting();
    REQUIRE(keys.size() == kRuns);
    std::vector<int> order;
    for (int i = 0; i < kRuns; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      gate->Open(keys[i]);
      // All in one go in the second round.
      if (round != 1) runs[i].Wait();
    }
    for (int i = 0; i < kRuns; ++i) {
      runs[i].Wait();
      CHECK_FALSE(runs[i].under_way());
      CHECK(ThereAndBack::IsFor(fetches[i][0], i));
    }
  }
  SetComputeThreads(0);
}

TEST_CASE("runs that wait are cancelled, and later ones are not") {
  ThereAndBack model;
  const auto gate = std::make_shared<GatedRendezvous>();
  Session session(model.graph, model.Options(4, gate));
  PreparedStep step = session.Prepare({{model.x, {4}}}, {model.y});
  for (int round = 0; round < 20; ++round) {
    std::vector<PendingRun> runs;
    std::vector<std::vector<Tensor>> fetches;
    for (int i = 0; i < 4; ++i) {
      fetches.push_back(step.MakeFetches());
      runs.push_back(
          step.Start(std::vector{ThereAndBack::Value(i)}, fetches.back()));
    }
    if (round % 2 == 0) REQUIRE(gate->AwaitWaiting(4));
    session.Cancel();
    for (PendingRun& run : runs) CHECK(CodeOf(run) == Code::kCancelled);
    CHECK(gate->Waiting().empty());
    PendingRun next =
        step.Start(std::vector{ThereAndBack::Value(7)}, fetches[0]);
    REQUIRE(gate->AwaitWaiting(1));
    gate->Open(gate->Waiting()[0]);
    CHECK(CodeOf(next) == Code::kOk);
    CHECK(ThereAndBack::IsFor(fetches[0][0], 7));
  }
}

TEST_CASE("a run that nobody wakes ends at its deadline") {
  ThereAndBack model;
  for (const bool lost : {true, false}) {
    // What comes is not told of, either.
    const auto deaf = std::make_shared<WildRendezvous>(
        WildRendezvous::Options{.delay_us = 2000,
                                .loss = lost ? 1.0 : 0.0,
                                .silently = true,
                                .wakes = 0});
    SessionOptions options = model.Options(3, deaf);
    options.deadline = std::chrono::milliseconds(40);
    Session session(model.graph, options);
    PreparedStep step = session.Prepare({{model.x, {4}}}, {model.y});
    for (int round = 0; round < 3; ++round) {
      std::vector<PendingRun> runs;
      std::vector<std::vector<Tensor>> fetches;
      for (int i = 0; i < 3; ++i) {
        fetches.push_back(step.MakeFetches());
        runs.push_back(
            step.Start(std::vector{ThereAndBack::Value(i)}, fetches.back()));
      }
      for (PendingRun& run : runs) {
        const Code code = CodeOf(run);
        CHECK(
            (code == Code::kDeadlineExceeded || (!lost && code == Code::kOk)));
      }
    }
    CHECK(deaf->counts().unsettled == 0);
    CHECK(deaf->counts().misused == 0);
  }
}

bool Writes(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->mutates() > 0 && !node->op().initializes) return true;
  }
  return false;
}

TEST_CASE("whoever wakes late or often, started runs have one device's bits") {
  int graphs = 0;
  for (uint32_t seed = 1; seed <= 300 && graphs < 60; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/cpu:0"});
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    if (Writes(scattered.graph)) continue;
    ++graphs;
    const std::vector<Output>& fetched = scattered.random.fetches();
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    single.Initialize();
    const std::vector<Tensor> wanted =
        single.Run(gathered.random.Feeds(), gathered.random.fetches());

    const auto wild = std::make_shared<WildRendezvous>(
        WildRendezvous::Options{.seed = seed,
                                .delay_us = 40,
                                .tells = seed % 5 != 0,
                                .wakes = 1 + static_cast<int>(seed % 3)});
    SessionOptions options = scattered.Options(/*fuse=*/false, wild);
    options.concurrent_runs = 1 + static_cast<int>(seed % 4);
    if (seed % 4 == 0) options.executor = ExecutorMode::kChecked;
    Session session(scattered.graph, options);
    session.Initialize();
    std::vector<FeedShape> shapes;
    std::vector<Tensor> feeds;
    for (const Feed& feed : scattered.random.Feeds()) {
      shapes.push_back({feed.output, feed.value.shape()});
      feeds.push_back(feed.value);
    }
    PreparedStep step = session.Prepare(shapes, fetched);
    std::vector<PendingRun> runs;
    std::vector<std::vector<Tensor>> got;
    for (int i = 0; i < 8; ++i) {
      got.push_back(step.MakeFetches());
      runs.push_back(step.Start(feeds, got.back()));
    }
    for (int i = 8; i-- > 0;) {
      runs[i].Wait();
      CheckSameBits(got[i], wanted);
    }
    CHECK(wild->counts().unsettled == 0);
    CHECK(wild->counts().misused == 0);
  }
  CHECK(graphs >= 30);
}

TEST_CASE("a session and its steps may go while runs wait") {
  for (int round = 0; round < 10; ++round) {
    ThereAndBack model;
    const auto gate = std::make_shared<GatedRendezvous>();
    SessionOptions options = model.Options(3, gate);
    options.plan_cache_size = 1;
    auto session = std::make_unique<Session>(model.graph, options);
    for (int i = 0; i < 3; ++i) {
      // Out of the cache and of our hands with the next one.
      PreparedStep step = session->Prepare(
          {{model.x, {4}}},
          i == 1 ? std::vector{model.b, model.y} : std::vector{model.y});
      std::vector<Tensor> fetches = step.MakeFetches();
      step.Start(std::vector{ThereAndBack::Value(i)}, fetches);
    }
    if (round % 2 == 0) {
      REQUIRE(gate->AwaitWaiting(3));
      for (const uint64_t run : gate->Waiting()) gate->Open(run);
      CHECK(session->arena_bytes() > 0);  // when all have ended
    }
    session.reset();
    CHECK(gate->Waiting().empty());
  }
}

TEST_CASE("an error of a run that goes on is thrown by who waits, or next") {
  Graph graph;
  const Output i = graph.Placeholder("i", DType::kInt64, {1});
  const Output n = graph.Variable("n", Zeros({}, DType::kInt64));
  const Output table = graph.Constant(Tensor::Zeros(DType::kFloat32, {3}));
  const Output a = Gather(table, i), b = a + 1;
  const Output add = AssignAdd(n, 1);
  for (const Output& here : {a, n, add}) here.node().set_device("/cpu:0");
  b.node().set_device("/cpu:1");
  SessionOptions options;
  options.devices = {"/cpu:0", "/cpu:1"};
  Session session(graph, options);
  session.Initialize();
  PreparedStep step = session.Prepare({{i, {1}}}, {b}, {Operation(add)});
  std::vector<Tensor> fetches = step.MakeFetches();
  const auto start = [&](int64_t index) {
    return step.Start(std::vector{Tensor::Full(DType::kInt64, {1}, index)},
                      fetches);
  };
  start(1).Wait();
  CHECK(session.step() == 1);
  PendingRun bad = start(9);
  CHECK(Contains(ErrorOf([&] { bad.Wait(); }), "Gather"));
  CHECK_FALSE(ErrorOf([&] { bad.Wait(); }).empty());
  CHECK(session.step() == 1);
  start(2).Wait();
  start(9);
  CHECK(Contains(ErrorOf([&] { start(1); }), "Gather"));  // of the one before
  start(1).Wait();
  CHECK(fetches[0].At(0) == 1);
  step.Run(std::vector{Tensor::Full(DType::kInt64, {1}, 2)}, fetches);
  CHECK(session.step() == 4);
}

}  // namespace
}  // namespace sluice::testing
