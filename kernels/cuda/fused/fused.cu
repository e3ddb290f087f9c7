// Launches fused kernels, and adds the segments of their sums.
#include "kernels/cuda/fused/fused.h"

#include <algorithm>

#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

// Up to so many segments are added by one thread, more by a warp.
constexpr int64_t kFewSegments = 16;

// `lanes` threads per result: one, or a warp.
template <typename T>
__global__ void AddSegmentsKernel(const ComputeOf<T>* states, T* sums,
                                  int64_t results, int64_t result_stride,
                                  int64_t segments, int64_t segment_stride,
                                  double scale, int lanes) {
  using C = ComputeOf<T>;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int64_t r = GlobalThread() / lanes; r < results;
       r += GlobalThreads() / lanes) {
    double sum = 0;  // in float the last digits of very many would be lost
    for (int64_t s = lane; s < segments; s += lanes) {
      sum +=
          static_cast<double>(states[r * result_stride + s * segment_stride]);
    }
    if (lanes == kWarp) {
      sum = WarpReduce(sum, [](double a, double b) { return a + b; });
    }
    if (lane == 0) sums[r] = T(static_cast<C>(scale) * static_cast<C>(sum));
  }
}

}  // namespace

Status LaunchFused(FusedKernel kernel, const FusedWork& work,
                   const FusedArguments& arguments, cudaStream_t stream) {
  return Launch("Fused", {work.blocks, kFusedThreads, work.shared_bytes},
                stream, kernel, arguments);
}

Status AddSegments(const FusedWork& work, const void* states, void* sums,
                   cudaStream_t stream) {
  const FusedSumShape& sum = work.arguments.sum;
  const bool leading = work.form.sum == FusedSumKind::kLeading;
  const int64_t result_stride = leading ? 1 : sum.segments;
  const int64_t segment_stride = leading ? sum.columns : 1;
  const int lanes = sum.segments <= kFewSegments ? 1 : kWarp;
  return DispatchFloating(work.form.dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    return Launch("FusedSum", GridFor(work.results * lanes), stream,
                  AddSegmentsKernel<T>,
                  static_cast<const ComputeOf<T>*>(states),
                  static_cast<T*>(sums), work.results, result_stride,
                  sum.segments, segment_stride, sum.scale, lanes);
  });
}

}  // namespace sluice::cuda
