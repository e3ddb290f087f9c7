// Sums of any number of terms, as loops that become vector code.
#ifndef SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_
#define SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_

#include <algorithm>
#include <cstdint>

namespace sluice::cpu {

// term(begin) + ... + term(end - 1), in partial sums that become the lanes of a
// vector.
template <typename C, typename Term>
C SumOfRun(int64_t begin, int64_t end, const Term& term) {
  constexpr int kLanes = 8;
  C sum[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += term(i + lane);
  }
  for (; i < end; ++i) sum[0] += term(i);
  C total = 0;
  for (C partial : sum) total += partial;
  return total;
}

// term(0) + ... + term(n - 1), of type C: what runs of them come to is added up
// in double, since in one float sum of very many the last digits of each would
// be lost. The order depends on n alone.
template <typename C, typename Term>
C SumInRuns(int64_t n, const Term& term) {
  constexpr int64_t kRun = 512;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(begin + kRun, n);
    total += static_cast<double>(SumOfRun<C>(begin, end, term));
  }
  return static_cast<C>(total);
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_
