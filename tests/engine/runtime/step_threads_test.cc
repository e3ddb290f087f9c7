#include "engine/runtime/step_threads.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST_CASE("step threads run every part side by side, each round once") {
  StepThreads threads;
  for (int round = 0; round < 300; ++round) {
    const int parts = 1 + round % 4;
    std::vector<std::atomic<int>> ran(4);
    std::atomic<int> arrived{0};
    threads.Run(parts, [&](int64_t i, int64_t) {
      ++ran[i];
      // Each part waits for the others: serial execution would hang here.
      ++arrived;
      while (arrived < parts) std::this_thread::yield();
    });
    for (int i = 0; i < 4; ++i) CHECK(ran[i] == (i < parts ? 1 : 0));
  }
}

}  // namespace
}  // namespace sluice
