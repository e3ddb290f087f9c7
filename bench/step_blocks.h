// How steps are timed: warmed up first, then in blocks whose length follows
// from what a warm step takes.
#ifndef SLUICE_BENCH_STEP_BLOCKS_H_
#define SLUICE_BENCH_STEP_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::bench {

struct BlockRules {
  int blocks = 15;
  // A block takes about `seconds`, with at least and at most so many steps.
  double seconds = 0.1;
  int64_t least_steps = 1, most_steps = 200;
  // Before anything is measured: so many runs of three steps, then more of them
  // for so long. A GPU's step is added kernel by kernel the first time and
  // captured the second, and its clock rises only under load, so that what the
  // host does in the first runs does not count.
  int warm_up_runs = 1;
  double warm_up_seconds = 0;
};

// On a GPU a few steps are no measurement: the host waits for the last of them.
inline BlockRules BlockRulesFor(bool gpu, int blocks, int64_t most_steps) {
  BlockRules rules = {.blocks = blocks, .most_steps = most_steps};
  if (gpu) {
    rules.least_steps = std::min<int64_t>(20, most_steps);
    rules.warm_up_runs = 3;
    rules.warm_up_seconds = 1;
  }
  return rules;
}

struct BlockTime {
  double seconds = 0;  // of a step: the median over blocks
  int64_t steps = 0;   // a block
};

// Runs so many steps and returns how long that took, in seconds.
using StepsRun = std::function<double(int64_t steps)>;

inline double MedianOf(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline void WarmUp(const StepsRun& run, const BlockRules& rules) {
  for (int i = 0; i < rules.warm_up_runs; ++i) run(3);
  double loaded = 0;
  while (loaded < rules.warm_up_seconds) loaded += run(3);
}

inline BlockTime TimeSteps(const StepsRun& run, const BlockRules& rules) {
  WarmUp(run, rules);
  // The median of three short runs, or of fewer where one takes long.
  const int64_t few = std::max<int64_t>(1, rules.least_steps / 4);
  std::vector<double> tried;
  double passed = 0;
  while (tried.size() < 3 && passed <= rules.seconds) {
    passed += tried.emplace_back(run(few));
  }
  const double step =
      std::max(MedianOf(tried) / static_cast<double>(few), 1e-9);
  BlockTime time;
  time.steps = std::clamp(static_cast<int64_t>(rules.seconds / step),
                          rules.least_steps, rules.most_steps);
  std::vector<double> blocks;
  for (int i = 0; i < rules.blocks; ++i) {
    blocks.push_back(run(time.steps) / static_cast<double>(time.steps));
  }
  time.seconds = MedianOf(blocks);
  return time;
}

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_STEP_BLOCKS_H_
