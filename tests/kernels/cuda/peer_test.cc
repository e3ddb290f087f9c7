// Random graphs over GPUs that reach each other's memory, or not, or one way,
// and what may come between: other sessions, cancelling, failures.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/trace.h"
#include "tests/kernels/cuda/emulation/peers.h"
#include "tests/support/ended_runs.h"
#include "tests/support/error_text.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {
namespace {

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
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) {
                            return name.find("gpu") != std::string::npos;
                          });
    return options;
  }
  std::vector<Tensor> Run(Session& session, int steps) const {
    return scattered.Run(session, steps);
  }
};

std::vector<Tensor> Wanted(uint32_t seed, int steps) {
  RegisterGpu();
  const Cut together(seed, /*one=*/true);
  Session single(together.scattered.graph, together.Options());
  return together.Run(single, steps);
}

TEST_CASE("random graphs over GPUs and a CPU have one GPU's bits") {
  if (OnRealGpu()) return;  // there may be one
  int64_t between = 0, launches = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    const Gpus gpus(SomePeers(seed));
    const auto wanted = Wanted(seed, 4);
    const Cut cut(seed, /*one=*/false);
    const int64_t before = emulation::GraphLaunches();
    emulation::SetOrder(seed % 5 < 3 ? emulation::Order::kReversed
                                     : emulation::Order::kShuffled);
    Session split(cut.scattered.graph, cut.Options());
    CheckSameBits(cut.Run(split, 4), wanted);
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
    cancelled += CancelRuns(
        session, seed, [&] { return cut.Run(session, 2); }, wanted);
  }
  MESSAGE(cancelled << " runs of 96 cancelled");
  CHECK(cancelled > 10);
}

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
  std::vector<std::vector<Tensor>> known;
  for (uint32_t seed = 3; seed < 7; ++seed) known.push_back(Wanted(seed, 2));
  for (const uint64_t peers : {kAllPeers, uint64_t{0}}) {
    for (const std::string function :
         {"cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord",
          "cudaEventCreateWithFlags", "cudaGraphLaunch",
          "cudaStreamBeginCapture", "cudaStreamEndCapture",
          "cudaGraphInstantiate", "cudaDeviceCanAccessPeer",
          "cudaDeviceEnablePeerAccess", "cudaMalloc"}) {
      for (int after = 0; after < 30; after = after * 2 + 1) {
        CAPTURE(function);
        CAPTURE(after);
        const Gpus gpus(peers);
        const uint32_t seed = 3 + static_cast<uint32_t>(after / 2) % 4;
        const auto& wanted = known[seed - 3];
        const Cut cut(seed, /*one=*/false);
        emulation::Fail(function, cudaErrorInvalidValue, after);
        int errors = 0;
        std::unique_ptr<Session> session;
        for (int run = 0; run < 4; ++run) {
          try {
            if (session == nullptr) {
              session =
                  std::make_unique<Session>(cut.scattered.graph, cut.Options());
            }
            CheckSameBits(cut.Run(*session, 2), wanted);
          } catch (const Error& error) {
            CHECK(emulation::Failed());
            CHECK(Contains(error.what(), "invalid argument"));
            ++errors;
          }
        }
        CHECK(errors <= 1);
        failed += errors;
      }
    }
  }
  MESSAGE(failed << " runs of 440 failed");
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

}  // namespace
}  // namespace sluice::testing
