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

// totals[columns] = values[rows, columns], whose rows are `stride` apart, added
// up over the rows: in runs, as above. totals may be the first row.
template <typename C>
void SumRowsInRuns(const C* values, int64_t rows, int64_t stride,
                   int64_t columns, C* totals) {
  constexpr int64_t kRun = 128, kColumns = 256;  // so many at a time
  for (int64_t at = 0; at < columns; at += kColumns) {
    const int64_t n = std::min(kColumns, columns - at);
    double total[kColumns];
    C run[kColumns];
    std::fill(total, total + n, 0.0);
    for (int64_t begin = 0; begin < rows; begin += kRun) {
      std::fill(run, run + n, C(0));
      for (int64_t r = begin; r < std::min(begin + kRun, rows); ++r) {
        const C* const row = values + r * stride + at;
        for (int64_t j = 0; j < n; ++j) run[j] += row[j];
      }
      for (int64_t j = 0; j < n; ++j) total[j] += static_cast<double>(run[j]);
    }
    for (int64_t j = 0; j < n; ++j) totals[at + j] = static_cast<C>(total[j]);
  }
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_
