// ScatterAdd without atomic operations: the updates are sorted by the row they
// go to, and by their number within a row; then a thread adds all of a row's,
// in that order, runs of them at a time where they are many. Keys are sorted in
// chunks by counting, for each, how many are smaller, and the chunks are merged
// pair by pair.
#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/ops/array/index.h"
#include "kernels/cuda/ops/array/sorted_rows.h"

namespace sluice::cuda {
namespace {

using Key = RowKey;

int64_t UpdatesOf(const GatherShape& s) {
  return s.batch * s.count;
}

// --- Sums --------------------------------------------------------------------

// A thread takes a pack of elements of one [batch, middle] block, for an update
// by its place among the sorted keys. The one at the first of a row adds all of
// the row's. That may be many (a token that fills up sentences), so runs of
// sorted updates are added side by side first: one that continues a row becomes
// a partial sum, and the row's thread goes on with those.
constexpr int64_t kRun = 32;
// What the thread adds up partial sums in: very many of them are to lose none.
template <typename C>
struct TotalOf {
  using Type = C;
};
template <>
struct TotalOf<float> {
  using Type = double;
};

int64_t RunsOf(const GatherShape& s) {
  return CeilDiv(UpdatesOf(s), kRun);
}

struct Task {
  int64_t middle, inner;  // the first element of the pack
  int64_t place;          // among keys, or runs of them
};
template <int N>
__device__ Task TaskOf(const GatherShape& s, int64_t i) {
  const int64_t packs = CeilDiv(s.inner, N);
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
    using Total = typename TotalOf<C>::Type;
    Total total[kN];
    for (int k = 0; k < kN; ++k) total[k] = sum[k];
    for (; run * kRun < updates && keys[run * kRun] < row.end; ++run) {
      const auto term = LoadPack<C, kN>(
          partial + (run * s.middle + t.middle) * s.inner + t.inner, count,
          whole);
      for (int k = 0; k < kN; ++k) {
        total[k] = static_cast<Total>(total[k] + term.at[k]);
      }
    }
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(static_cast<C>(total[k]));
    StorePack(out, target, count, whole);
  }
}

// --- Launchers ---------------------------------------------------------------

}  // namespace

size_t ScatterAddWorkspace(const GatherShape& shape, DType dtype) {
  return SortRowsWorkspace(UpdatesOf(shape)) +
         static_cast<size_t>(RunsOf(shape) * shape.middle * shape.inner) *
             SizeOf(ComputeDType(dtype));
}

bool ScatterAddSupports(const GatherShape& shape) {
  return SortRowsSupports({shape.batch, shape.size, shape.count});
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
  SLUICE_ASSIGN_OR_RETURN(
      const Key* keys, SortRows("ScatterAdd", {s.batch, s.size, s.count},
                                index_dtype, indices, workspace, bad, stream));
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
