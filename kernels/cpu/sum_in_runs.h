// Sums of any number of terms, as loops that become vector code.
#ifndef SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_
#define SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_

#include <algorithm>
#include <cstdint>

#include "engine/semantics/compensated_sum.h"

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
// as SumOfMany<C>, since in one sum of very many the last digits of each would
// be lost. The order depends on n alone.
template <typename C, typename Term>
C SumInRuns(int64_t n, const Term& term) {
  constexpr int64_t kRun = 512;
  SumOfMany<C> total(0);
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(begin + kRun, n);
    total += SumOfMany<C>(SumOfRun<C>(begin, end, term));
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
    SumOfMany<C> total[kColumns];
    C run[kColumns];
    std::fill(total, total + n, SumOfMany<C>(0));
    for (int64_t begin = 0; begin < rows; begin += kRun) {
      std::fill(run, run + n, C(0));
      for (int64_t r = begin; r < std::min(begin + kRun, rows); ++r) {
        const C* const row = values + r * stride + at;
        for (int64_t j = 0; j < n; ++j) run[j] += row[j];
      }
      for (int64_t j = 0; j < n; ++j) total[j] += SumOfMany<C>(run[j]);
    }
    for (int64_t j = 0; j < n; ++j) totals[at + j] = static_cast<C>(total[j]);
  }
}

// Sums over rows of up to kMost terms, which come one after another: in runs of
// kRun rows, as above.
template <typename C, int64_t kMost, int64_t kRun>
class SumsInRuns {
 public:
  SumsInRuns(int64_t width, C* sums) : width_(width), sums_(sums) {
    std::fill_n(run_, width, C(0));
    std::fill_n(totals_, width, SumOfMany<C>(0));
  }

  // What the next row is to be added to.
  C* Next() {
    if (rows_ == kRun) EndRun();
    ++rows_;
    return run_;
  }
  // Writes sums[width].
  void End() {
    if (!ended_) {
      std::copy_n(run_, width_, sums_);
      return;
    }
    EndRun();
    for (int64_t j = 0; j < width_; ++j) sums_[j] = static_cast<C>(totals_[j]);
  }

 private:
  void EndRun() {
    for (int64_t j = 0; j < width_; ++j) {
      totals_[j] += SumOfMany<C>(run_[j]);
      run_[j] = C(0);
    }
    rows_ = 0;
    ended_ = true;
  }

  int64_t width_;
  C* sums_;
  int64_t rows_ = 0;    // in the run
  bool ended_ = false;  // whether a run has
  C run_[kMost];
  SumOfMany<C> totals_[kMost];  // of the runs that have ended
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_SUM_IN_RUNS_H_
