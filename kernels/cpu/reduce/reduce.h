// Shared by the files of the reduction kernels: which dimensions go, and in
// what order of work.
#ifndef SLUICE_KERNELS_CPU_REDUCE_REDUCE_H_
#define SLUICE_KERNELS_CPU_REDUCE_REDUCE_H_

#include <algorithm>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/semantics/axis_form.h"
#include "engine/threads.h"

namespace sluice::cpu {

inline constexpr int64_t kReduceGrain = 1 << 14;  // elements per chunk
// Columns (elements of `inner`) that are worked on together.
inline constexpr int64_t kColumnBlock = 64;

// The type that sums and products of T are kept in; integers wrap around.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<ComputeType<T>>,
                                double, uint64_t>;

// Calls fn(outer index, first column, columns) for each block of columns that
// has elements.
template <typename Fn>
void ForEachColumnBlock(const AxisForm& form, Fn fn) {
  if (form.n == 0) return;  // there may be 2^62 columns of nothing
  const int64_t blocks = CeilDiv(form.inner, kColumnBlock);
  const int64_t cost =
      std::max<int64_t>(1, form.n * std::min(form.inner, kColumnBlock));
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / cost);
  ParallelFor(form.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % blocks * kColumnBlock;
      fn(task / blocks, column, std::min(kColumnBlock, form.inner - column));
    }
  });
}

// The parts of RegisterReduceKernels in files of their own.
void RegisterReduceSimdKernels(KernelTable& table);
void RegisterReduceScanKernels(KernelTable& table);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_REDUCE_REDUCE_H_
