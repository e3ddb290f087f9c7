// Steps over several emulated devices: what goes from one to the other, and
// steps that are replayed in pieces since the host takes part in that.
#include <doctest/doctest.h>

#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/ended_runs.h"
#include "tests/support/error_text.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {
namespace {

namespace emulation = cuda::emulation;

TEST_CASE("random graphs give one GPU's bits on two, replayed in pieces") {
  RegisterGpu();
  if (OnRealGpu()) return;  // there may be one
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/gpu:0"});
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    const auto wanted = gathered.Run(single, 5);
    const ScatteredGraph scattered(seed, {"/gpu:0", "/gpu:1"});
    Session split(scattered.graph, scattered.Options(/*fuse=*/false));
    const int64_t before = emulation::GraphLaunches();
    CheckSameBits(scattered.Run(split, 5), wanted);
    CHECK(emulation::GraphLaunches() > before);
  }
}

TEST_CASE("runs that are cancelled between start and wait leave no trace") {
  RegisterGpu();
  int cancelled = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, {"/gpu:0", "/cpu:0"});
    Session session(scattered.graph, scattered.Options(/*fuse=*/false));
    const auto wanted = scattered.Run(session, 2);
    cancelled += CancelRuns(
        session, seed, [&] { return scattered.Run(session, 2); }, wanted);
  }
  MESSAGE(cancelled << " runs of 96 cancelled");
  CHECK(cancelled > 10);
}

TEST_CASE("random graphs go between a GPU and CPUs") {
  RegisterGpu();
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/cpu:0"});
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    const ScatteredGraph scattered(seed, {"/gpu:0", "/cpu:0", "/cpu:1"});
    Session split(scattered.graph, scattered.Options(/*fuse=*/false));
    const auto wanted = gathered.Run(single, 5), got = scattered.Run(split, 5);
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(Distance(got[i], wanted[i]) < 1e-4);
    }
  }
}

TEST_CASE("what lies between what the host takes part in is replayed") {
  RegisterGpu();
  Graph graph;
  SessionOptions options;
  options.devices = {"/gpu:0", "/cpu:0"};
  options.fuse = false;
  const DeviceScope on_gpu(graph, "/gpu:0");
  const Output x = graph.Placeholder("x", DType::kFloat32, {3});
  const Output a = Tanh(x) * 0.5f;
  Output there;
  {
    const DeviceScope on_cpu(graph, "/cpu:0");
    there = a + 1.0f;
  }
  const Output y = Tanh(there) - a;
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {3}}}, {y});
  std::vector<Tensor> first = step.MakeFetches(), got = step.MakeFetches();
  const std::vector<Tensor> feed = {Tensor::Full(DType::kFloat32, {3}, 0.25)};
  step.Run(feed, first);
  for (int run = 0; run < 4; ++run) {
    const int64_t before = OnRealGpu() ? 0 : emulation::GraphLaunches();
    step.Run(feed, got);
    CHECK(got[0].BitEqual(first[0]));
    // One before the send, one after the receive.
    if (!OnRealGpu()) CHECK(emulation::GraphLaunches() == before + 2);
  }
  CHECK(Contains(step.info().why_not_captured,
                 "the host takes part in what goes to and comes from"));
}

}  // namespace
}  // namespace sluice::testing
