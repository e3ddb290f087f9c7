// Variables in common of several sessions, and several runs of a session at the
// same time, on GPUs: as on CPUs (tests/graph/session/container_test.cc,
// concurrent_test.cc), by the same generators.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/concurrent_runs.h"
#include "tests/support/error_text.h"
#include "tests/support/shared_variables.h"

namespace sluice::testing {
namespace {

namespace emulation = cuda::emulation;

struct Machine {
  explicit Machine(uint64_t peers = ~uint64_t{0}) {
    RegisterGpu();
    emulation::SetMachine({.gpus = 3, .peers = peers});
  }
  ~Machine() { emulation::SetMachine({}); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

TEST_CASE(
    "sessions that share a GPU's variables lose no update, tear no value") {
  if (OnRealGpu()) return;  // there may be one
  const Places kPlaces[] = {
      {"/gpu:0", "/gpu:1"}, {"/gpu:0", "/cpu:0"}, {"/cpu:0", "/gpu:0"}};
  int reads = 0;
  for (uint32_t seed = 1; seed <= 9; ++seed) {
    CAPTURE(seed);
    const Machine machine(seed % 2 == 0 ? 0 : ~uint64_t{0});
    SharedRound round(seed, kPlaces[seed % 3]);
    round.Run();
    reads += round.reads;
  }
  CHECK(reads > 100);
}

TEST_CASE("runs at the same time on GPUs have the bits of runs one by one") {
  if (OnRealGpu()) return;
  int graphs = 0;
  for (uint32_t seed = 1; seed <= 80 && graphs < 12; ++seed) {
    CAPTURE(seed);
    std::vector<std::string> devices;
    for (uint32_t i = 0; i < 1 + seed % 3; ++i) {
      devices.push_back("/gpu:" + std::to_string(i));
    }
    if (seed % 4 == 0) devices.emplace_back("/cpu:0");
    const ScatteredGraph scattered(seed, devices);
    if (Writes(scattered.graph)) continue;
    ++graphs;
    const Machine machine(seed % 5 == 0 ? 0 : ~uint64_t{0});
    const SessionOptions one = scattered.Options(/*fuse=*/false);
    SessionOptions several = one;
    several.concurrent_runs = 2 + static_cast<int>(seed) % 3;
    CheckConcurrentRuns(scattered, seed, one, several);
  }
  CHECK(graphs >= 8);
}

TEST_CASE("a run that is cancelled leaves the others of its session alone") {
  if (OnRealGpu()) return;
  const Machine machine;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {50});
  Output y = x;
  for (int i = 0; i < 12; ++i) {
    const DeviceScope there(graph, "/gpu:" + std::to_string(i % 3));
    y = y * 0.5f + 1.0f;
  }
  SessionOptions options;
  options.devices = {"/gpu:0", "/gpu:1", "/gpu:2"};
  options.fuse = false;
  options.concurrent_runs = 3;
  Session session(graph, options);
  std::atomic<int> wrong = 0, cancelled = 0, ended = 0;
  std::thread canceller([&] {
    std::mt19937 random(7);
    while (ended < 3) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      session.Cancel();
    }
  });
  InThreads(3, [&](int thread) {
    for (int run = 0; run < 40; ++run) {
      const float value = static_cast<float>(thread * 64 + run);
      try {
        const Tensor got =
            session.Run({{x, Tensor::Full(DType::kFloat32, {50}, value)}}, y);
        float wanted = value;
        for (int i = 0; i < 12; ++i) wanted = wanted * 0.5f + 1;
        if (got.At(49) != wanted) ++wrong;
      } catch (const Error& error) {
        if (error.code() != Code::kCancelled) ++wrong;
        ++cancelled;
      }
    }
    ++ended;
  });
  canceller.join();
  CHECK(wrong == 0);
  MESSAGE(cancelled << " runs of 120 cancelled");
}

TEST_CASE("a bad index is the error of the run that has it, and no other's") {
  const Machine machine;
  Graph graph;
  const Output i = graph.Placeholder("i", DType::kInt64, {1});
  const Output n = graph.Variable("n", Zeros({}, DType::kInt64));
  const Output add = AssignAdd(n, 1);
  const Output table = graph.Variable("table", Ones({3, 4}));
  const Output y = Gather(table, i);
  for (const std::string container : {"", "indices"}) {
    SessionOptions options = OnGpu();
    options.container = container;
    options.concurrent_runs = 3;
    Session session(graph, options);
    session.Initialize();
    std::atomic<int> good = 0, bad = 0, wrong = 0;
    InThreads(4, [&](int thread) {
      for (int run = 0; run < 30; ++run) {
        const int64_t index = (thread + run) % 4;  // of three
        try {
          const Tensor got =
              session.Run({{i, Tensor::Full(DType::kInt64, {1}, index)}}, y,
                          {Operation(add)});
          ++(index == 3 ? wrong : good);
          if (got.At(0) != 1) ++wrong;
        } catch (const Error& error) {
          ++(index == 3 ? bad : wrong);
          if (!Contains(error.what(), "Gather")) ++wrong;
        }
      }
    });
    CHECK(wrong == 0);
    CHECK(good + bad == 120);
    CHECK(bad == 30);
    CHECK(session.Read(n).At(0) == 120);
  }
}

TEST_CASE("a container's GPU lives as long as a session that has it") {
  const Machine machine;
  Graph graph;
  const Output v = graph.Variable("v", Zeros({2}));
  const Output twice = v * 2.0f;
  const Tensor ones = Tensor::Full(DType::kFloat32, {2}, 1);
  SessionOptions options = OnGpu();
  options.container = "a";
  auto first = std::make_unique<Session>(graph, options);
  first->Write(v, ones);
  {
    Session second(graph, options);
    CHECK(second.Read(v).BitEqual(ones));
    options.container = "b";
    CHECK_FALSE(Session(graph, options).IsInitialized(v));
    options.container.clear();
    CHECK_FALSE(Session(graph, options).IsInitialized(v));
    first.reset();
    CHECK(second.Run({}, twice).At(1) == 2);
    second.Write(v, Tensor::Full(DType::kFloat32, {2}, 4));
    CHECK(second.Run({}, twice).At(1) == 8);
    second.Freeze();
    CHECK(second.Run({}, twice).At(0) == 8);
  }
  options.container = "a";
  CHECK_FALSE(Session(graph, options).IsInitialized(v));
}

// A run that waits for the CPU's part holds no other off.
TEST_CASE("runs pass one that waits for its other device") {
  const Machine machine;
  static std::atomic<bool> open = false;
  OpTable::Global().Register({.name = "CudaTestGate",
                              .doc = "y = x, once the gate is open, or x < 0.",
                              .inputs = {{"x"}},
                              .gradient = NotDifferentiable,
                              .stateful = true,
                              .probes = {{.inputs = {{.shape = {1}}}}}});
  KernelTable::Global().Register(
      {.op = "CudaTestGate",
       .make = [](const KernelSpec&) -> Result<KernelPtr> {
         return KernelOf([](const KernelContext& c) {
           const float x = c.input<float>(0)[0];
           while (x >= 0 && !open) std::this_thread::yield();
           c.output<float>(0)[0] = x;
         });
       }});
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  Output gate;
  {
    const DeviceScope here(graph, "/cpu:0");
    gate = graph.Add({"CudaTestGate", {x}}).output(0);
  }
  const DeviceScope there(graph, "/gpu:0");
  const Output y = gate * 2.0f;
  SessionOptions options = OnGpu();
  options.devices = {"/gpu:0", "/cpu:0"};
  options.concurrent_runs = 2;
  Session session(graph, options);
  open = false;
  std::atomic<int> passed = 0;
  InThreads(2, [&](int thread) {
    if (thread == 0) {
      CHECK(
          session.Run({{x, Tensor::Full(DType::kFloat32, {1}, 3)}}, y).At(0) ==
          6);
      CHECK(passed == 10);
      return;
    }
    for (int run = 0; run < 10; ++run) {
      CHECK(
          session.Run({{x, Tensor::Full(DType::kFloat32, {1}, -3)}}, y).At(0) ==
          -6);
      ++passed;
    }
    open = true;
  });
}

}  // namespace
}  // namespace sluice::testing
