// Keys are sorted in chunks by counting, for each, how many are smaller, and
// the chunks are merged pair by pair.
#include "kernels/cuda/ops/array/sorted_rows.h"

#include <utility>

#include "engine/semantics/row_ids.h"
#include "kernels/cuda/device/bad_index_device.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kChunk = 256;  // keys, and threads of a block

template <typename I>
__global__ void __launch_bounds__(kChunk)
    SortChunksKernel(RowSlices s, int64_t slices, const I* indices,
                     RowKey* keys, BadIndex* bad) {
  RowKey* chunk = SharedMemory<RowKey>();
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
       first < slices; first += static_cast<int64_t>(gridDim.x) * kChunk) {
    const int64_t i = first + threadIdx.x;
    const int64_t n =
        slices - first < kChunk ? slices - first : int64_t{kChunk};
    RowKey own = 0;
    if (i < slices) {
      const int64_t index = indices[i];
      int64_t row = s.batch * s.size;
      if (index >= 0 && index < s.size) {
        row = Quotient(i, s.count) * s.size + index;
      } else if (!s.some_of_none || index != kNoRow) {
        ReportBadIndex(bad, i, index);
      }
      own = static_cast<RowKey>(row) * static_cast<RowKey>(slices) +
            static_cast<RowKey>(i);
      chunk[threadIdx.x] = own;
    }
    Barrier();  // all keys are there
    if (i < slices) {
      int64_t smaller = 0;
      for (int64_t k = 0; k < n; ++k) smaller += chunk[k] < own ? 1 : 0;
      keys[first + smaller] = own;
    }
    Barrier();  // all have read, before the next chunk is written
  }
}

// Pairs of sorted runs of `width` become runs of twice that.
__global__ void MergeKernel(const RowKey* keys, RowKey* merged, int64_t n,
                            int64_t width) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    const RowKey own = keys[i];
    const int64_t run = i / width;
    const int64_t other = (run ^ 1) * width;
    // The first of the other run that is greater.
    int64_t low = other < n ? other : n;
    int64_t high = other + width < n ? other + width : n;
    const int64_t begin = low;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < own) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    merged[run / 2 * 2 * width + (i - run * width) + (low - begin)] = own;
  }
}

}  // namespace

bool SortRowsSupports(const RowSlices& s) {
  return s.batch * s.count <= INT64_MAX / (s.batch * s.size + 1);
}

size_t SortRowsWorkspace(int64_t slices) {
  return 2 * static_cast<size_t>(slices) * sizeof(RowKey);
}

Result<const RowKey*> SortRows(const char* who, const RowSlices& s,
                               DType index_dtype, const void* indices,
                               void* workspace, BadIndex* bad,
                               cudaStream_t stream) {
  const int64_t slices = s.batch * s.count;
  RowKey* keys = static_cast<RowKey*>(workspace);
  RowKey* other = keys + slices;
  SLUICE_RETURN_IF_ERROR(
      DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
        Grid grid = GridFor(slices, kChunk);
        grid.shared_bytes = kChunk * sizeof(RowKey);
        return Launch(who, grid, stream, SortChunksKernel<I>, s, slices,
                      static_cast<const I*>(indices), keys, bad);
      }));
  for (int64_t width = kChunk; width < slices; width *= 2) {
    SLUICE_RETURN_IF_ERROR(Launch(who, GridFor(slices), stream, MergeKernel,
                                  keys, other, slices, width));
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace sluice::cuda
