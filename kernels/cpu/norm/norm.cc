// Layer normalisation: a row at a time. Sums over the rows (the gradients of
// scale and offset) are taken per block of rows and combined in order.
#include <algorithm>
#include <cmath>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm/row_blocks.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {

void RegisterBatchNormKernels(KernelTable& table);  // batch_norm.cc

namespace {

struct LayerNormGeometry : RowBlocks {
  double epsilon = 0;
};

LayerNormGeometry GeometryOf(const KernelSpec& spec) {
  LayerNormGeometry g{RowBlocksOf(spec.inputs[0].shape, 1, 1)};
  if (spec.attrs.Has("epsilon")) g.epsilon = spec.attrs.Float("epsilon");
  return g;
}

template <typename T>
void LayerNorm(const LayerNormGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const C* scale = k.input<C>(1);
  const C* offset = k.input<C>(2);
  const C n = static_cast<C>(g.width);
  const int64_t grain = g.grain() * g.block_rows;
  ParallelFor(g.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = k.input<T>(0) + r * g.width;
      T* y = k.output<T>(0) + r * g.width;
      // Corrected by the distances from it, of which a mean that is large
      // beside them has lost some (simd::CorrectMoments).
      C mean = SumInRuns<C>(g.width,
                            [&](int64_t i) { return static_cast<C>(x[i]); }) /
               n;
      mean +=
          SumInRuns<C>(g.width,
                       [&](int64_t i) { return static_cast<C>(x[i]) - mean; }) /
          n;
      const C variance = SumInRuns<C>(g.width,
                                      [&](int64_t i) {
                                        const C d = static_cast<C>(x[i]) - mean;
                                        return d * d;
                                      }) /
                         n;
      const C inv_std = C(1) / std::sqrt(variance + static_cast<C>(g.epsilon));
      for (int64_t i = 0; i < g.width; ++i) {
        y[i] =
            T((static_cast<C>(x[i]) - mean) * inv_std * scale[i] + offset[i]);
      }
      k.output<C>(1)[r] = mean;
      k.output<C>(2)[r] = inv_std;
    }
  });
}

// dx = inv_std * (g - mean(g) - normal * mean(g * normal)), g = dy * scale.
template <typename T>
void GradRow(int64_t width, const T* x, const ComputeType<T>* scale,
             ComputeType<T> mean, ComputeType<T> inv_std, const T* dy, T* dx,
             ComputeType<T>* dscale, ComputeType<T>* doffset) {
  using C = ComputeType<T>;
  auto normal = [&](int64_t i) {
    return (static_cast<C>(x[i]) - mean) * inv_std;
  };
  auto scaled = [&](int64_t i) { return static_cast<C>(dy[i]) * scale[i]; };
  const C n = static_cast<C>(width);
  const C mean_g = SumInRuns<C>(width, scaled) / n;
  const C mean_dot =
      SumInRuns<C>(width, [&](int64_t i) { return scaled(i) * normal(i); }) / n;
  for (int64_t i = 0; i < width; ++i) {
    const C along = normal(i);
    dscale[i] += static_cast<C>(dy[i]) * along;
    doffset[i] += static_cast<C>(dy[i]);
    dx[i] = T(inv_std * (scaled(i) - mean_g - along * mean_dot));
  }
}

template <typename T>
void LayerNormGrad(const LayerNormGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  C* sums = static_cast<C*>(k.workspace());
  ParallelFor(g.blocks(), g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      C* dscale = sums + 2 * b * g.width;
      std::fill(dscale, dscale + 2 * g.width, C(0));
      const int64_t last = std::min((b + 1) * g.block_rows, g.rows);
      for (int64_t r = b * g.block_rows; r < last; ++r) {
        GradRow(g.width, k.input<T>(0) + r * g.width, k.input<C>(1),
                k.input<C>(2)[r], k.input<C>(3)[r], k.input<T>(4) + r * g.width,
                k.output<T>(0) + r * g.width, dscale, dscale + g.width);
      }
    }
  });
  AddBlocks(g, sums, 0, k.output<C>(1));
  AddBlocks(g, sums, 1, k.output<C>(2));
}

Result<KernelPtr> MakeLayerNorm(const KernelSpec& spec) {
  const LayerNormGeometry g = GeometryOf(spec);
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    return Result<KernelPtr>(
        KernelOf([g](const KernelContext& c) { LayerNorm<T>(g, c); }));
  });
}

Result<KernelPtr> MakeLayerNormGrad(const KernelSpec& spec) {
  const LayerNormGeometry g = GeometryOf(spec);
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    return Result<KernelPtr>(
        KernelOf([g](const KernelContext& c) { LayerNormGrad<T>(g, c); },
                 2 * g.blocks() * g.width * sizeof(ComputeType<T>)));
  });
}

}  // namespace

void RegisterNormKernels(KernelTable& table) {
  table.Register(
      {.op = "LayerNorm", .dtypes = kFloating, .make = MakeLayerNorm});
  table.Register(
      {.op = "LayerNormGrad", .dtypes = kFloating, .make = MakeLayerNormGrad});
  RegisterBatchNormKernels(table);
}

}  // namespace sluice::cpu
