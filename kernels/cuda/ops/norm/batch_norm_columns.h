// The common parts of the forward and backward kernels of batch normalisation:
// sums down the columns of a matrix in two passes, and a third over its
// elements.
#ifndef SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_
#define SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/norm/batch_norm.h"

namespace sluice::cuda {

// A block of the first pass takes a segment of rows and kAcross packs of
// channels, of which kLanes threads share the rows; the third does the same
// from the last row to the first, so that it begins with what the first has
// left in the cache. Between them a block takes kAcross2 channels, of which
// kLanes2 threads share the segments.
inline constexpr int kAcross = 8, kLanes = 32;
inline constexpr int kAcross2 = 8, kLanes2 = 32;
inline constexpr int kColumnThreads = 256;  // of all

// Blocks of a kernel that are to fit a multiprocessor at once: registers of a
// thread are 65536 / (256 * blocks) at most. Two, whose threads have four packs
// in flight each: 32 KB. Three have fewer registers, and so fewer packs, and
// have less in flight together.
template <typename T>
inline constexpr int kColumnBlocks = sizeof(T) <= 4 ? 2 : 1;

// The rows, cut: small enough for a block each, few enough for the second pass.
struct Segments {
  int64_t rows;  // of each but the last
  int64_t count;
};
inline Segments SegmentsOf(const BatchNormShape& shape) {
  constexpr int64_t kLeastRows = 512, kMost = 1024;
  const int64_t rows =
      std::max(kLeastRows, CeilDiv(shape.rows, kMost * kLanes) * kLanes);
  return {rows, CeilDiv(shape.rows, rows)};
}

// The layout of results in the workspace, in elements of the computing type C:
// two vectors of channels for each segment, then three that the second pass
// leaves for the third, which computes elements.
template <typename C>
struct Workspace {
  C* segments;
  C* factor;
  C* slope;
  C* shift;

  Workspace(const BatchNormShape& shape, void* start)
      : segments(static_cast<C*>(start)),
        factor(segments + 2 * SegmentsOf(shape).count * shape.channels),
        slope(factor + shape.channels),
        shift(slope + shape.channels) {}
};

// The address of a segment's first vector at `channel`; its second is
// shape.channels further on.
template <typename C>
__device__ C* OfSegment(C* segments, const BatchNormShape& shape,
                        int64_t segment, int64_t channel) {
  return segments + 2 * segment * shape.channels + channel;
}

// A State is what is found of some rows of a channel: State() of none, a + b of
// those of both. A segment leaves two numbers of it, first and second, which
// with the number of its rows make the state again.
template <typename C>
struct ColumnSums {
  C sum, dot;  // of a gradient, and of it times something
  ColumnSums() = default;
  __device__ ColumnSums(C first, C second, int64_t) : sum(first), dot(second) {}
  __device__ C first() const { return sum; }
  __device__ C second() const { return dot; }
  friend __device__ ColumnSums operator+(const ColumnSums& a,
                                         const ColumnSums& b) {
    return {a.sum + b.sum, a.dot + b.dot, 0};
  }
};

// Combines the states of the threads that share a channel, as a tree; the first
// of them, lane 0, gets the result in `own`. All threads must come here.
// `shared` has N states for every thread.
template <int N, typename State>
__device__ void CombineLanes(State (&own)[N], State* shared, int across,
                             int lanes) {
  const int lane = static_cast<int>(threadIdx.x) / across;
  State* mine = shared + threadIdx.x * N;
  for (int k = 0; k < N; ++k) mine[k] = own[k];
  Barrier();  // all states are there
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half) {
      const State* other = mine + half * across * N;
      for (int k = 0; k < N; ++k) mine[k] = mine[k] + other[k];
    }
    Barrier();  // the upper half has been read, the lower half written
  }
  for (int k = 0; k < N; ++k) own[k] = mine[k];
}

// --- Tasks of the first and the third pass -----------------------------------

// May a thread take N channels of every row of these tensors at once?
template <typename T, int N, typename... Pointers>
bool ChannelsAreWhole(const BatchNormShape& shape, Pointers... tensors) {
  return shape.channels % N == 0 && (IsAligned<T, N>(tensors) && ...);
}

inline int64_t ChannelGroups(const BatchNormShape& shape, int n) {
  return CeilDiv(shape.channels, int64_t{kAcross} * n);
}
inline int64_t ColumnTasks(const BatchNormShape& shape, int n) {
  return SegmentsOf(shape).count * ChannelGroups(shape, n);
}
inline Grid ColumnGrid(const BatchNormShape& shape, int n,
                       size_t shared_bytes = 0) {
  return {std::min<int64_t>(ColumnTasks(shape, n), 1 << 16), kColumnThreads,
          shared_bytes};
}

// A task: some rows, and a thread's N channels, of which `count` exist, or
// none.
struct ColumnTask {
  int64_t segment, first, end;  // rows [first, end)
  int64_t channel, count;
};
template <int N>
__device__ ColumnTask ColumnTaskOf(const BatchNormShape& shape,
                                   const Segments& segments, int64_t task) {
  constexpr int kChannels = kAcross * N;
  const int64_t groups = CeilDiv(shape.channels, kChannels);
  ColumnTask t{};
  t.segment = Quotient(task, groups);
  t.first = t.segment * segments.rows;
  t.end = scalar::Minimum()(t.first + segments.rows, shape.rows);
  t.channel = (task - t.segment * groups) * kChannels +
              static_cast<int>(threadIdx.x) % kAcross * N;
  t.count = shape.channels - t.channel;
  return t;
}

// --- The first pass ----------------------------------------------------------

template <typename T, typename State>
Grid FirstPassGrid(const BatchNormShape& shape) {
  return ColumnGrid(shape, kPack<T>, kColumnThreads * kPack<T> * sizeof(State));
}

// For each task of this block that `wants(task)`, a matter of its channels
// alone, `prepare(task)` loads what these have; then, for its rows, add(states,
// load(place, row, task), place, task, prepared), where a place is that of the
// row's first channel. `results`: the workspace's segments; of other tasks a
// state of none is left.
template <typename T, typename State, int kAtOnce, typename Wants,
          typename Prepare, typename LoadFn, typename Add>
__device__ void FirstPass(const BatchNormShape& shape, const Segments& segments,
                          ComputeOf<T>* results, Wants wants, Prepare prepare,
                          LoadFn load, Add add) {
  constexpr int kN = kPack<T>;
  const int64_t groups = (shape.channels + kAcross * kN - 1) / (kAcross * kN);
  const int lane = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t task = blockIdx.x; task < segments.count * groups;
       task += gridDim.x) {
    const ColumnTask t = ColumnTaskOf<kN>(shape, segments, task);
    State states[kN] = {};
    if (t.count > 0 && wants(t)) {
      const auto prepared = prepare(t);
      const int64_t start = t.first * shape.channels + t.channel;
      const auto place = [&](int i) { return start + i * shape.channels; };
      Ahead<kAtOnce>(
          lane, static_cast<int>(t.end - t.first), kLanes,
          [&](int i) { return load(place(i), t.first + i, t); },
          [&](const auto& loaded, int i) {
            add(states, loaded, place(i), t, prepared);
          });
    }
    CombineLanes(states, SharedMemory<State>(), kAcross, kLanes);
    if (lane != 0) continue;
    ComputeOf<T>* left = OfSegment(results, shape, t.segment, t.channel);
    for (int k = 0; k < kN && k < t.count; ++k) {
      Store(states[k].first(), left + k);
      Store(states[k].second(), left + shape.channels + k);
    }
  }
}

// The first pass for all tasks of this block.
template <typename T, typename State, int kAtOnce, typename Prepare,
          typename LoadFn, typename Add>
__device__ void FirstPass(const BatchNormShape& shape, const Segments& segments,
                          ComputeOf<T>* results, Prepare prepare, LoadFn load,
                          Add add) {
  FirstPass<T, State, kAtOnce>(
      shape, segments, results, [](const ColumnTask&) { return true; }, prepare,
      load, add);
}

// --- The second pass ---------------------------------------------------------

template <typename State>
Grid SecondPassGrid(const BatchNormShape& shape) {
  return {CeilDiv(shape.channels, kAcross2), kColumnThreads,
          kColumnThreads * sizeof(State)};
}

// load(segment, channel) gives a segment's state; finish(state, channel) takes
// that of all.
template <typename State, typename LoadFn, typename Finish>
__device__ void SecondPass(const BatchNormShape& shape, int64_t segments,
                           LoadFn load, Finish finish) {
  constexpr int kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) / kAcross2;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kAcross2;
       first < shape.channels;
       first += static_cast<int64_t>(gridDim.x) * kAcross2) {
    const int64_t channel = first + threadIdx.x % kAcross2;
    State state[1] = {};
    if (channel < shape.channels) {
      Ahead<kAtOnce>(
          lane, static_cast<int>(segments), kLanes2,
          [&](int segment) { return load(segment, channel); },
          [&](const State& other, int) { state[0] = state[0] + other; });
    }
    CombineLanes(state, SharedMemory<State>(), kAcross2, kLanes2);
    if (lane == 0 && channel < shape.channels) finish(state[0], channel);
  }
}

// The second pass over the segments that the first pass left in `results`.
template <typename State, typename C, typename Finish>
__device__ void SecondPass(const BatchNormShape& shape,
                           const Segments& segments, const C* results,
                           Finish finish) {
  SecondPass<State>(
      shape, segments.count,
      [&](int64_t segment, int64_t channel) {
        const C* left = OfSegment(results, shape, segment, channel);
        const int64_t rows = scalar::Minimum()(
            segments.rows, shape.rows - segment * segments.rows);
        return State(Load(left), Load(left + shape.channels), rows);
      },
      finish);
}

// --- The third pass ----------------------------------------------------------

// Eight elements, the bits of one byte of a mask.
inline constexpr int kOctet = 8;

// For each task of this block, of whole octets of channels: `prepare(channel)`
// loads what the channels have, once; then, backwards, finish(load(place),
// place, prepared) for the rows.
template <int kAtOnce, typename Prepare, typename LoadFn, typename Finish>
__device__ void ThirdPass(const BatchNormShape& shape, const Segments& segments,
                          Prepare prepare, LoadFn load, Finish finish) {
  const int64_t groups =
      (shape.channels + kAcross * kOctet - 1) / (kAcross * kOctet);
  const int lane = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t task = segments.count * groups - 1 - blockIdx.x; task >= 0;
       task -= gridDim.x) {
    const ColumnTask t = ColumnTaskOf<kOctet>(shape, segments, task);
    if (t.count <= 0) continue;
    const auto prepared = prepare(t.channel);
    const int64_t start = (t.end - 1) * shape.channels + t.channel;
    const auto place = [&](int i) { return start - i * shape.channels; };
    Ahead<kAtOnce>(
        lane, static_cast<int>(t.end - t.first), kLanes,
        [&](int i) { return load(place(i)); },
        [&](const auto& loaded, int i) { finish(loaded, place(i), prepared); });
  }
}

// --- Elements of any shape ---------------------------------------------------

inline Grid OctetGrid(const BatchNormShape& shape) {
  return GridFor(CeilDiv(shape.rows * shape.channels, kOctet));
}

// Loads, from a vector of channels, the values for the elements from i on.
template <typename C>
__device__ Pack<C, kOctet> LoadChannels(const C* values, int64_t i,
                                        int64_t channels) {
  int64_t c = i % channels;
  Pack<C, kOctet> pack;
  for (int k = 0; k < kOctet; ++k) {
    pack.at[k] = Load(values + c);
    if (++c == channels) c = 0;
  }
  return pack;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_
