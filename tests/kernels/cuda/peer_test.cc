// What goes from GPU to GPU: as copies between peers, recorded with the step as
// one graph where all of it is on GPUs that reach each other; through pinned
// memory where they do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/trace.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {
namespace {

namespace emulation = cuda::emulation;

constexpr uint64_t kAllPeers = ~uint64_t{0};

constexpr uint64_t Peer(int device, int memory) {
  return uint64_t{1} << (emulation::kMostGpus * device + memory);
}

// Four GPUs, for a scope.
struct Gpus {
  explicit Gpus(uint64_t peers, int gpus = 4) {
    RegisterGpu();
    emulation::SetMachine({.gpus = gpus, .peers = peers});
  }
  ~Gpus() {
    emulation::Fail("", cudaSuccess);
    emulation::SetOrder(emulation::Order::kForward);
    emulation::SetMachine({});
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
};

// All, none, or any, one way or both.
uint64_t SomePeers(uint32_t seed) {
  if (seed % 4 == 0) return 0;
  if (seed % 4 < 3) return kAllPeers;
  return std::mt19937_64(seed)();
}

// A random graph over two to four GPUs, every other one with a CPU, and the
// same with all GPUs one.
struct Cut {
  static std::vector<std::string> Names(uint32_t seed, bool one) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < 2 + seed % 3; ++i) {
      names.push_back("/gpu:" + std::to_string(one ? 0 : i));
    }
    if (seed / 2 % 2 == 0) names.emplace_back("/cpu:0");
    return names;
  }
  ScatteredGraph scattered;

  Cut(uint32_t seed, bool one) : scattered(seed, Names(seed, one)) {}
  SessionOptions Options(
      const std::shared_ptr<Rendezvous>& rendezvous = nullptr) const {
    SessionOptions options = scattered.Options(/*fuse=*/false, rendezvous);
    std::vector<std::string>& names = options.devices;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    // What is not placed goes to the first.
    std::partition(names.begin(), names.end(), [](const std::string& name) {
      return name.find("gpu") != std::string::npos;
    });
    return options;
  }
  std::vector<Tensor> Run(Session& session, int steps) const {
    return scattered.Run(session, steps);
  }
};

std::vector<Tensor> Wanted(uint32_t seed, int steps) {
  const Cut together(seed, /*one=*/true);
  Session single(together.scattered.graph, together.Options());
  return together.Run(single, steps);
}

TEST_CASE("random graphs over GPUs and a CPU have one GPU's bits") {
  if (OnRealGpu()) return;  // there may be one
  int64_t between = 0, launches = 0;
  for (uint32_t seed = 1; seed <= 32; ++seed) {
    CAPTURE(seed);
    const Gpus gpus(SomePeers(seed));
    const auto wanted = Wanted(seed, 5);
    const Cut cut(seed, /*one=*/false);
    const int64_t before = emulation::GraphLaunches();
    for (const emulation::Order order : emulation::kOrders) {
      emulation::SetOrder(order);
      Session split(cut.scattered.graph, cut.Options());
      CheckSameBits(cut.Run(split, 5), wanted);
    }
    between += emulation::Copied().of_peers;
    launches += emulation::GraphLaunches() - before;
  }
  CHECK(between > 0);
  CHECK(launches > 0);
}

TEST_CASE("sessions at the same time, on the same GPUs, keep apart") {
  if (OnRealGpu()) return;
  for (const uint64_t peers : {kAllPeers, uint64_t{0}, Peer(0, 1)}) {
    const Gpus gpus(peers);
    emulation::SetOrder(emulation::Order::kShuffled);
    const auto shared = std::make_shared<LocalRendezvous>();
    std::vector<std::vector<Tensor>> wanted, got(3);
    std::vector<std::unique_ptr<Cut>> cuts;
    for (uint32_t i = 0; i < 3; ++i) {
      wanted.push_back(Wanted(50 + i, 8));
      cuts.push_back(std::make_unique<Cut>(50 + i, /*one=*/false));
    }
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        Session session(cuts[i]->scattered.graph, cuts[i]->Options(shared));
        got[i] = cuts[i]->Run(session, 8);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 0; i < 3; ++i) CheckSameBits(got[i], wanted[i]);
  }
}

TEST_CASE("a run that is cancelled anywhere leaves no trace in the next") {
  if (OnRealGpu()) return;
  int cancelled = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const Gpus gpus(SomePeers(seed));
    const auto wanted = Wanted(seed, 2);
    const Cut cut(seed, /*one=*/false);
    Session session(cut.scattered.graph, cut.Options());
    std::mt19937 random(seed);
    for (int run = 0; run < 8; ++run) {
      const auto when = std::chrono::microseconds(random() % 20'000);
      std::thread canceller([&] {
        std::this_thread::sleep_for(when);
        session.Cancel();
      });
      try {
        CheckSameBits(cut.Run(session, 2), wanted);
      } catch (const Error& error) {
        CHECK(error.code() == Code::kCancelled);
        ++cancelled;
      }
      canceller.join();
    }
    CheckSameBits(cut.Run(session, 2), wanted);
  }
  MESSAGE(cancelled << " runs of 96 cancelled");
  CHECK(cancelled > 10);
}

// Ends a step behind some instruction, whatever that is.
struct FailAfter final : Observer {
  explicit FailAfter(int n) : left(n) {}
  Status AfterInstruction(const RanInstruction&) override {
    if (left.fetch_sub(1) == 0) return OutOfRange("enough");
    return {};
  }
  std::atomic<int> left;
};

TEST_CASE("a run that an observer ends anywhere leaves no trace in the next") {
  if (OnRealGpu()) return;
  int ended = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const Gpus gpus(SomePeers(seed));
    const auto wanted = Wanted(seed, 1);
    const Cut cut(seed, /*one=*/false);
    Session session(cut.scattered.graph, cut.Options());
    for (int after = 0; after < 60; after += 11) {
      FailAfter observer(after);
      session.SetObserver(&observer);
      try {
        CheckSameBits(cut.Run(session, 1), wanted);
      } catch (const Error& error) {
        CHECK(error.code() == Code::kOutOfRange);
        ++ended;
      }
      session.SetObserver(nullptr);
      CheckSameBits(cut.Run(session, 2), Wanted(seed, 2));
    }
  }
  CHECK(ended > 10);
}

// Calls that fail once, each time later. What has gone wrong is said; what
// comes after is right.
TEST_CASE("a call that fails is the run's error, or one that is done without") {
  if (OnRealGpu()) return;
  int failed = 0;
  for (const uint64_t peers : {kAllPeers, uint64_t{0}}) {
    for (const std::string function :
         {"cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord",
          "cudaEventCreateWithFlags", "cudaGraphLaunch",
          "cudaStreamBeginCapture", "cudaStreamEndCapture",
          "cudaGraphInstantiate", "cudaDeviceCanAccessPeer",
          "cudaDeviceEnablePeerAccess", "cudaMalloc"}) {
      for (int after = 0; after < 40; after = after * 2 + 1) {
        CAPTURE(function);
        CAPTURE(after);
        const Gpus gpus(peers);
        const uint32_t seed = 3 + static_cast<uint32_t>(after) % 4;
        const auto wanted = Wanted(seed, 3);
        const Cut cut(seed, /*one=*/false);
        emulation::Fail(function, cudaErrorInvalidValue, after);
        try {
          Session session(cut.scattered.graph, cut.Options());
          for (int run = 0; run < 2; ++run) {
            try {
              CheckSameBits(cut.Run(session, 3), wanted);
            } catch (const Error& error) {
              CHECK(Contains(error.what(), "invalid argument"));
              ++failed;
            }
          }
          CheckSameBits(cut.Run(session, 3), wanted);
        } catch (const Error& error) {  // in opening it
          CHECK(Contains(error.what(), "invalid argument"));
          ++failed;
        }
      }
    }
  }
  CHECK(failed > 20);
}

TEST_CASE("a GPU that is lost ends the step of both") {
  if (OnRealGpu()) return;
  for (const uint64_t peers : {kAllPeers, uint64_t{0}}) {
    for (const std::string function :
         {"work", "cudaMemcpyAsync", "cudaGraphLaunch",
          "cudaStreamWaitEvent"}) {
      int lost = 0;
      for (int after = 0; after < 100; after = after * 2 + 1) {
        CAPTURE(function);
        CAPTURE(after);
        const Gpus gpus(peers);
        const Cut cut(3, /*one=*/false);
        Session session(cut.scattered.graph, cut.Options());
        emulation::Fail(function, cudaErrorIllegalAddress, after);
        const std::string message = ErrorOf([&] { cut.Run(session, 4); });
        if (!emulation::Failed()) break;
        CHECK(Contains(message, "is lost (CUDA, "));
        ++lost;
      }
      CHECK(lost > 0);
    }
  }
}

// x goes from the first GPU to the second and back.
struct ThereAndBack {
  Graph graph;
  Output x, y;
  static constexpr int64_t kElements = 1000;
  static constexpr int64_t kBytes = 2 * kElements * 4;  // of both edges
  SessionOptions options;

  explicit ThereAndBack(const std::string& second = "/gpu:1") {
    options.devices = {"/gpu:0", second};
    options.fuse = false;
    const DeviceScope here(graph, "/gpu:0");
    x = graph.Placeholder("x", DType::kFloat32, {kElements});
    const Output a = Tanh(x) * 0.5f;
    Output b;
    {
      const DeviceScope there(graph, second);
      b = a + 1.0f;
    }
    y = Tanh(b) - a;
  }
  Tensor Feed(int k) const {
    return Tensor::Full(DType::kFloat32, {kElements}, 0.25 * k);
  }
};

// What one run copies, from and to the host and between GPUs, and launches.
struct Moved {
  int64_t of_host, of_peers, graphs;
};
std::vector<Moved> MovedBy(const ThereAndBack& cut, PreparedStep& step) {
  std::vector<Moved> runs;
  for (int run = 0; run < 5; ++run) {
    const auto before = emulation::Copied();
    const int64_t graphs = emulation::GraphLaunches();
    std::vector<Tensor> got = step.MakeFetches();
    step.Run(std::vector{cut.Feed(run)}, got);
    const double a = std::tanh(0.25 * run) * 0.5;
    CHECK(std::abs(got[0].At(7) - (std::tanh(a + 1) - a)) < 1e-6);
    const auto after = emulation::Copied();
    runs.push_back({after.of_host - before.of_host,
                    after.of_peers - before.of_peers,
                    emulation::GraphLaunches() - graphs});
  }
  return runs;
}

TEST_CASE("between peers nothing goes through pinned memory") {
  if (OnRealGpu()) return;
  const ThereAndBack cut;
  std::vector<Moved> peers, none;
  {
    const Gpus gpus(kAllPeers);
    Session session(cut.graph, cut.options);
    PreparedStep step =
        session.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
    peers = MovedBy(cut, step);
    CHECK(step.info().why_not_captured.empty());
  }
  {
    const Gpus gpus(0);
    Session session(cut.graph, cut.options);
    PreparedStep step =
        session.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
    none = MovedBy(cut, step);
    CHECK(Contains(step.info().why_not_captured,
                   "the host takes part in what goes to and comes from"));
  }
  for (size_t run = 0; run < peers.size(); ++run) {
    CAPTURE(run);
    // The feed, the fetch and each GPU's key of the step, each to 64 bytes.
    CHECK(peers[run].of_host == 64 + 4032 + 4000 + 64 + 32);
    CHECK(peers[run].of_peers == ThereAndBack::kBytes);
    CHECK(none[run].of_host ==
          peers[run].of_host + 2 * ThereAndBack::kBytes);  // out and in
    CHECK(none[run].of_peers == 0);
    // The first is not replayed; then it is all one graph, or pieces.
    CHECK(peers[run].graphs == (run == 0 ? 0 : 1));
    CHECK(none[run].graphs == (run == 0 ? 0 : 3));
  }
}

TEST_CASE("two GPUs that are one send to each other within it") {
  const ThereAndBack cut;
  RegisterGpu();
  if (!OnRealGpu()) emulation::SetMachine({.gpus = 1});
  SessionOptions options = cut.options;
  options.share_accelerators = true;
  Session session(cut.graph, options);
  PreparedStep step =
      session.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
  std::vector<Tensor> got = step.MakeFetches();
  for (int run = 0; run < 20; ++run) {
    step.Run(std::vector{cut.Feed(run)}, got);
    const double a = std::tanh(0.25 * run) * 0.5;
    for (int64_t i = 0; i < ThereAndBack::kElements; ++i) {
      REQUIRE(std::abs(got[0].At(i) - (std::tanh(a + 1) - a)) < 1e-5);
    }
  }
  CHECK(step.info().why_not_captured == "");
  if (OnRealGpu()) return;
  for (const Moved& run : MovedBy(cut, step)) {
    CHECK(run.of_host == 64 + 4032 + 4000 + 64 + 32);
    CHECK(run.graphs == 1);
  }
  emulation::SetMachine({});
}

TEST_CASE("peer access that is refused is done without") {
  if (OnRealGpu()) return;
  for (const char* function :
       {"cudaDeviceEnablePeerAccess", "cudaDeviceCanAccessPeer"}) {
    const Gpus gpus(kAllPeers);
    emulation::Fail(function, cudaErrorPeerAccessUnsupported);
    const ThereAndBack cut;
    Session session(cut.graph, cut.options);
    CHECK(emulation::Failed());
    PreparedStep step =
        session.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
    for (const Moved& run : MovedBy(cut, step)) {
      CHECK(run.of_peers == ThereAndBack::kBytes / 2);  // the other way
    }
  }
  // Somebody else in the process has it already.
  const Gpus gpus(kAllPeers);
  const ThereAndBack cut;
  Session first(cut.graph, cut.options), second(cut.graph, cut.options);
  PreparedStep step =
      second.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
  for (const Moved& run : MovedBy(cut, step)) {
    CHECK(run.of_peers == ThereAndBack::kBytes);
  }
}

TEST_CASE("a step that was captured is captured anew when memory moves") {
  if (OnRealGpu()) return;
  const Gpus gpus(kAllPeers);
  emulation::SetOrder(emulation::Order::kReversed);
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  Output y;
  {
    const DeviceScope first(graph, "/gpu:0");
    y = Tanh(x) + 1.0f;
  }
  {
    const DeviceScope second(graph, "/gpu:1");
    y = Tanh(y) * y;
  }
  {
    const DeviceScope first(graph, "/gpu:0");
    y = Exp(y) - Tanh(x);
  }
  SessionOptions options;
  options.devices = {"/gpu:0", "/gpu:1"};
  Session session(graph, options);
  for (const int64_t n : {10, 10, 10, 5000, 10, 10, 70'000, 5000, 10, 10}) {
    const float value = 1.0f / static_cast<float>(n);
    const Tensor got =
        session.Run({{x, Tensor::Full(DType::kFloat32, {n}, value)}}, y);
    const double one = std::tanh(value) + 1;
    const double wanted = std::exp(std::tanh(one) * one) - std::tanh(value);
    for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
      CHECK(std::abs(got.At(i) - wanted) < 1e-5);
    }
  }
}

TEST_CASE("a run begins while the one before is under way") {
  if (OnRealGpu()) return;
  for (const uint64_t peers : {kAllPeers, uint64_t{0}}) {
    const Gpus gpus(peers);
    emulation::SetOrder(emulation::Order::kReversed);
    const ThereAndBack cut;
    Session session(cut.graph, cut.options);
    PreparedStep step =
        session.Prepare({{cut.x, {ThereAndBack::kElements}}}, {cut.y});
    std::vector<std::vector<Tensor>> got;
    for (int run = 0; run < 8; ++run) got.push_back(step.MakeFetches());
    PendingRun before;
    for (int run = 0; run < 8; ++run) {
      PendingRun now = step.Start(std::vector{cut.Feed(run)}, got[run]);
      before.Wait();
      before = std::move(now);
    }
    before.Wait();
    for (int run = 0; run < 8; ++run) {
      const double a = std::tanh(0.25 * run) * 0.5;
      CHECK(std::abs(got[run][0].At(500) - (std::tanh(a + 1) - a)) < 1e-6);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
