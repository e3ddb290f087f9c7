// Rows that lie together are a block's, lines across rows a thread's, so that
// the threads of a warp read neighbours.
#include "kernels/cuda/ops/reduce/reduce_scan.h"

#include <algorithm>
#include <type_traits>

#include "engine/semantics/compensated_sum.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/ranked.h"
#include "kernels/cuda/device/row.h"

namespace sluice::cuda {
namespace {

// fn(first element) for the lines of this thread.
template <typename Fn>
__device__ void ForLines(const AxisForm& shape, Fn fn) {
  SLUICE_ROLLED
  for (int64_t line = GlobalThread(); line < shape.outer * shape.inner;
       line += GlobalThreads()) {
    const int64_t outer = Quotient(line, shape.inner);
    fn(line, outer * shape.n * shape.inner + line - outer * shape.inner);
  }
}

// --- CumSum ------------------------------------------------------------------

// What sums of T are kept in, as on the CPU, and what those of very many.
template <typename T>
using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
template <typename T>
using Running =
    std::conditional_t<std::is_integral_v<T>, Wide<T>, SumOfMany<T>>;

template <typename T>
__device__ Wide<T> Widened(T x) {
  return static_cast<Wide<T>>(static_cast<ComputeOf<T>>(x));
}
template <typename T>
__device__ T Narrowed(Wide<T> sum) {
  return T(static_cast<ComputeOf<T>>(sum));
}

constexpr int kItems = 4;  // consecutive elements of a thread

template <typename T>
__global__ void CumSumRowsKernel(const T* x, T* y, CumSumForm form) {
  using W = Wide<T>;
  W* totals = SharedMemory<W>();  // of the warps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int64_t n = form.shape.n;
  for (int64_t row = blockIdx.x; row < form.shape.outer; row += gridDim.x) {
    Running<T> carry = {};
    for (int64_t chunk = 0; chunk < n; chunk += blockDim.x * kItems) {
      const int64_t first = chunk + threadIdx.x * kItems;
      const auto place = [&](int64_t i) {
        return row * n + (form.reverse ? n - 1 - i : i);
      };
      W own[kItems];
      W sum = 0;
      for (int k = 0; k < kItems; ++k) {
        own[k] = first + k < n ? Widened(x[place(first + k)]) : W(0);
        sum += own[k];
      }
      for (int step = 1; step < kWarp; step *= 2) {
        const W other = ShuffleFrom(sum, lane < step ? lane : lane - step);
        if (lane >= step) sum += other;
      }
      if (lane == kWarp - 1) totals[warp] = sum;
      const W before_lane = ShuffleFrom(sum, lane == 0 ? 0 : lane - 1);
      Barrier();  // all warps' totals are there
      W before = 0;
      for (int w = 0; w < warps; ++w) {
        if (w == warp) before = static_cast<W>(carry);
        carry += Running<T>(totals[w]);
      }
      if (lane > 0) before += before_lane;
      for (int k = 0; k < kItems; ++k) {
        const W after = before + own[k];
        if (first + k < n) {
          y[place(first + k)] = Narrowed<T>(form.exclusive ? before : after);
        }
        before = after;
      }
      Barrier();  // all have read the totals, before anyone writes again
    }
  }
}

template <typename T>
__global__ void CumSumColumnsKernel(const T* x, T* y, CumSumForm form) {
  const int64_t n = form.shape.n, inner = form.shape.inner;
  const int64_t step = form.reverse ? -inner : inner;
  ForLines(form.shape, [&](int64_t, int64_t first) {
    int64_t at = form.reverse ? first + (n - 1) * inner : first;
    Running<T> sum = {};
    for (int64_t i = 0; i < n; ++i, at += step) {
      const Running<T> before = sum;
      sum += Running<T>(Widened(x[at]));
      y[at] = Narrowed<T>(static_cast<Wide<T>>(form.exclusive ? before : sum));
    }
  });
}

template <typename T>
Status LaunchCumSum(const void* x, void* y, const CumSumForm& form,
                    cudaStream_t stream) {
  const AxisForm& shape = form.shape;
  if (shape.n == 0) return {};  // however many rows of nothing there are
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  if (shape.inner != 1) {
    return Launch("CumSum", GridFor(shape.outer * shape.inner), stream,
                  CumSumColumnsKernel<T>, from, to, form);
  }
  return Launch("CumSum",
                {std::min(shape.outer, kMostRowBlocks), RowThreads(shape.n),
                 kWarp * sizeof(Wide<T>)},
                stream, CumSumRowsKernel<T>, from, to, form);
}

// --- ProdGrad ----------------------------------------------------------------

// Products of the elements before, then times those after; no division, since
// elements may be 0.
template <typename T>
__global__ void ProdGradKernel(const T* dy, const T* x, T* y, double* before,
                               AxisForm shape) {
  using C = ComputeOf<T>;
  ForLines(shape, [&](int64_t line, int64_t first) {
    double product = 1;
    for (int64_t i = 0; i < shape.n; ++i) {
      const int64_t at = first + i * shape.inner;
      before[at] = product;
      product *= static_cast<double>(static_cast<C>(x[at]));
    }
    product = static_cast<double>(static_cast<C>(dy[line]));
    for (int64_t i = shape.n; i-- > 0;) {
      const int64_t at = first + i * shape.inner;
      y[at] = T(static_cast<C>(before[at] * product));
      product *= static_cast<double>(static_cast<C>(x[at]));
    }
  });
}

template <typename T>
Status LaunchProdGrad(const void* dy, const void* x, void* y, double* before,
                      const AxisForm& shape, cudaStream_t stream) {
  return Launch("ProdGrad", GridFor(shape.outer * shape.inner), stream,
                ProdGradKernel<T>, static_cast<const T*>(dy),
                static_cast<const T*>(x), static_cast<T*>(y), before, shape);
}

// --- ArgMax, ArgMin ----------------------------------------------------------

template <typename T>
__global__ void ArgRowsKernel(Foremost foremost, const T* x, int64_t* y,
                              AxisForm shape) {
  using State = Ranked<RankOf<T>>;
  for (int64_t row = blockIdx.x; row < shape.outer; row += gridDim.x) {
    State best;
    for (int64_t i = threadIdx.x; i < shape.n; i += blockDim.x) {
      best = foremost(best, RankedAt(x + row * shape.n, 1, i));
    }
    best = BlockReduce(best, SharedMemory<State>(), foremost);
    if (threadIdx.x == 0) y[row] = best.at;
  }
}

template <typename T>
__global__ void ArgColumnsKernel(Foremost foremost, const T* x, int64_t* y,
                                 AxisForm shape) {
  ForLines(shape, [&](int64_t line, int64_t first) {
    Ranked<RankOf<T>> best;
    for (int64_t i = 0; i < shape.n; ++i) {
      best = foremost(best, RankedAt(x + first, shape.inner, i));
    }
    y[line] = best.at;
  });
}

template <typename T>
Status LaunchArg(bool least, const void* x, int64_t* y, const AxisForm& shape,
                 cudaStream_t stream) {
  const char* name = least ? "ArgMin" : "ArgMax";
  const T* from = static_cast<const T*>(x);
  if (shape.inner != 1) {
    return Launch(name, GridFor(shape.outer * shape.inner), stream,
                  ArgColumnsKernel<T>, Foremost{least}, from, y, shape);
  }
  return Launch(name,
                {std::min(shape.outer, kMostRowBlocks), RowThreads(shape.n),
                 kBlockReduceShared * sizeof(Ranked<RankOf<T>>)},
                stream, ArgRowsKernel<T>, Foremost{least}, from, y, shape);
}

}  // namespace

CumSumLauncher FindCumSum(DType dtype) {
  return DispatchNumeric(dtype, []<typename E>(TypeTag<E>) -> CumSumLauncher {
    return LaunchCumSum<DeviceTypeOf<E>>;
  });
}

ProdGradLauncher FindProdGrad(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> ProdGradLauncher {
                            return LaunchProdGrad<DeviceTypeOf<E>>;
                          });
}

ArgLauncher FindArg(DType dtype) {
  return DispatchNumeric(dtype, []<typename E>(TypeTag<E>) -> ArgLauncher {
    return LaunchArg<DeviceTypeOf<E>>;
  });
}

}  // namespace sluice::cuda
