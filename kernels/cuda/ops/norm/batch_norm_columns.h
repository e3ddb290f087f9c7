// What the forward and backward kernels of batch normalisation share: sums down
// the columns of a matrix in two passes, and chunks of its elements.
#ifndef SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_
#define SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/norm/batch_norm.h"

namespace sluice::cuda {

// First pass: a block takes a segment of rows and kAcross packs of channels;
// kLanes threads share the rows of a pack. Second: a block takes kAcross2
// channels, of which kLanes2 threads share the segments.
inline constexpr int kSegmentRows = 512;
inline constexpr int kAcross = 8, kLanes = 32;
inline constexpr int kAcross2 = 32, kLanes2 = 8;
inline constexpr int kColumnThreads = 256;  // of both

inline int64_t SegmentsOf(const BatchNormShape& shape) {
  return CeilDiv(shape.rows, kSegmentRows);
}

// Where results are in the workspace, in elements of the computing type C: two
// vectors of channels for each segment, then three that the second pass leaves
// for the third, which computes elements.
template <typename C>
struct Workspace {
  C* segments;
  C* factor;
  C* slope;
  C* shift;

  Workspace(const BatchNormShape& shape, void* start)
      : segments(static_cast<C*>(start)),
        factor(segments + 2 * SegmentsOf(shape) * shape.channels),
        slope(factor + shape.channels),
        shift(slope + shape.channels) {}
};

// Where a segment's first vector is at `channel`; its second is shape.channels
// further on.
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

// --- The first pass ----------------------------------------------------------

template <typename T>
int64_t ChannelGroups(const BatchNormShape& shape) {
  constexpr int kChannels = kAcross * kPack<T>;
  return CeilDiv(shape.channels, kChannels);
}

// May a thread take packs of channels in every row of these tensors at once?
template <typename T, typename... Pointers>
bool ChannelsAreWhole(const BatchNormShape& shape, Pointers... tensors) {
  return shape.channels % kPack<T> == 0 && (IsAligned<T>(tensors) && ...);
}

template <typename T, typename State>
Grid FirstPassGrid(const BatchNormShape& shape) {
  return {
      std::min<int64_t>(SegmentsOf(shape) * ChannelGroups<T>(shape), 1 << 16),
      kColumnThreads, kColumnThreads * kPack<T> * sizeof(State)};
}

// Calls add(states, row, first channel, number of channels) for the rows of
// each task of this block. `results`: the workspace's segments.
template <typename T, typename State, typename Add>
__device__ void FirstPass(const BatchNormShape& shape, int64_t segments,
                          ComputeOf<T>* results, Add add) {
  constexpr int kN = kPack<T>;
  constexpr int kChannels = kAcross * kN;
  const int64_t groups = (shape.channels + kChannels - 1) / kChannels;
  const int lane = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t task = blockIdx.x; task < segments * groups; task += gridDim.x) {
    const int64_t segment = task / groups;
    const int64_t channel =
        task % groups * kChannels + threadIdx.x % kAcross * kN;
    const int64_t count =
        shape.channels - channel;  // may be less than kN, or 0
    const int64_t first = segment * kSegmentRows;
    const int64_t end = scalar::Minimum()(first + kSegmentRows, shape.rows);
    State states[kN] = {};
    if (count > 0) {
      for (int64_t row = first + lane; row < end; row += kLanes) {
        add(states, row, channel, count);
      }
    }
    CombineLanes(states, SharedMemory<State>(), kAcross, kLanes);
    if (lane != 0) continue;
    ComputeOf<T>* left = OfSegment(results, shape, segment, channel);
    for (int k = 0; k < kN && k < count; ++k) {
      left[k] = states[k].first();
      left[shape.channels + k] = states[k].second();
    }
  }
}

// --- The second pass ---------------------------------------------------------

template <typename State>
Grid SecondPassGrid(const BatchNormShape& shape) {
  return {CeilDiv(shape.channels, kAcross2), kColumnThreads,
          kColumnThreads * sizeof(State)};
}

// load(segment, channel) gives a segment's state; finish(state, channel) takes
// that of all.
template <typename State, typename Load, typename Finish>
__device__ void SecondPass(const BatchNormShape& shape, int64_t segments,
                           Load load, Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) / kAcross2;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kAcross2;
       first < shape.channels;
       first += static_cast<int64_t>(gridDim.x) * kAcross2) {
    const int64_t channel = first + threadIdx.x % kAcross2;
    State state[1] = {};
    if (channel < shape.channels) {
      for (int64_t s = lane; s < segments; s += kLanes2) {
        state[0] = state[0] + load(s, channel);
      }
    }
    CombineLanes(state, SharedMemory<State>(), kAcross2, kLanes2);
    if (lane == 0 && channel < shape.channels) finish(state[0], channel);
  }
}

// Of what the first pass left.
template <typename State, typename C, typename Finish>
__device__ void SecondPass(const BatchNormShape& shape, int64_t segments,
                           const C* results, Finish finish) {
  SecondPass<State>(
      shape, segments,
      [&](int64_t segment, int64_t channel) {
        const C* left = OfSegment(results, shape, segment, channel);
        const int64_t rows = scalar::Minimum()(
            int64_t{kSegmentRows}, shape.rows - segment * kSegmentRows);
        return State(left[0], left[shape.channels], rows);
      },
      finish);
}

// --- Elements ----------------------------------------------------------------

// Eight elements, the bits of one byte of a mask.
inline constexpr int kOctet = 8;

template <typename T, typename... Pointers>
bool OctetsAreWhole(Pointers... tensors) {
  return (IsAligned<T, kOctet>(tensors) && ...);
}
inline Grid OctetGrid(const BatchNormShape& shape) {
  return GridFor(CeilDiv(shape.rows * shape.channels, kOctet));
}

// May the values of eight channels be loaded at once?
template <typename C, typename... Pointers>
bool OctetsOfChannels(const BatchNormShape& shape, Pointers... vectors) {
  return shape.channels % kOctet == 0 && (IsAligned<C, kOctet>(vectors) && ...);
}

// Of a vector of channels, the values for the elements from i on.
template <typename C>
__device__ Pack<C, kOctet> LoadChannels(const C* values, int64_t i,
                                        int64_t channels, bool octets) {
  int64_t c = i % channels;
  if (octets) return LoadPack<C, kOctet>(values + c, kOctet, true);
  Pack<C, kOctet> pack;
  for (int k = 0; k < kOctet; ++k) {
    pack.at[k] = values[c];
    if (++c == channels) c = 0;
  }
  return pack;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_COLUMNS_H_
