// Softmax and its logarithm: a block per line. A line is read three times, from
// cache after the first unless it is long.
#include "kernels/cuda/ops/reduce/softmax.h"

#include <algorithm>

#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/log_sum_exp.h"

namespace sluice::cuda {
namespace {

template <typename T, bool kRuns>
__global__ void SoftmaxKernel(const T* x, T* y, AxisForm shape, bool log,
                              bool whole) {
  using C = ComputeOf<T>;
  C* shared = SharedMemory<C>();
  const int64_t n = shape.n, inner = shape.inner;
  for (int64_t line = blockIdx.x; line < shape.outer * inner;
       line += gridDim.x) {
    const int64_t at = line / inner * n * inner + line % inner;
    const ExpSum<C> e = SumExpOfRow<kRuns>(x + at, n, inner, whole, shared);
    const C log_sum = scalar::Log()(e.sum);
    MapRow(x + at, y + at, n, inner, whole, [&](int64_t, C v) {
      return log ? (v - e.max) - log_sum : scalar::Exp()(v - e.max) / e.sum;
    });
  }
}

template <typename T>
Status LaunchSoftmax(const char* name, bool log, const void* x, void* y,
                     const AxisForm& shape, cudaStream_t stream) {
  if (shape.n == 0) return {};  // of operands that may be null
  const bool whole = shape.inner == 1 && RowsAreWhole<T>(x, shape.n) &&
                     RowsAreWhole<T>(y, shape.n);
  const Grid grid = {std::min(shape.outer * shape.inner, kMostRowBlocks),
                     RowThreads(shape.n),
                     kBlockReduceShared * sizeof(ComputeOf<T>)};
  return DispatchBools(
      [&](auto runs) {
        return Launch(name, grid, stream, SoftmaxKernel<T, runs.value>,
                      static_cast<const T*>(x), static_cast<T*>(y), shape, log,
                      whole);
      },
      HasRowRuns(shape.n));
}

template <typename T>
Status Softmax(const void* x, void* y, const AxisForm& shape,
               cudaStream_t stream) {
  return LaunchSoftmax<T>("Softmax", false, x, y, shape, stream);
}
template <typename T>
Status LogSoftmax(const void* x, void* y, const AxisForm& shape,
                  cudaStream_t stream) {
  return LaunchSoftmax<T>("LogSoftmax", true, x, y, shape, stream);
}

}  // namespace

SoftmaxLauncher FindSoftmax(std::string_view op, DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype,
                          [&]<typename E>(TypeTag<E>) -> SoftmaxLauncher {
                            using T = DeviceTypeOf<E>;
                            if (op == "Softmax") return Softmax<T>;
                            return op == "LogSoftmax" ? LogSoftmax<T> : nullptr;
                          });
}

}  // namespace sluice::cuda
