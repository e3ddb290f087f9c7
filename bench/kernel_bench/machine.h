// What the machine can do at most, measured when the benchmark starts.
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
  // Copying between two buffers that together hold `bytes`.
  struct Copy {
    double bytes;
    double bytes_per_second;  // read and written
  };
  double flops = 0;        // float32 multiply-adds in registers, 2 operations
  std::vector<Copy> copy;  // by size, ascending; the last does not fit caches

  // Seconds that work of so many operations and bytes takes at least.
  double Bound(double operations, double bytes) const;
};
Machine MeasureMachine();

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_MACHINE_H_
