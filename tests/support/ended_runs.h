// Runs that end before they are done: by Cancel at a random time, and by an
// observer behind some instruction.
#ifndef SLUICE_TESTS_SUPPORT_ENDED_RUNS_H_
#define SLUICE_TESTS_SUPPORT_ENDED_RUNS_H_

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "engine/runtime/trace.h"
#include "graph/session/session.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {

// Ends a step behind some instruction, whatever that is.
struct FailAfter final : Observer {
  explicit FailAfter(int n) : left(n) {}
  Status AfterInstruction(const RanInstruction&) override {
    if (left.fetch_sub(1) == 0) return OutOfRange("enough");
    return {};
  }
  std::atomic<int> left;
};

// Eight runs, each cancelled within 20 ms or done by then, of which each that
// is done has the values, and so has one more. How many were cancelled.
template <typename Run>
int CancelRuns(Session& session, uint32_t seed, Run run,
               const std::vector<Tensor>& wanted) {
  int cancelled = 0;
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    const auto when = std::chrono::microseconds(random() % 20'000);
    std::thread canceller([&] {
      std::this_thread::sleep_for(when);
      session.Cancel();
    });
    try {
      CheckSameBits(run(), wanted);
    } catch (const Error& error) {
      CHECK(error.code() == Code::kCancelled);
      ++cancelled;
    }
    canceller.join();
  }
  CheckSameBits(run(), wanted);
  return cancelled;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_ENDED_RUNS_H_
