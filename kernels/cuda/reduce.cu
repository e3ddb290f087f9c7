// Reductions: a block combines a segment of a row, or of 32 columns; where rows
// are cut into several segments, a second pass combines their results in order.
#include "kernels/cuda/reduce.h"

#include <algorithm>

#include "engine/scalar.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/row.h"

namespace sluice::cuda {
namespace {

// --- What is combined --------------------------------------------------------

// `Start` is the result of no elements.
struct SumOf {
  static constexpr const char* kName = "Sum";
  template <typename S>
  static __device__ S Start() {
    return S(0);
  }
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return a + b;
  }
};
struct ProductOf {
  static constexpr const char* kName = "Prod";
  template <typename S>
  static __device__ S Start() {
    return S(1);
  }
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return a * b;
  }
};
template <bool kMax>
struct ExtremeOf {
  static constexpr const char* kName = kMax ? "Max" : "Min";
  template <typename S>
  static __device__ S Start() {
    return S(kMax ? -__builtin_inff() : __builtin_inff());
  }
  template <typename S>
  __device__ S operator()(S a, S b) const {
    if constexpr (kMax) {
      return scalar::Maximum()(a, b);
    } else {
      return scalar::Minimum()(a, b);
    }
  }
};

// --- How the work is cut -----------------------------------------------------

constexpr int kColumns = 32;    // of a block
constexpr int kColumnRows = 8;  // rows that a block reads at a time

// Elements of n in a segment. Long enough that the first pass's results are
// few, short enough that several segments fill a GPU when rows are few.
int64_t SegmentOf(const ReduceShape& shape) {
  return shape.inner == 1 ? 1 << 14 : 1 << 9;
}
int64_t SegmentsOf(const ReduceShape& shape) {
  const int64_t segment = SegmentOf(shape);
  return std::max<int64_t>((shape.n + segment - 1) / segment, 1);
}

// One pass, [outer, n, inner] to [outer, segments, inner].
struct Pass {
  ReduceShape shape;
  int64_t segment;
  int64_t segments;
  bool from_states;  // what it reads: results of a pass, or elements
  bool to_states;    // what it writes
  double divisor;    // of the result when it is an element: a mean's count
};

// x[i] as a state, whatever it holds.
template <typename T>
__device__ ComputeOf<T> StateAt(const void* x, int64_t i, bool states) {
  using S = ComputeOf<T>;
  return states ? static_cast<const S*>(x)[i]
                : static_cast<S>(static_cast<const T*>(x)[i]);
}
template <typename T>
__device__ void Store(ComputeOf<T> state, void* y, int64_t i, const Pass& p) {
  using S = ComputeOf<T>;
  if (p.to_states) {
    static_cast<S*>(y)[i] = state;
  } else {
    static_cast<T*>(y)[i] =
        T(p.divisor == 1 ? state : state / static_cast<S>(p.divisor));
  }
}

// --- Rows --------------------------------------------------------------------

// A block per segment of a row. whole: segments are whole packs.
template <typename Combine, typename T>
__global__ void RowsKernel(const void* x, void* y, Pass p, bool whole) {
  using S = ComputeOf<T>;
  constexpr Combine combine{};
  for (int64_t result = blockIdx.x; result < p.shape.outer * p.segments;
       result += gridDim.x) {
    const int64_t first = result % p.segments * p.segment;
    const int64_t count = scalar::Minimum()(p.segment, p.shape.n - first);
    const int64_t at = result / p.segments * p.shape.n + first;
    S state = Combine::template Start<S>();
    const auto take = [&](int64_t, S v) { state = combine(state, v); };
    if (p.from_states) {
      ForRow(static_cast<const S*>(x) + at, count, 1, false, take);
    } else {
      ForRow(static_cast<const T*>(x) + at, count, 1, whole, take);
    }
    state = BlockReduce(state, SharedMemory<S>(), combine);
    if (threadIdx.x == 0) Store<T>(state, y, result, p);
  }
}

// --- Columns -----------------------------------------------------------------

// A block per segment of kColumns columns: thread t takes column t % kColumns
// of every kColumnRows-th row, so that a warp reads a row's neighbours.
template <typename Combine, typename T>
__global__ void ColumnsKernel(const void* x, void* y, Pass p) {
  using S = ComputeOf<T>;
  constexpr Combine combine{};
  S* states = SharedMemory<S>();
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t inner = p.shape.inner;
  const int64_t groups = (inner + kColumns - 1) / kColumns;
  for (int64_t task = blockIdx.x; task < p.shape.outer * p.segments * groups;
       task += gridDim.x) {
    const int64_t j = task % groups * kColumns + column;
    const int64_t result_row = task / groups;
    const int64_t first = result_row % p.segments * p.segment;
    const int64_t count = scalar::Minimum()(p.segment, p.shape.n - first);
    const int64_t at =
        (result_row / p.segments * p.shape.n + first) * inner + j;
    S state = Combine::template Start<S>();
    if (j < inner) {
      for (int64_t i = lane; i < count; i += kColumnRows) {
        state = combine(state, StateAt<T>(x, at + i * inner, p.from_states));
      }
    }
    states[threadIdx.x] = state;
    Barrier();  // a column's rows are in several warps
    if (lane == 0) {
      for (int k = 1; k < kColumnRows; ++k) {
        state = combine(state, states[k * kColumns + column]);
      }
      if (j < inner) Store<T>(state, y, result_row * inner + j, p);
    }
    Barrier();  // before the next task writes where the first warp reads
  }
}

// --- Launching ---------------------------------------------------------------

template <typename Combine, typename T>
Status LaunchPass(const void* x, void* y, const Pass& p, cudaStream_t stream) {
  using S = ComputeOf<T>;
  const int64_t results = p.shape.outer * p.segments;
  if (p.shape.inner == 1) {
    const bool whole = p.segment % kPack<T> == 0 &&
                       RowsAreWhole<T>(x, p.shape.n) && !p.from_states;
    return Launch(Combine::kName,
                  {std::min(results, kMostRowBlocks),
                   RowThreads(std::min(p.shape.n, p.segment)),
                   kBlockReduceShared * sizeof(S)},
                  stream, RowsKernel<Combine, T>, x, y, p, whole);
  }
  const int64_t groups = (p.shape.inner + kColumns - 1) / kColumns;
  return Launch(Combine::kName,
                {std::min(results * groups, kMostRowBlocks),
                 kColumns * kColumnRows, kColumns * kColumnRows * sizeof(S)},
                stream, ColumnsKernel<Combine, T>, x, y, p);
}

// Passes until one segment is left, between the two halves of the workspace.
template <typename Combine, typename T>
Status Reduce(bool mean, const void* x, void* y, ReduceShape shape,
              void* workspace, cudaStream_t stream) {
  using S = ComputeOf<T>;
  const double divisor = mean ? static_cast<double>(shape.n) : 1;
  S* states = static_cast<S*>(workspace);
  bool from_states = false;
  for (;;) {
    const int64_t segments = SegmentsOf(shape);
    const bool last = segments == 1;
    const Pass pass = {shape, SegmentOf(shape), segments, from_states,
                       !last, divisor};
    void* to = last ? y : states;
    SLUICE_RETURN_IF_ERROR((LaunchPass<Combine, T>(x, to, pass, stream)));
    if (last) return {};
    x = states;
    states += shape.outer * segments * shape.inner;
    shape.n = segments;
    from_states = true;
  }
}

template <typename Combine, typename T, bool kMean = false>
Status LaunchReduce(const void* x, void* y, const ReduceShape& shape,
                    void* workspace, cudaStream_t stream) {
  return Reduce<Combine, T>(kMean, x, y, shape, workspace, stream);
}

template <typename T>
ReduceLauncher LauncherOf(std::string_view op) {
  if (op == "Sum") return LaunchReduce<SumOf, T>;
  if (op == "Mean") return LaunchReduce<SumOf, T, true>;
  if (op == "Prod") return LaunchReduce<ProductOf, T>;
  if (op == "Max") return LaunchReduce<ExtremeOf<true>, T>;
  if (op == "Min") return LaunchReduce<ExtremeOf<false>, T>;
  return nullptr;
}

}  // namespace

size_t ReduceWorkspace(const ReduceShape& shape, DType dtype) {
  size_t states = 0;
  for (ReduceShape s = shape; SegmentsOf(s) > 1; s.n = SegmentsOf(s)) {
    states += s.outer * SegmentsOf(s) * s.inner;
  }
  return states * SizeOf(ComputeDType(dtype));
}

ReduceLauncher FindReduce(std::string_view op, DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype, [&]<typename T>(TypeTag<T>) {
    return LauncherOf<DeviceTypeOf<T>>(op);
  });
}

}  // namespace sluice::cuda
