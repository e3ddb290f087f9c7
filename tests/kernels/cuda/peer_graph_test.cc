// What goes from GPU to GPU: as copies between peers, recorded with the step as
// one graph where all of it is on GPUs that reach each other; through pinned
// memory where they do not.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/kernels/cuda/emulation/peers.h"
#include "tests/support/error_text.h"

namespace sluice::testing {
namespace {

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
  // They come to be where the memory was.
  std::vector<Output> others;
  for (int i = 0; i < 16; ++i) {
    const DeviceScope either(graph, i % 2 == 0 ? "/gpu:0" : "/gpu:1");
    others.push_back(graph.Variable("v" + std::to_string(i), Zeros({10})));
  }
  const Tensor ones = Tensor::Full(DType::kFloat32, {10}, 1);
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
    if (n < 5000) continue;
    for (const Output& other : others) session.Write(other, ones);
  }
  for (const Output& other : others) CHECK(session.Read(other).BitEqual(ones));
}

// Of two GPUs one launches what is of both.
TEST_CASE(
    "a graph of both is behind what a GPU was given, before what it is "
    "asked") {
  if (OnRealGpu()) return;
  const Gpus gpus(kAllPeers);
  for (const bool swapped : {false, true}) {
    Graph graph;
    const char* const one = swapped ? "/gpu:1" : "/gpu:0";
    const char* const other = swapped ? "/gpu:0" : "/gpu:1";
    Output x, v, w, there;
    {
      const DeviceScope here(graph, one);
      x = graph.Placeholder("x", DType::kFloat32, {3});
      v = graph.Variable("v", Zeros({3}));
    }
    {
      const DeviceScope away(graph, other);
      w = graph.Variable("w", Zeros({3}));
      there = x * 2.0f;
    }
    Operation count;
    {
      const DeviceScope away(graph, other);
      count = Operation(AssignAdd(w, there));
    }
    const DeviceScope here(graph, one);
    const Operation add(AssignAdd(v, there + 1.0f));
    SessionOptions options;
    options.devices = {"/gpu:0", "/gpu:1"};
    Session session(graph, options);
    session.Initialize();
    PreparedStep step = session.Prepare({{x, {3}}}, {}, {add, count});
    std::vector<Tensor> none;
    float wanted = 0;
    for (int run = 0; run < 6; ++run) {
      const auto value = static_cast<float>(run * run);
      step.Run(std::vector{Tensor::Full(DType::kFloat32, {3}, value)}, none);
      wanted += 2 * value + 1;
      const auto sent = wanted - static_cast<float>(run + 1);
      if (run % 2 == 0) CHECK(session.Read(w).At(0) == sent);
      CHECK(session.Read(v).At(2) == wanted);
      CHECK(session.Read(w).At(1) == sent);
    }
    CHECK(step.info().why_not_captured.empty());
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
