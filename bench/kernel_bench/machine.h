// What the machine can do at most.
#ifndef SLUICE_BENCH_KERNEL_BENCH_MACHINE_H_
#define SLUICE_BENCH_KERNEL_BENCH_MACHINE_H_

#include <functional>
#include <vector>

namespace sluice::bench {

// Medians over turns.
struct Timing {
  double seconds = 0;    // of one run
  double variation = 0;  // distance of the quartiles, relative to the median
};

// Runs the sides in turns, each for about `budget` seconds in all, and at
// least five turns each.
std::vector<Timing> TimeInTurns(const std::vector<std::function<void()>>& sides,
                                double budget);

// The roofline (Williams, Waterman and Patterson, 2009) of all compute threads.
struct Machine {
  // Bytes read and written per second where `bytes` are touched in all.
  struct Memory {
    double bytes;
    double copy;  // from one half to the other
    double best;  // that, or an update in place: no line is fetched twice
  };
  double flops = 0;  // float32 multiply-adds in registers, 2 operations
  std::vector<Memory> memory;  // by size; the last does not fit the caches

  // Seconds that work of so many operations and bytes takes at least.
  double Bound(double operations, double bytes) const;
};
// Of as many compute threads as there are now. Takes two seconds the first time
// for each number of them.
const Machine& MeasuredMachine();

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_MACHINE_H_
