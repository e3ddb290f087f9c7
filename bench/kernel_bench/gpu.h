// Measures the kernels of a GPU one by one: by its own clock, with operands in
// its L2 cache and without, against what it was measured to do at most.
#ifndef SLUICE_BENCH_KERNEL_BENCH_GPU_H_
#define SLUICE_BENCH_KERNEL_BENCH_GPU_H_

#include <ostream>
#include <vector>

#include "bench/kernel_bench/bench.h"
#include "bench/kernel_bench/case.h"
#include "engine/accelerator.h"

namespace sluice::bench {

// As RunCases, on a device. Each case is measured in options.dtype; ops
// without a kernel there, or without one of options.provider, are left out, an
// error where that leaves no row.
int RunCasesOn(Accelerator& accelerator, const std::vector<Case>& cases,
               const Options& options, std::ostream& out);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_GPU_H_
