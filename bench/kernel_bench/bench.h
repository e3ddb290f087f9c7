// Measures the kernels of the CPU one by one, beside their peers, or those of a
// GPU (gpu.h).
#ifndef SLUICE_BENCH_KERNEL_BENCH_BENCH_H_
#define SLUICE_BENCH_KERNEL_BENCH_BENCH_H_

#include <ostream>
#include <string>
#include <vector>

#include "bench/kernel_bench/case.h"

namespace sluice::bench {

struct Options {
  std::vector<std::string> suites;  // none: all
  std::string filter;               // part of a row's name
  std::string provider;             // kernels of this one only; "": the best
  int threads = 0;                  // 0: one per core
  double seconds = 0.2;             // per side of a row, about
  bool json = false;
  std::string device = "/cpu:0";
  DType dtype = DType::kFloat32;  // on a GPU; the CPU's rows are of float32
};

// Do the options ask for this case?
bool Wanted(const Case& c, const Options& options);

// Measures those of `cases` that the options ask for and writes a row for each.
// Returns the number of rows whose results were wrong. Throws Error.
int RunCases(const std::vector<Case>& cases, const Options& options,
             std::ostream& out);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_BENCH_H_
