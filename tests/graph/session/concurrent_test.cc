// Several runs of one session under way at the same time.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "engine/runtime/trace.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/concurrent_runs.h"
#include "tests/support/error_text.h"
#include "tests/support/scattered_graph.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice::testing {
namespace {

TEST_CASE("runs at the same time have the bits of runs one by one") {
  int graphs = 0;
  for (uint32_t seed = 1; seed <= 200 && graphs < 60; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(
        seed,
        seed % 3 == 0 ? std::vector<std::string>{"/cpu:0"} : SomeCpus(seed));
    if (Writes(scattered.graph)) continue;
    ++graphs;
    SessionOptions options = scattered.Options(/*fuse=*/seed % 2 == 0);
    options.executor =
        std::vector<ExecutorMode>{ExecutorMode::kAuto, ExecutorMode::kDataflow,
                                  ExecutorMode::kChecked}[seed % 3];
    const SessionOptions one_by_one = options;
    std::shared_ptr<WildRendezvous> wild;
    if (seed % 5 < 3) {
      wild = std::make_shared<WildRendezvous>(
          WildRendezvous::Options{.seed = seed, .delay_us = 30});
      options.rendezvous = wild;
    }
    options.concurrent_runs = 2 + static_cast<int>(seed) % 3;
    CheckConcurrentRuns(scattered, seed, one_by_one, options);
    if (wild != nullptr) {
      CHECK(wild->counts().unsettled == 0);
      CHECK(wild->counts().misused == 0);
    }
  }
  CHECK(graphs >= 30);
}

// Runs that meet: each waits until `wanted` of them have been here at once.
struct Meeting {
  std::atomic<int> wanted = 0, here = 0, most = 0;
  std::atomic<bool> given_up = false;
} meeting;

Output Meet(const Output& x) {
  static const bool registered = [] {
    OpTable::Global().Register({.name = "Meet",
                                .doc = "y = x, when enough runs are here.",
                                .inputs = {{"x"}},
                                .gradient = NotDifferentiable,
                                .stateful = true,
                                .probes = {{.inputs = {{.shape = {1}}}}}});
    KernelTable::Global().Register(
        {.op = "Meet", .make = [](const KernelSpec&) -> Result<KernelPtr> {
           return KernelOf([](const KernelContext& c) {
             const int now = ++meeting.here;
             int most = meeting.most;
             while (now > most &&
                    !meeting.most.compare_exchange_weak(most, now)) {
             }
             const auto late =
                 std::chrono::steady_clock::now() + std::chrono::seconds(30);
             while (meeting.most < meeting.wanted && !meeting.given_up) {
               std::this_thread::yield();
               if (std::chrono::steady_clock::now() > late) {
                 meeting.given_up = true;
               }
             }
             --meeting.here;
             c.output<float>(0)[0] = c.input<float>(0)[0];
           });
         }});
    return true;
  }();
  CHECK(registered);
  return x.graph().Add({"Meet", {x}}).output(0);
}

TEST_CASE("as many runs are under way as are allowed, and no more") {
  for (const int lanes : {1, 3}) {
    CAPTURE(lanes);
    meeting.wanted = lanes;
    meeting.most = 0;
    meeting.given_up = false;
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {1});
    const Output y = Meet(x);
    Session session(graph, {.concurrent_runs = lanes});
    PreparedStep step = session.Prepare({{x, {1}}}, {y});
    std::atomic<int> wrong = 0;
    InThreads(6, [&](int thread) {
      for (int run = 0; run < 20; ++run) {
        const float value = static_cast<float>(thread * 100 + run);
        std::vector<Tensor> got = step.MakeFetches();
        step.Run(std::vector{Tensor::Full(DType::kFloat32, {1}, value)}, got);
        if (got[0].At(0) != value) ++wrong;
      }
    });
    CHECK(wrong == 0);
    CHECK(meeting.most == lanes);
  }
}

TEST_CASE("each of the runs that count has a number of its own") {
  Graph graph;
  const Output n = graph.Variable("n", Zeros({}, DType::kInt64));
  const Output add = AssignAdd(n, 1);
  const Output drawn = RandomUniform(graph, {4}, 0, 1);
  Session session(graph, {.concurrent_runs = 3});
  session.Initialize();
  session.set_step(100);
  Mutex mutex;
  std::set<std::vector<float>> seen;
  InThreads(5, [&](int) {
    for (int run = 0; run < 40; ++run) {
      const Tensor got = session.Run({}, drawn, {Operation(add)});
      MutexLock lock(mutex);
      seen.insert({got.data<float>(), got.data<float>() + 4});
    }
  });
  CHECK(seen.size() == 200);
  CHECK(session.step() == 300);
  CHECK(session.Read(n).At(0) == 200);
}

TEST_CASE("a failed run's number is given back, unless a later one has begun") {
  Graph graph;
  const Output i = graph.Placeholder("i", DType::kInt64, {1});
  const Output n = graph.Variable("n", Zeros({}, DType::kInt64));
  const Output add = AssignAdd(n, 1);
  const Output y =
      Gather(graph.Constant(Tensor::Zeros(DType::kFloat32, {3})), i);
  Session session(graph, {.concurrent_runs = 2});
  session.Initialize();
  const auto run = [&](int64_t index) {
    session.Run({{i, Tensor::Full(DType::kInt64, {1}, index)}}, y,
                {Operation(add)});
  };
  run(1);
  CHECK_FALSE(ErrorOf([&] { run(7); }).empty());
  CHECK(session.step() == 1);
  std::atomic<uint64_t> good = 0;
  InThreads(4, [&](int thread) {
    for (int r = 0; r < 50; ++r) {
      try {
        run((thread + r) % 4);
        ++good;
      } catch (const Error&) {
      }
    }
  });
  CHECK(good == 150);
  CHECK(session.step() >= 151);
  CHECK(session.step() <= 201);
}

TEST_CASE("cancelling ends all runs under way, and no later one") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {8});
  const Output a = Exp(x), y = a + 1;
  a.node().set_device("/cpu:0");
  y.node().set_device("/cpu:1");
  const auto deaf = std::make_shared<WildRendezvous>(
      WildRendezvous::Options{.loss = 1, .silently = true});
  Session session(graph, {.devices = {"/cpu:0", "/cpu:1"},
                          .concurrent_runs = 3,
                          .rendezvous = deaf});
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> cancelled = 0, ended = 0;
    std::thread canceller([&] {
      while (ended < 3) {
        session.Cancel();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    InThreads(3, [&](int) {
      try {
        session.Run({{x, Tensor::Zeros(DType::kFloat32, {8})}}, y);
      } catch (const Error& error) {
        cancelled += error.code() == Code::kCancelled;
      }
      ++ended;
    });
    canceller.join();
    CHECK(cancelled == 3);
  }
  CHECK(deaf->counts().unsettled == 0);
}

TEST_CASE("everything at once") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {-1});
  const Output v = graph.Variable("v", Zeros({}));
  const Output add = AssignAdd(v, 1);
  const Output y = x * 2 + v * 0;
  Session session(graph, {.plan_cache_size = 2, .concurrent_runs = 3});
  session.Initialize();
  std::atomic<int> wrong = 0, adds = 0;
  InThreads(5, [&](int thread) {
    std::mt19937 random(static_cast<uint32_t>(thread));
    ChromeTrace trace;
    for (int i = 0; i < 60; ++i) {
      switch (random() % 7) {
        case 0: {
          session.SetObserver(&trace);
          session.SetObserver(nullptr);
          break;
        }
        case 1:
          session.Run({}, Operation(add));
          ++adds;
          break;
        case 2:
          if (session.Read(v).At(0) < 0) ++wrong;
          break;
        case 3:
          if (session.arena_bytes() > 1 << 20) ++wrong;
          break;
        case 4:
          if (!session.IsInitialized(v)) ++wrong;
          break;
        default: {  // more shapes than are kept
          const int64_t n = 1 + static_cast<int64_t>(random() % 5);
          const Tensor got =
              session.Run({{x, Tensor::Full(DType::kFloat32, {n}, i)}}, y);
          if (got.shape() != Shape{n} || got.At(n - 1) != 2 * i) ++wrong;
        }
      }
    }
    session.SetObserver(nullptr);
  });
  CHECK(wrong == 0);
  CHECK(session.Read(v).At(0) == adds);
  CHECK(session.step() == static_cast<uint64_t>(adds));
}

TEST_CASE("runs of a frozen session at the same time") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  const Output v = graph.Variable("v", Zeros({}));
  const Output y = x + v;
  Session session(graph, {.concurrent_runs = 3});
  session.Write(v, Tensor::Scalar<float>(5));
  session.Freeze();
  CHECK(Contains(ErrorOf([&] { session.Write(v, Tensor::Scalar<float>(6)); }),
                 "frozen"));
  std::atomic<int> wrong = 0;
  InThreads(4, [&](int thread) {
    for (int64_t n = 1; n < 12; ++n) {
      const Tensor got =
          session.Run({{x, Tensor::Full(DType::kFloat32, {n}, thread)}}, y);
      if (got.At(n - 1) != thread + 5) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

// Plans are made anew in each lane: what goes wrong there is the run's error.
TEST_CASE("a lane that cannot make its kernels says so") {
  static std::atomic<int> made = 0;
  OpTable::Global().Register({.name = "MadeOnce",
                              .doc = "y = x, of the first kernel alone.",
                              .inputs = {{"x"}},
                              .gradient = NotDifferentiable,
                              .stateful = true,
                              .probes = {{.inputs = {{.shape = {1}}}}}});
  KernelTable::Global().Register(
      {.op = "MadeOnce", .make = [](const KernelSpec&) -> Result<KernelPtr> {
         if (++made > 1) throw Error(Code::kNotFound, "no second kernel");
         return KernelOf([](const KernelContext& c) {
           std::this_thread::sleep_for(std::chrono::milliseconds(20));
           c.output<float>(0)[0] = c.input<float>(0)[0];
         });
       }});
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  const Output y = graph.Add({"MadeOnce", {x}}).output(0);
  Session session(graph, {.concurrent_runs = 2});
  PreparedStep step = session.Prepare({{x, {1}}}, {y});
  std::atomic<int> good = 0, bad = 0;
  InThreads(2, [&](int) {
    for (int run = 0; run < 5; ++run) {
      std::vector<Tensor> got = step.MakeFetches();
      const Status status =
          step.TryRun(std::vector{Tensor::Full(DType::kFloat32, {1}, 3)}, got);
      if (status.ok()) ++good;
      if (Contains(status.message(), "no second kernel")) ++bad;
    }
  });
  CHECK(good > 0);
  CHECK(good + bad == 10);
}

TEST_CASE("no run at all is refused") {
  Graph graph;
  CHECK(
      Contains(ErrorOf([&] { Session session(graph, {.concurrent_runs = 0}); }),
               "concurrent_runs is 0, wanted 1 or more"));
}

}  // namespace
}  // namespace sluice::testing
