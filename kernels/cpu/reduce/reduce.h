// Shared by the files of the reduction kernels: which dimensions go, and in
// what order of work.
#ifndef SLUICE_KERNELS_CPU_REDUCE_REDUCE_H_
#define SLUICE_KERNELS_CPU_REDUCE_REDUCE_H_

#include <algorithm>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/threads.h"

namespace sluice::cpu {

// x seen as [outer, n, inner], n being reduced or scanned.
struct AxisForm {
  int64_t outer = 1, n = 1, inner = 1;
};

// Neighbouring dimensions that are all reduced or all kept, as one.
struct DimGroup {
  int64_t size;
  bool reduced;
};

// Input 0's dimensions without those of size 1, in alternating groups. The
// reduced ones are those of the attribute `axes` or, for SumTo, those that
// output 0 lacks or has as 1.
std::vector<DimGroup> GroupDims(const KernelSpec& spec);

// The form about the attribute `axis` of input `operand`.
AxisForm FormOf(const KernelSpec& spec, int operand);

// The number of elements that go into each output.
int64_t ReducedCount(const std::vector<DimGroup>& groups);

inline constexpr int64_t kReduceGrain = 1 << 14;  // elements per chunk
// Columns (elements of `inner`) that are worked on together.
inline constexpr int64_t kColumnBlock = 64;

// What sums and products of T are kept in: integers wrap around.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<ComputeType<T>>,
                                double, uint64_t>;

// Calls fn(outer index, first column, columns) for each block of columns.
template <typename Fn>
void ForEachColumnBlock(const AxisForm& form, Fn fn) {
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
