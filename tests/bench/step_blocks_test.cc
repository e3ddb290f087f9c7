// How step_bench times steps, on machines that are simulated.
#include "bench/step_blocks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sluice::bench {
namespace {

// A device whose first steps are slow: code is loaded, a graph is captured, and
// the clock rises from half of its speed. Each wait for it takes time, too.
struct Device {
  double step = 1e-3;
  int slow_steps = 0;
  double slow = 0;    // seconds each
  double rising = 0;  // seconds under load until the clock is up
  double wait = 0;
  double passed = 0;
  int64_t steps = 0;
  std::vector<int64_t> runs;  // steps of each

  double Run(int64_t count) {
    double taken = wait;
    for (int64_t i = 0; i < count; ++i, ++steps) {
      taken += steps < slow_steps        ? slow
               : passed + taken < rising ? 2 * step
                                         : step;
    }
    passed += taken;
    runs.push_back(count);
    return taken;
  }
};

TEST_CASE("neither capture nor a rising clock is in what is measured") {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto between = [&](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(random);
    };
    Device device;
    device.step = std::exp(between(std::log(2e-5), std::log(0.2)));
    device.slow_steps = static_cast<int>(random() % 7);
    device.slow = between(0.5, 30);
    device.rising = device.slow_steps * device.slow + between(0, 0.5);
    const BlockRules rules = BlockRulesFor(/*gpu=*/true, 7, 200);
    const BlockTime time =
        TimeSteps([&](int64_t n) { return device.Run(n); }, rules);
    CHECK(time.seconds == doctest::Approx(device.step));
    CHECK(time.steps >= 20);
    CHECK(time.steps <= 200);
    // A tenth of a second, where that is as many steps.
    const double wanted = 0.1 / device.step;
    if (wanted > 21 && wanted < 199) {
      CHECK(std::abs(static_cast<double>(time.steps) - wanted) <= 1);
    }
    for (size_t i = device.runs.size() - 7; i < device.runs.size(); ++i) {
      CHECK_EQ(device.runs[i], time.steps);
    }
  }
}

TEST_CASE("a block is long enough to hide the wait at its end") {
  Device device;
  device.step = 0.03;
  device.wait = 0.01;
  const BlockTime time = TimeSteps([&](int64_t n) { return device.Run(n); },
                                   BlockRulesFor(true, 5, 200));
  CHECK(time.seconds < 1.02 * device.step);
}

TEST_CASE("on the CPU a step that takes seconds is not run dozens of times") {
  Device device;
  device.step = 4;
  const BlockTime time = TimeSteps([&](int64_t n) { return device.Run(n); },
                                   BlockRulesFor(false, 3, 200));
  CHECK_EQ(time.steps, 1);
  CHECK_EQ(device.steps, 3 + 1 + 3);
}

TEST_CASE("--steps is the most, also below what a GPU should have") {
  Device device;
  CHECK_EQ(TimeSteps([&](int64_t n) { return device.Run(n); },
                     BlockRulesFor(true, 3, 5))
               .steps,
           5);
}

}  // namespace
}  // namespace sluice::bench
