// Sums of channels: those of segments of rows, then of these.
#include "kernels/cuda/ops/norm/channel_sums.h"

#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

template <typename T, bool kWhole>
__global__ void __launch_bounds__(kColumnThreads, kWhole ? kColumnBlocks<T> : 1)
    ChannelSumsKernel(BatchNormShape shape, Segments segments, const T* x,
                      ComputeOf<T>* results) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  FirstPass<T, ColumnSums<C>, kWhole ? 4 : 1>(
      shape, segments, results, [](const ColumnTask&) { return 0; },
      [&](int64_t at, int64_t, const ColumnTask& t) {
        return LoadPackOf<kWhole>(x + at, t.count);
      },
      [](ColumnSums<C>(&own)[kN], const Pack<T, kN>& pack, int64_t,
         const ColumnTask&, int) {
        for (int k = 0; k < kN; ++k) {
          const C value = static_cast<C>(pack.at[k]);
          own[k].sum += value;
          own[k].dot += value * value;
        }
      });
}

template <typename C>
__global__ void __launch_bounds__(kColumnThreads)
    ChannelTotalsKernel(BatchNormShape shape, Segments segments,
                        const C* results, C* sum, C* squares) {
  SecondPass<ColumnSums<C>>(shape, segments, results,
                            [&](const ColumnSums<C>& s, int64_t channel) {
                              Store(s.sum, sum + channel);
                              Store(s.dot, squares + channel);
                            });
}

template <typename T>
Status ChannelSums(int64_t rows, int64_t channels, const void* x, void* sum,
                   void* squares, void* workspace, cudaStream_t stream) {
  using C = ComputeOf<T>;
  const BatchNormShape shape = {rows, channels};
  const Segments segments = SegmentsOf(shape);
  const Workspace<C> work(shape, workspace);
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto whole) {
        return Launch("sums of channels",
                      FirstPassGrid<T, ColumnSums<C>>(shape), stream,
                      ChannelSumsKernel<T, whole.value>, shape, segments,
                      static_cast<const T*>(x), work.segments);
      },
      ChannelsAreWhole<T, kPack<T>>(shape, x)));
  return Launch("totals of channels", SecondPassGrid<ColumnSums<C>>(shape),
                stream, ChannelTotalsKernel<C>, shape, segments, work.segments,
                static_cast<C*>(sum), static_cast<C*>(squares));
}

}  // namespace

size_t ChannelSumsWorkspace(int64_t rows, int64_t channels, DType dtype) {
  return BatchNormWorkspace({rows, channels}, dtype);
}

ChannelSumsLauncher FindChannelSums(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> ChannelSumsLauncher {
                            return ChannelSums<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
