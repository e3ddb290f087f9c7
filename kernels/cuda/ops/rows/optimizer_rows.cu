// A thread takes an element of a slice; that of a row's first slice adds up
// those of all, and updates the row's element.
#include "kernels/cuda/ops/rows/optimizer_rows.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/optimizer_step.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/ops/array/sorted_rows.h"

namespace sluice::cuda {
namespace {

template <typename Rule, typename T>
__global__ void OptimizerRowsKernel(OptimizerRows work, OptimizerParams params,
                                    const RowKey* keys) {
  if (work.apply != nullptr && !*work.apply) return;
  const auto u = UpdateOfStep<T>(params, work.learning_rate, work.step);
  constexpr Rule rule{};
  for (int64_t task = GlobalThread(); task < work.slices * work.width;
       task += GlobalThreads()) {
    const int64_t place = Quotient(task, work.width);
    const int64_t i = task - place * work.width;
    const RowPlace at = RowPlaceOf(keys, place, work.slices);
    if (!at.first || at.row >= static_cast<uint64_t>(work.rows)) continue;
    const T gradient =
        RowSum(keys, place, work.slices, static_cast<const T*>(work.gradient),
               work.width, i);
    const int64_t element = static_cast<int64_t>(at.row) * work.width + i;
    T none[2] = {};
    T* const a =
        Rule::kSlots > 0 ? static_cast<T*>(work.slots[0]) + element : none;
    T* const b =
        Rule::kSlots > 1 ? static_cast<T*>(work.slots[1]) + element : none + 1;
    rule(u, gradient, static_cast<T*>(work.variable)[element], *a, *b);
  }
}

template <typename Rule, typename T>
Status LaunchRows(const OptimizerRows& work, const OptimizerParams& params,
                  DType index_dtype, const void* slice_rows, void* workspace,
                  BadIndex* bad, cudaStream_t stream) {
  if (work.slices * work.width == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(
      const RowKey* keys,
      SortRows(Rule::kName,
               {.size = work.rows, .count = work.slices, .some_of_none = true},
               index_dtype, slice_rows, workspace, bad, stream));
  Grid grid = GridFor(work.slices * work.width);
  grid.shared_bytes = 2 * sizeof(T);
  return Launch(Rule::kName, grid, stream, OptimizerRowsKernel<Rule, T>, work,
                params, keys);
}

template <typename... Rs>
std::span<const OptimizerRowsRule> RulesOf(scalar::OpList<Rs...>) {
  static constexpr OptimizerRowsRule kRules[] = {
      {Rs::kName, Rs::kSlots, Rs::kCountsSteps, LaunchRows<Rs, float>,
       LaunchRows<Rs, double>}...};
  return kRules;
}

}  // namespace

std::span<const OptimizerRowsRule> OptimizerRowsRules() {
  return RulesOf(optimizer::Rules());
}

}  // namespace sluice::cuda
