// ScatterAdd without atomic operations: the updates are sorted by the row they
// go to, and by their number within a row; then a thread adds all of a row's,
// in that order, runs of them at a time where they are many. Keys are sorted in
// chunks by counting, for each, how many are smaller, and the chunks are merged
// pair by pair.
#include <utility>

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/bad_index_device.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/ops/array/index.h"

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
                     Key* keys, BadIndex* bad) {
  Key* chunk = SharedMemory<Key>();
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
       first < updates; first += static_cast<int64_t>(gridDim.x) * kChunk) {
    const int64_t i = first + threadIdx.x;
    const int64_t n =
        updates - first < kChunk ? updates - first : int64_t{kChunk};
    Key own = 0;
    if (i < updates) {
      const int64_t index = indices[i];
      int64_t row = s.batch * s.size;
      if (index >= 0 && index < s.size) {
        row = Quotient(i, s.count) * s.size + index;
      } else {
        ReportBadIndex(bad, i, index);
      }
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

// --- Sums --------------------------------------------------------------------

// A thread takes a pack of elements of one [batch, middle] block, for an update
// by its place among the sorted keys. The one at the first of a row adds all of
// the row's. That may be many (a token that fills up sentences), so runs of
// sorted updates are added side by side first: one that continues a row becomes
// a partial sum, and the row's thread goes on with those.
constexpr int64_t kRun = 32;

int64_t RunsOf(const GatherShape& s) {
  return CeilDiv(UpdatesOf(s), kRun);
}

struct Task {
  int64_t middle, inner;  // the first element of the pack
  int64_t place;          // among keys, or runs of them
};
template <int N>
__device__ Task TaskOf(const GatherShape& s, int64_t i) {
  const int64_t packs = (s.inner + N - 1) / N;
  const int64_t rest = Quotient(i, packs);
  const int64_t place = Quotient(rest, s.middle);
  return {rest - place * s.middle, (i - rest * packs) * N, place};
}

// The keys of a row are those from `least` to before `end`.
struct Row {
  Key least, end;
  bool exists;  // its index is in range
  int64_t batch, index;
};
__device__ Row RowOf(const GatherShape& s, int64_t updates, Key key) {
  const Key row = key / static_cast<Key>(updates);
  const Key least = row * static_cast<Key>(updates);
  const int64_t batch =
      s.size > 0 ? Quotient(static_cast<int64_t>(row), s.size) : 0;
  return {least, least + static_cast<Key>(updates),
          row != static_cast<Key>(s.batch * s.size), batch,
          static_cast<int64_t>(row) - batch * s.size};
}

// Adds the row's updates among keys [begin, stop) to sum; keys are sorted, and
// that of `begin` is of the row. Returns where it ended.
template <typename T, int N>
__device__ int64_t AddRun(const GatherShape& s, const Row& row, const Task& t,
                          int64_t begin, int64_t stop, const Key* keys,
                          const T* update, bool whole, ComputeOf<T> (&sum)[N]) {
  using C = ComputeOf<T>;
  const T* block =
      update + (row.batch * s.middle + t.middle) * s.count * s.inner;
  int64_t i = begin;
  for (; i < stop && keys[i] < row.end; ++i) {
    const int64_t j =
        static_cast<int64_t>(keys[i] - row.least) - row.batch * s.count;
    const auto term =
        LoadPack<T>(block + j * s.inner + t.inner, s.inner - t.inner, whole);
    for (int k = 0; k < N; ++k) {
      sum[k] = static_cast<C>(sum[k] + static_cast<C>(term.at[k]));
    }
  }
  return i;
}

// partial[run, middle, inner]: of runs that do not begin a row, the sum of the
// updates that continue it. Others are left as they were.
template <typename T>
__global__ void RunsKernel(GatherShape s, int64_t updates, int64_t tasks,
                           const Key* keys, const T* update,
                           ComputeOf<T>* partial, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const Task t = TaskOf<kN>(s, i);
    const int64_t first = t.place * kRun;
    const Row row = RowOf(s, updates, keys[first]);
    if (!row.exists || first == 0 || keys[first - 1] < row.least) continue;
    Pack<C, kN> sum = {};
    AddRun<T, kN>(s, row, t, first, scalar::Minimum()(first + kRun, updates),
                  keys, update, whole, sum.at);
    StorePack(sum,
              partial + (t.place * s.middle + t.middle) * s.inner + t.inner,
              s.inner - t.inner, whole);
  }
}

template <typename T>
__global__ void AddKernel(GatherShape s, int64_t updates, int64_t tasks,
                          const Key* keys, const T* update,
                          const ComputeOf<T>* partial, T* y, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const Task t = TaskOf<kN>(s, i);
    const Row row = RowOf(s, updates, keys[t.place]);
    if (!row.exists || (t.place > 0 && keys[t.place - 1] >= row.least)) {
      continue;
    }
    const int64_t count = s.inner - t.inner;
    T* target =
        y + ((row.batch * s.middle + t.middle) * s.size + row.index) * s.inner +
        t.inner;
    const auto old = LoadPack<T>(target, count, whole);
    C sum[kN];
    for (int k = 0; k < kN; ++k) sum[k] = static_cast<C>(old.at[k]);
    int64_t run = t.place / kRun + 1;
    const int64_t stop = scalar::Minimum()(run * kRun, updates);
    AddRun<T, kN>(s, row, t, t.place, stop, keys, update, whole, sum);
    for (; run * kRun < updates && keys[run * kRun] < row.end; ++run) {
      const auto term = LoadPack<C, kN>(
          partial + (run * s.middle + t.middle) * s.inner + t.inner, count,
          whole);
      for (int k = 0; k < kN; ++k) sum[k] = static_cast<C>(sum[k] + term.at[k]);
    }
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(sum[k]);
    StorePack(out, target, count, whole);
  }
}

// --- Launchers ---------------------------------------------------------------

// The sorted keys, in one half of the first 2 * updates of the workspace.
Result<const Key*> SortedKeys(const GatherShape& s, DType index_dtype,
                              const void* indices, void* workspace,
                              BadIndex* bad, cudaStream_t stream) {
  const int64_t updates = UpdatesOf(s);
  Key* keys = static_cast<Key*>(workspace);
  Key* other = keys + updates;
  SLUICE_RETURN_IF_ERROR(
      DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
        Grid grid = GridFor(updates, kChunk);
        grid.shared_bytes = kChunk * sizeof(Key);
        return Launch("ScatterAdd sort", grid, stream, SortChunksKernel<I>, s,
                      updates, static_cast<const I*>(indices), keys, bad);
      }));
  for (int64_t width = kChunk; width < updates; width *= 2) {
    SLUICE_RETURN_IF_ERROR(Launch("ScatterAdd merge", GridFor(updates), stream,
                                  MergeKernel, keys, other, updates, width));
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace

size_t ScatterAddWorkspace(const GatherShape& shape, DType dtype) {
  return 2 * static_cast<size_t>(UpdatesOf(shape)) * sizeof(Key) +
         static_cast<size_t>(RunsOf(shape) * shape.middle * shape.inner) *
             SizeOf(ComputeDType(dtype));
}

bool ScatterAddSupports(const GatherShape& shape) {
  const int64_t rows = shape.batch * shape.size + 1;
  return UpdatesOf(shape) <= INT64_MAX / rows;
}

Status ScatterAdd(const GatherShape& s, DType dtype, const void* x,
                  DType index_dtype, const void* indices, const void* updates,
                  void* y, void* workspace, BadIndex* bad,
                  cudaStream_t stream) {
  if (x != y) {
    StridedMove all;
    all.Add(s.batch * s.middle * s.size * s.inner, 1, 1);
    SLUICE_RETURN_IF_ERROR(
        CopyStrided("ScatterAdd copy", all, dtype, x, y, stream));
  }
  const int64_t count = UpdatesOf(s);
  if (count * s.middle * s.inner == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(const Key* keys, SortedKeys(s, index_dtype, indices,
                                                      workspace, bad, stream));
  return DispatchNumeric(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    const int64_t packs = CeilDiv(s.inner, kPack<T>);
    const bool whole =
        s.inner % kPack<T> == 0 && IsAligned<T>(updates) && IsAligned<T>(y);
    const T* update = static_cast<const T*>(updates);
    auto* partial = reinterpret_cast<ComputeOf<T>*>(
        static_cast<Key*>(workspace) + 2 * count);
    const int64_t run_tasks = RunsOf(s) * s.middle * packs;
    SLUICE_RETURN_IF_ERROR(Launch("ScatterAdd runs", GridFor(run_tasks), stream,
                                  RunsKernel<T>, s, count, run_tasks, keys,
                                  update, partial, whole));
    const int64_t tasks = count * s.middle * packs;
    return Launch("ScatterAdd", GridFor(tasks), stream, AddKernel<T>, s, count,
                  tasks, keys, update, partial, static_cast<T*>(y), whole);
  });
}

}  // namespace sluice::cuda
