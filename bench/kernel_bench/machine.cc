#include "bench/kernel_bench/machine.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "bench/kernel_bench/peers.h"
#include "engine/tensor.h"
#include "engine/threads.h"

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurn = 0.01;  // seconds a turn takes at least
constexpr int kFewestTurns = 5;
// A peer's idle threads spin for some milliseconds; they are not to take the
// core from the side whose turn it is.
constexpr std::chrono::milliseconds kSettle{8};

double SecondsOf(const std::function<void()>& run, int calls) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) run();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Machine Measure() {
  Machine machine;
  const int64_t threads = ComputeThreads().threads();
  constexpr int64_t kRounds = 100'000;
  const auto seconds = [](const std::function<void()>& run) {
    return TimeInTurns({run}, 0.1)[0].seconds;
  };
  machine.flops =
      MultiplyAdd(0) * kRounds * static_cast<double>(threads) / seconds([&] {
        ParallelFor(threads, 1, [](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) MultiplyAdd(kRounds);
        });
      });
  for (int64_t bytes : {1 << 17, 1 << 19, 1 << 21, 1 << 24, 1 << 28}) {
    const int64_t n = bytes / static_cast<int64_t>(sizeof(float));
    Tensor buffer = Tensor::Zeros(DType::kFloat32, {n});
    float* x = buffer.data<float>();
    const auto rate = [&](const std::function<void()>& run) {
      return static_cast<double>(bytes) / seconds(run);
    };
    Machine::Memory level = {static_cast<double>(bytes), 0, 0};
    for (bool stream : {false, true}) {
      level.copy = std::max(
          level.copy, rate([&] { CopyLoop(x, x + n / 2, n / 2, stream); }));
    }
    // An update reads and writes each byte.
    level.best = std::max(level.copy, 2 * rate([&] { ScaleLoop(x, n); }));
    machine.memory.push_back(level);
  }
  return machine;
}

}  // namespace

std::vector<Timing> TimeInTurns(const std::vector<std::function<void()>>& sides,
                                double budget) {
  const ScopedFlushDenormals flush;
  std::vector<int> calls;
  int turns = kFewestTurns;
  for (const auto& run : sides) {
    run();  // warms caches and pages
    const double once = SecondsOf(run, 1);
    calls.push_back(std::clamp(static_cast<int>(kTurn / once) + 1, 1, 10000));
    turns = std::max(turns, static_cast<int>(budget / (calls.back() * once)));
  }
  turns = std::min(turns, 101);
  std::vector<std::vector<double>> seconds(sides.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t k = 0; k < sides.size(); ++k) {
      // A different side begins each time.
      const size_t side = (k + turn) % sides.size();
      if (sides.size() > 1) std::this_thread::sleep_for(kSettle);
      sides[side]();
      seconds[side].push_back(SecondsOf(sides[side], calls[side]));
    }
  }
  std::vector<Timing> timings;
  for (std::vector<double>& side : seconds) {
    std::sort(side.begin(), side.end());
    const double median = Quantile(side, 0.5);
    timings.push_back(
        {median, (Quantile(side, 0.75) - Quantile(side, 0.25)) / median});
  }
  return timings;
}

double Machine::Bound(double operations, double bytes) const {
  const Memory* level = &memory.back();
  for (auto it = memory.rbegin(); it != memory.rend(); ++it) {
    if (bytes <= it->bytes) level = &*it;
  }
  return std::max(operations / flops, bytes / level->best);
}

const Machine& MeasuredMachine() {
  static std::map<int, Machine> machines;  // by compute threads
  const auto [machine, fresh] =
      machines.try_emplace(ComputeThreads().threads());
  if (fresh) machine->second = Measure();
  return machine->second;
}

}  // namespace sluice::bench
