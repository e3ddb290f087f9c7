// ScatterAdd without atomic operations: the updates are sorted by the row they
// go to, and by their number within a row; then a thread adds all of a row's,
// in that order. Keys are sorted in chunks by counting, for each, how many are
// smaller, and the chunks are merged pair by pair.
#include <utility>

#include "kernels/cuda/array_copy.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/index.h"
#include "kernels/cuda/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kChunk = 256;  // keys, and threads of a block

// An update's key: row * updates + its number. All are different. A row is
// batch * size + index; that of an index out of range comes after all others.
using Key = uint64_t;

int64_t UpdatesOf(const GatherShape& s) {
  return s.batch * s.count;
}

template <typename I>
__global__ void __launch_bounds__(kChunk)
    SortChunksKernel(GatherShape s, int64_t updates, const I* indices,
                     Key* keys) {
  Key* chunk = SharedMemory<Key>();
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
       first < updates; first += static_cast<int64_t>(gridDim.x) * kChunk) {
    const int64_t i = first + threadIdx.x;
    const int64_t n =
        updates - first < kChunk ? updates - first : int64_t{kChunk};
    Key own = 0;
    if (i < updates) {
      const int64_t index = indices[i];
      const int64_t row = index >= 0 && index < s.size
                              ? Quotient(i, s.count) * s.size + index
                              : s.batch * s.size;
      own = static_cast<Key>(row) * static_cast<Key>(updates) +
            static_cast<Key>(i);
      chunk[threadIdx.x] = own;
    }
    Barrier();  // all keys are there
    if (i < updates) {
      int64_t smaller = 0;
      for (int64_t k = 0; k < n; ++k) smaller += chunk[k] < own ? 1 : 0;
      keys[first + smaller] = own;
    }
    Barrier();  // all have read, before the next chunk is written
  }
}

// Pairs of sorted runs of `width` become runs of twice that.
__global__ void MergeKernel(const Key* keys, Key* merged, int64_t n,
                            int64_t width) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    const Key own = keys[i];
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

// The thread that has the first update of a row adds all of them, for a pack
// of elements of one [batch, middle] block.
template <typename T>
__global__ void AddKernel(GatherShape s, int64_t updates, int64_t tasks,
                          const Key* keys, const T* update, T* y, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  const int64_t packs = (s.inner + kN - 1) / kN;
  for (int64_t task = GlobalThread(); task < tasks; task += GlobalThreads()) {
    const int64_t rest = Quotient(task, packs);
    const int64_t inner = (task - rest * packs) * kN;
    const int64_t first = Quotient(rest, s.middle);
    const int64_t middle = rest - first * s.middle;
    const Key row = keys[first] / static_cast<Key>(updates);
    const Key least = row * static_cast<Key>(updates);
    const Key end = least + static_cast<Key>(updates);
    if (row == static_cast<Key>(s.batch * s.size)) continue;
    if (first > 0 && keys[first - 1] >= least) continue;
    const int64_t batch = Quotient(static_cast<int64_t>(row), s.size);
    const int64_t index = static_cast<int64_t>(row) - batch * s.size;
    const int64_t block = batch * s.middle + middle;
    const int64_t count = s.inner - inner;
    T* target = y + (block * s.size + index) * s.inner + inner;
    const auto old = LoadPack<T>(target, count, whole);
    C sum[kN];
    for (int k = 0; k < kN; ++k) sum[k] = static_cast<C>(old.at[k]);
    for (int64_t i = first; i < updates && keys[i] < end; ++i) {
      const int64_t j = static_cast<int64_t>(keys[i] - least) - batch * s.count;
      const auto term = LoadPack<T>(
          update + (block * s.count + j) * s.inner + inner, count, whole);
      for (int k = 0; k < kN; ++k) {
        sum[k] = static_cast<C>(sum[k] + static_cast<C>(term.at[k]));
      }
    }
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(sum[k]);
    StorePack(out, target, count, whole);
  }
}

// The sorted keys, in one half of the workspace.
Result<const Key*> SortedKeys(const GatherShape& s, DType index_dtype,
                              const void* indices, void* workspace,
                              cudaStream_t stream) {
  const int64_t updates = UpdatesOf(s);
  Key* keys = static_cast<Key*>(workspace);
  Key* other = keys + updates;
  SLUICE_RETURN_IF_ERROR(
      DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
        Grid grid = GridFor(updates, kChunk);
        grid.shared_bytes = kChunk * sizeof(Key);
        return Launch("ScatterAdd sort", grid, stream, SortChunksKernel<I>, s,
                      updates, static_cast<const I*>(indices), keys);
      }));
  for (int64_t width = kChunk; width < updates; width *= 2) {
    SLUICE_RETURN_IF_ERROR(Launch("ScatterAdd merge", GridFor(updates), stream,
                                  MergeKernel, keys, other, updates, width));
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace

size_t ScatterAddWorkspace(const GatherShape& shape) {
  return 2 * static_cast<size_t>(UpdatesOf(shape)) * sizeof(Key);
}

bool ScatterAddSupports(const GatherShape& shape) {
  const int64_t rows = shape.batch * shape.size + 1;
  return UpdatesOf(shape) <= INT64_MAX / rows;
}

Status ScatterAdd(const GatherShape& s, DType dtype, const void* x,
                  DType index_dtype, const void* indices, const void* updates,
                  void* y, void* workspace, cudaStream_t stream) {
  if (x != y) {
    StridedMove all;
    all.Add(s.batch * s.middle * s.size * s.inner, 1, 1);
    SLUICE_RETURN_IF_ERROR(
        CopyStrided("ScatterAdd copy", all, dtype, x, y, stream));
  }
  const int64_t count = UpdatesOf(s);
  if (count * s.middle * s.inner == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(
      const Key* keys, SortedKeys(s, index_dtype, indices, workspace, stream));
  return DispatchAmong<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                       int64_t>(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    const int64_t packs = (s.inner + kPack<T> - 1) / kPack<T>;
    const int64_t tasks = count * s.middle * packs;
    const bool whole =
        s.inner % kPack<T> == 0 && IsAligned<T>(updates) && IsAligned<T>(y);
    return Launch("ScatterAdd", GridFor(tasks), stream, AddKernel<T>, s, count,
                  tasks, keys, static_cast<const T*>(updates),
                  static_cast<T*>(y), whole);
  });
}

}  // namespace sluice::cuda
