// A thread takes an element of a slice; that of a row's first slice adds up
// those of all.
#include "kernels/cuda/ops/array/sum_rows.h"

#include "engine/semantics/row_ids.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/ops/array/sorted_rows.h"

namespace sluice::cuda {
namespace {

template <typename T, typename I>
__global__ void SumRowsKernel(SumRowsShape s, const RowKey* keys,
                              const T* values, I* rows, T* sums) {
  // One task a slice at least, for its row.
  const int64_t width = s.width > 0 ? s.width : 1;
  for (int64_t task = GlobalThread(); task < s.slices * width;
       task += GlobalThreads()) {
    const int64_t place = Quotient(task, width), i = task - place * width;
    const RowPlace at = RowPlaceOf(keys, place, s.slices);
    const bool sums_up = at.first && at.row < static_cast<uint64_t>(s.limit);
    const auto slice = static_cast<int64_t>(at.slice);
    if (i == 0) {
      rows[slice] = sums_up ? static_cast<I>(at.row) : static_cast<I>(kNoRow);
    }
    if (s.width == 0) continue;
    sums[slice * s.width + i] =
        sums_up ? RowSum(keys, place, s.slices, values, s.width, i) : T(0);
  }
}

}  // namespace

Status SumRows(const SumRowsShape& s, DType index_dtype, const void* rows,
               DType dtype, const void* values, void* first_rows, void* sums,
               void* workspace, BadIndex* bad, cudaStream_t stream) {
  if (s.slices == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(
      const RowKey* keys,
      SortRows("SumRows",
               {.size = s.limit, .count = s.slices, .some_of_none = true},
               index_dtype, rows, workspace, bad, stream));
  const Grid grid = GridFor(s.slices * (s.width > 0 ? s.width : 1));
  return DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
    const auto launch = [&]<typename T>(TypeTag<T>) {
      return Launch("SumRows", grid, stream, SumRowsKernel<T, I>, s, keys,
                    static_cast<const T*>(values), static_cast<I*>(first_rows),
                    static_cast<T*>(sums));
    };
    return dtype == DType::kFloat32 ? launch(TypeTag<float>())
                                    : launch(TypeTag<double>());
  });
}

}  // namespace sluice::cuda
