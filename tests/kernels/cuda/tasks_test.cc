// Sessions over GPUs of several tasks: the bits of one device, whatever goes
// where; variables on a worker's GPU; tasks that end and runs that are
// cancelled in between.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/cluster.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {
namespace {

using dist::Transport;
using dist::testing::Watchdog;
using dist::testing::WorkerName;
using dist::testing::Workers;

// There may be one real one.
Workers MakeWorkers(int count, Transport transport) {
  RegisterGpu();
  std::vector<std::string> devices = {"/cpu:0", "/gpu:0"};
  if (!OnRealGpu()) devices.emplace_back("/gpu:1");
  return {count, transport, /*authority=*/nullptr, devices};
}

// Of two to three tasks, the master's among them or not.
std::vector<std::string> SomeGpus(std::mt19937& random) {
  std::vector<std::string> devices;
  if (random() % 2 == 0) devices.emplace_back("/gpu:0");
  for (int task = 0; task < 2; ++task) {
    devices.push_back(WorkerName(task) +
                      "/gpu:" + std::to_string(random() % 2));
    if (random() % 3 > 0) continue;
    devices.push_back(WorkerName(task) +
                      "/gpu:" + (devices.back().back() == '0' ? "1" : "0"));
  }
  std::shuffle(devices.begin(), devices.end(), random);
  return devices;
}

TEST_CASE("random graphs give one GPU's bits over GPUs of several tasks") {
  if (OnRealGpu()) return;  // there may be one
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const Workers workers = MakeWorkers(2, transport);
    const auto cluster = workers.Master();
    for (uint32_t seed = 1; seed <= Rounds(15u); ++seed) {
      const Watchdog watchdog;
      CAPTURE(seed);
      std::mt19937 random(seed);
      const ScatteredGraph gathered(seed, {"/gpu:0"});
      Session single(gathered.graph, gathered.Options(/*fuse=*/false));
      const ScatteredGraph scattered(seed, SomeGpus(random));
      SessionOptions options = scattered.Options(/*fuse=*/false);
      options.cluster = cluster;
      options.container = "one";  // variables go with the session
      Session split(scattered.graph, options);
      CheckSameBits(scattered.Run(split, 4), gathered.Run(single, 4));
    }
  }
}

TEST_CASE("random graphs go between CPUs and GPUs of several tasks") {
  const Workers workers = MakeWorkers(2, Transport::kShared);
  const auto cluster = workers.Master();
  for (uint32_t seed = 1; seed <= Rounds(16u); ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/cpu:0"});
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    const ScatteredGraph scattered(
        seed, {WorkerName(0) + "/gpu:0", "/cpu:0", WorkerName(1) + "/cpu:0",
               "/gpu:0", WorkerName(1) + "/gpu:0"});
    SessionOptions options = scattered.Options(/*fuse=*/false);
    options.cluster = cluster;
    options.container = "one";
    options.concurrent_runs = 1 + static_cast<int>(seed % 2);
    Session split(scattered.graph, options);
    const auto wanted = gathered.Run(single, 4), got = scattered.Run(split, 4);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(Distance(got[i], wanted[i]) < 1e-4);
    }
  }
}

// Tensors that go from device to device, and are reversed on each.
struct Hops {
  Graph graph;
  std::vector<Output> ends;
  std::vector<Feed> feeds;

  Hops(uint32_t seed, const std::vector<std::string>& devices) {
    constexpr DType kTypes[] = {
        DType::kFloat32,  DType::kFloat64, DType::kFloat16,
        DType::kBFloat16, DType::kInt8,    DType::kUInt8,
        DType::kInt32,    DType::kInt64,   DType::kBool};
    constexpr int64_t kSizes[] = {0, 1, 2, 1000, 9'001};
    std::mt19937 random(seed);
    const size_t count = 1 + random() % 5;
    for (size_t i = 0; i < count; ++i) {
      const DType type = kTypes[(seed + i) % std::size(kTypes)];
      int64_t size = kSizes[random() % std::size(kSizes)];
      if (i == 0 && seed % 5 == 0) size = 100'001;
      Tensor value(type, {size});
      auto* const bytes = static_cast<unsigned char*>(value.raw());
      for (size_t b = 0; b < value.bytes(); ++b) {
        bytes[b] = static_cast<unsigned char>(random() % 2);
      }
      Output x = graph.Placeholder("x" + std::to_string(i), type, {size});
      feeds.push_back({x, value});
      const size_t hops = 2 + random() % 5;
      for (size_t hop = 0; hop < hops; ++hop) {
        // As many draws for any number of devices.
        const DeviceScope there(graph, devices[random() % devices.size()]);
        x = Reverse(x, {0});
      }
      ends.push_back(x);
    }
  }
};

TEST_CASE("any dtype and size, some runs at a time") {
  if (OnRealGpu()) return;
  const Workers workers = MakeWorkers(2, Transport::kTcp);
  const auto cluster = workers.Master();
  const std::vector<std::string> devices = {
      "/cpu:0", WorkerName(0) + "/gpu:0", WorkerName(1) + "/gpu:1",
      "/gpu:0", WorkerName(1) + "/gpu:0", WorkerName(0) + "/cpu:0"};
  for (uint32_t seed = 1; seed <= Rounds(15u); ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    const Hops gathered(seed, {"/cpu:0"});
    Session single(gathered.graph, {.simplify = false, .fuse = false});
    const std::vector<Tensor> wanted =
        single.Run(gathered.feeds, gathered.ends);
    const Hops hops(seed, devices);
    SessionOptions options;
    options.devices = devices;
    options.simplify = options.fuse = false;
    options.cluster = cluster;
    options.concurrent_runs = 1 + static_cast<int>(seed % 3);
    Session session(hops.graph, options);
    std::vector<std::thread> threads;
    for (int i = 0; i < options.concurrent_runs; ++i) {
      threads.emplace_back([&] {
        for (int run = 0; run < 3; ++run) {
          CheckSameBits(session.Run(hops.feeds, hops.ends), wanted);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// A variable on a worker's GPU, doubled on another's.
struct Cut {
  Graph graph;
  Output x, v, twice;
  Operation add;

  Cut() {
    x = graph.Placeholder("x", DType::kFloat32, {4, 2});
    {
      const DeviceScope there(graph, WorkerName(0) + "/gpu:0");
      v = graph.Variable("v", Zeros({4, 2}));
      add = AssignAdd(v, x);
    }
    const ControlScope after(graph, {add});
    const DeviceScope there(graph, WorkerName(1) + "/gpu:0");
    twice = v * 2.0;
  }
  SessionOptions Options(std::shared_ptr<Cluster> cluster) const {
    SessionOptions options;
    options.devices = {"/cpu:0", WorkerName(0) + "/gpu:0",
                       WorkerName(1) + "/gpu:0"};
    options.cluster = std::move(cluster);
    return options;
  }
  Tensor Run(Session& session) const {
    return session.Run({{x, Tensor::Full(DType::kFloat32, {4, 2}, 1)}}, twice);
  }
};

TEST_CASE("variables live on a worker's GPU, for all masters") {
  const Watchdog watchdog;
  const Workers workers = MakeWorkers(2, Transport::kTcp);
  const Cut cut;
  {
    Session session(cut.graph, cut.Options(workers.Master()));
    CHECK_FALSE(session.IsInitialized(cut.v));
    CHECK(Contains(ErrorOf([&] { cut.Run(session); }), "'v'"));
    session.Initialize();
    CHECK(cut.Run(session).At(7) == 2);
    CHECK(session.Read(cut.v).At(0) == 1);
  }
  Session session(cut.graph, cut.Options(workers.Master()));
  CHECK(session.IsInitialized(cut.v));
  session.Write(cut.v, Tensor::Full(DType::kFloat32, {4, 2}, 5));
  Tensor rows = Tensor::Full(DType::kFloat32, {1, 2}, 8);
  session.WriteRows(cut.v, 2, rows);
  CHECK(cut.Run(session).At(0) == 12);
  session.ReadRows(cut.v, 1, &rows);
  CHECK(rows.At(1) == 6);
  session.ReadRows(cut.v, 2, &rows);
  CHECK(rows.At(1) == 9);
}

TEST_CASE("a worker's GPU that is gone is an error, and may come back") {
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const Watchdog watchdog;
    Workers workers = MakeWorkers(2, transport);
    const Cut cut;
    Session session(cut.graph, cut.Options(workers.Master()));
    session.Initialize();
    cut.Run(session);
    for (const int task : {0, 1}) {
      workers.End(task);
      CHECK(Contains(ErrorOf([&] { cut.Run(session); }), WorkerName(task)));
      workers.Begin(task);
      if (task == 0) {
        CHECK_FALSE(session.IsInitialized(cut.v));
        session.Initialize();
      }
      cut.Run(session);
    }
    CHECK(session.Read(cut.v).At(0) == 2);
  }
}

TEST_CASE("a worker of GPUs that ends anywhere is named, and nobody hangs") {
  for (int trial = 0; trial < Rounds(16); ++trial) {
    const Watchdog watchdog;
    CAPTURE(trial);
    Workers workers =
        MakeWorkers(2, trial % 2 == 0 ? Transport::kTcp : Transport::kShared);
    const Cut cut;
    const auto cluster = workers.Master();
    Session session(cut.graph, cut.Options(cluster));
    session.Initialize();
    const int task = trial / 2 % 2;
    std::atomic<int> runs{0};
    std::thread end([&] {
      while (runs < 1 + trial % 5) std::this_thread::yield();
      workers.End(task);
    });
    std::string error;
    while ((error = ErrorOf([&] { cut.Run(session); })) == "(no error)") {
      ++runs;
    }
    end.join();
    CHECK(Contains(error, WorkerName(task)));
  }
}

TEST_CASE("runs that are cancelled anywhere leave no trace on other tasks") {
  const Workers workers = MakeWorkers(2, Transport::kShared);
  const auto cluster = workers.Master();
  int cancelled = 0;
  for (uint32_t seed = 1; seed <= Rounds(8u); ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    std::mt19937 random(seed);
    const ScatteredGraph scattered(seed, SomeGpus(random));
    SessionOptions options = scattered.Options(/*fuse=*/false);
    options.cluster = cluster;
    options.container = "one";
    Session session(scattered.graph, options);
    const auto wanted = scattered.Run(session, 2);
    for (int run = 0; run < 6; ++run) {
      const auto when = std::chrono::microseconds(random() % (8'000u << run));
      std::thread canceller([&] {
        std::this_thread::sleep_for(when);
        session.Cancel();
      });
      try {
        CheckSameBits(scattered.Run(session, 2), wanted);
      } catch (const Error& error) {
        CHECK(error.code() == Code::kCancelled);
        ++cancelled;
      }
      canceller.join();
    }
    CheckSameBits(scattered.Run(session, 2), wanted);
  }
  MESSAGE(cancelled << " runs of " << 6 * Rounds(8u) << " cancelled");
  CHECK(cancelled > 0);
}

// Cut where the host takes part, and replayed in between.
TEST_CASE("what lies between what goes to other tasks is replayed") {
  if (OnRealGpu()) return;
  const Watchdog watchdog;
  const Workers workers = MakeWorkers(1, Transport::kTcp);
  Graph graph;
  SessionOptions options;
  options.devices = {"/gpu:0", WorkerName(0) + "/cpu:0"};
  options.cluster = workers.Master();
  options.fuse = false;
  const DeviceScope on_gpu(graph, "/gpu:0");
  const Output x = graph.Placeholder("x", DType::kFloat32, {3});
  const Output a = Tanh(x) * 0.5f;
  Output there;
  {
    const DeviceScope far(graph, WorkerName(0) + "/cpu:0");
    there = a + 1.0f;
  }
  const Output y = Tanh(there) - a;
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {3}}}, {y});
  std::vector<Tensor> first = step.MakeFetches(), got = step.MakeFetches();
  const std::vector<Tensor> feed = {Tensor::Full(DType::kFloat32, {3}, 0.25)};
  step.Run(feed, first);
  for (int run = 0; run < 4; ++run) {
    const int64_t before = cuda::emulation::GraphLaunches();
    step.Run(feed, got);
    CHECK(got[0].BitEqual(first[0]));
    // One before the send, one after the receive.
    CHECK(cuda::emulation::GraphLaunches() == before + 2);
  }
  CHECK(Contains(step.info().why_not_captured,
                 "the host takes part in what goes to and comes from"));
}

}  // namespace
}  // namespace sluice::testing
