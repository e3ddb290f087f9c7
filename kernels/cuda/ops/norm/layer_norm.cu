// Layer normalisation: a block per row, which is read from cache after the
// first time. Sums over the rows, the gradients of scale and offset, go down
// the columns in two passes, as those of batch normalisation.
#include "kernels/cuda/ops/norm/layer_norm.h"

#include <algorithm>

#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/row.h"
#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

template <typename C>
__device__ C BlockSum(C value, C* shared) {
  return BlockReduce(value, shared, [](C a, C b) { return a + b; });
}

// A grid of a block for each row.
template <typename C>
Grid RowGrid(const LayerNormShape& shape) {
  return {std::min(shape.rows, kMostRowBlocks), RowThreads(shape.width),
          kBlockReduceShared * sizeof(C)};
}

template <typename T, bool kRuns>
__global__ void LayerNormKernel(LayerNormShape s, const T* x,
                                const ComputeOf<T>* scale,
                                const ComputeOf<T>* offset, T* y,
                                ComputeOf<T>* means, ComputeOf<T>* inv_stds,
                                bool whole) {
  using C = ComputeOf<T>;
  C* shared = SharedMemory<C>();
  const C n = static_cast<C>(s.width);
  for (int64_t r = blockIdx.x; r < s.rows; r += gridDim.x) {
    const T* row = x + r * s.width;
    RowSum<C, kRuns> own;
    ForRow(row, s.width, 1, whole, [&](int64_t, C v) { own.Add(v); });
    C mean = BlockSum(own.Result(), shared) / n;
    // Of a mean that is large beside the distances from it they have kept what
    // its sum has lost.
    RowSum<C, kRuns> distances, squares;
    ForRow(row, s.width, 1, whole, [&](int64_t, C v) {
      const C distance = v - mean;
      distances.Add(distance);
      squares.Add(distance * distance);
    });
    const C off = BlockSum(distances.Result(), shared) / n;
    mean += off;
    // Never below 0 by rounding; what is no number stays so.
    C variance = BlockSum(squares.Result(), shared) / n - off * off;
    if (variance < C(0)) variance = C(0);
    const C inv_std = scalar::Rsqrt()(variance + static_cast<C>(s.epsilon));
    if (threadIdx.x == 0) {
      means[r] = mean;
      inv_stds[r] = inv_std;
    }
    MapRow(row, y + r * s.width, s.width, 1, whole, [&](int64_t i, C v) {
      return (v - mean) * inv_std * scale[i] + offset[i];
    });
  }
}

template <typename T>
struct GradOperands {
  using C = ComputeOf<T>;
  const T* x;
  const C* scale;
  const C* mean;
  const C* inv_std;
  const T* dy;
};

// fn(i, x[i], dy[i]) for this thread's share of a row.
template <typename T, typename Fn>
__device__ void ForPair(const T* x, const T* dy, int64_t n, bool whole, Fn fn) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = threadIdx.x * kN; i < n; i += blockDim.x * kN) {
    const auto a = LoadPack<T>(x + i, n - i, whole);
    const auto b = LoadPack<T>(dy + i, n - i, whole);
    for (int k = 0; k < kN && i + k < n; ++k) {
      fn(i + k, static_cast<C>(a.at[k]), static_cast<C>(b.at[k]));
    }
  }
}

// dx = inv_std * (g - mean(g) - normal * mean(g * normal)), g = dy * scale.
template <typename T, bool kRuns>
__global__ void LayerNormGradKernel(LayerNormShape s, GradOperands<T> o, T* dx,
                                    bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  C* shared = SharedMemory<C>();
  const C n = static_cast<C>(s.width);
  for (int64_t r = blockIdx.x; r < s.rows; r += gridDim.x) {
    const int64_t at = r * s.width;
    const C mean = o.mean[r], inv_std = o.inv_std[r];
    RowSum<C, kRuns> sum, dot;
    ForPair(o.x + at, o.dy + at, s.width, whole, [&](int64_t i, C v, C d) {
      const C g = d * o.scale[i];
      sum.Add(g);
      dot.Add(g * ((v - mean) * inv_std));
    });
    const C mean_g = BlockSum(sum.Result(), shared) / n;
    const C mean_dot = BlockSum(dot.Result(), shared) / n;
    for (int64_t i = threadIdx.x * kN; i < s.width; i += blockDim.x * kN) {
      const int64_t count = s.width - i;
      const auto x = LoadPack<T>(o.x + at + i, count, whole);
      const auto dy = LoadPack<T>(o.dy + at + i, count, whole);
      Pack<T, kN> out = {};
      for (int k = 0; k < kN && k < count; ++k) {
        const C g = static_cast<C>(dy.at[k]) * o.scale[i + k];
        const C normal = (static_cast<C>(x.at[k]) - mean) * inv_std;
        out.at[k] = T(inv_std * (g - mean_g - normal * mean_dot));
      }
      StorePack(out, dx + at + i, count, whole);
    }
  }
}

// --- Sums over the rows ------------------------------------------------------

// Of dy, and of dy times the normalised x.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kColumnThreads)
    SegmentSumsKernel(BatchNormShape shape, Segments segments,
                      GradOperands<T> o, ComputeOf<T>* results) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  struct Row {
    Pack<T, kN> x, dy;
    C mean, inv_std;
  };
  FirstPass<T, ColumnSums<C>, 1>(
      shape, segments, results, [](const ColumnTask&) { return 0; },
      [&](int64_t at, int64_t row, const ColumnTask& t) {
        return Row{LoadPackOf<kWhole>(o.x + at, t.count),
                   LoadPackOf<kWhole>(o.dy + at, t.count), Load(o.mean + row),
                   Load(o.inv_std + row)};
      },
      [](ColumnSums<C>(&own)[kN], const Row& row, int64_t, const ColumnTask& t,
         int) {
        for (int k = 0; k < kN && (kWhole || k < t.count); ++k) {
          const C d = static_cast<C>(row.dy.at[k]);
          own[k].sum += d;
          own[k].dot +=
              d * ((static_cast<C>(row.x.at[k]) - row.mean) * row.inv_std);
        }
      });
}

template <typename C>
__global__ void __launch_bounds__(kColumnThreads)
    ColumnSumsKernel(BatchNormShape shape, Segments segments, const C* results,
                     C* dscale, C* doffset) {
  SecondPass<ColumnSums<C>>(shape, segments, results,
                            [&](const ColumnSums<C>& s, int64_t column) {
                              dscale[column] = s.dot;
                              doffset[column] = s.sum;
                            });
}

// --- Launchers ---------------------------------------------------------------

template <typename T>
Status LayerNorm(const LayerNormShape& shape, const LayerNormOperands& o,
                 cudaStream_t stream) {
  using C = ComputeOf<T>;
  const bool whole =
      RowsAreWhole<T>(o.x, shape.width) && RowsAreWhole<T>(o.y, shape.width);
  return DispatchBools(
      [&](auto runs) {
        return Launch(
            "LayerNorm", RowGrid<C>(shape), stream,
            LayerNormKernel<T, runs.value>, shape, static_cast<const T*>(o.x),
            static_cast<const C*>(o.scale), static_cast<const C*>(o.offset),
            static_cast<T*>(o.y), static_cast<C*>(o.mean),
            static_cast<C*>(o.inv_std), whole);
      },
      HasRowRuns(shape.width));
}

template <typename T>
Status LayerNormGrad(const LayerNormShape& shape,
                     const LayerNormGradOperands& o, cudaStream_t stream) {
  using C = ComputeOf<T>;
  const GradOperands<T> typed = {
      static_cast<const T*>(o.x), static_cast<const C*>(o.scale),
      static_cast<const C*>(o.mean), static_cast<const C*>(o.inv_std),
      static_cast<const T*>(o.dy)};
  const bool whole =
      RowsAreWhole<T>(o.x, shape.width) && RowsAreWhole<T>(o.dy, shape.width);
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto runs) {
        return Launch("LayerNormGrad", RowGrid<C>(shape), stream,
                      LayerNormGradKernel<T, runs.value>, shape, typed,
                      static_cast<T*>(o.dx),
                      whole && RowsAreWhole<T>(o.dx, shape.width));
      },
      HasRowRuns(shape.width)));
  const BatchNormShape columns = {shape.rows, shape.width};
  const Segments segments = SegmentsOf(columns);
  C* results = static_cast<C*>(o.workspace);
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto known) {
        return Launch("LayerNormGrad sums",
                      FirstPassGrid<T, ColumnSums<C>>(columns), stream,
                      SegmentSumsKernel<T, known.value>, columns, segments,
                      typed, results);
      },
      whole));
  return Launch("LayerNormGrad columns", SecondPassGrid<ColumnSums<C>>(columns),
                stream, ColumnSumsKernel<C>, columns, segments, results,
                static_cast<C*>(o.dscale), static_cast<C*>(o.doffset));
}

}  // namespace

LayerNormLauncher FindLayerNorm(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> LayerNormLauncher {
                            return LayerNorm<DeviceTypeOf<E>>;
                          });
}

LayerNormGradLauncher FindLayerNormGrad(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> LayerNormGradLauncher {
                            return LayerNormGrad<DeviceTypeOf<E>>;
                          });
}

size_t LayerNormGradWorkspace(const LayerNormShape& shape, DType dtype) {
  return 2 *
         static_cast<size_t>(SegmentsOf({shape.rows, shape.width}).count *
                             shape.width) *
         SizeOf(ComputeDType(dtype));
}

}  // namespace sluice::cuda
