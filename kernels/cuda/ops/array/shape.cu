// Facts about shapes: the numbers are a kernel's argument.
#include "kernels/cuda/ops/array/shape.h"

#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

struct Numbers {
  int64_t at[Shape::kMaxRank];
};

__global__ void WriteKernel(Numbers numbers, int n, int64_t* y) {
  if (GlobalThread() != 0) return;
  for (int i = 0; i < n; ++i) y[i] = numbers.at[i];
}

}  // namespace

Status WriteShape(const Shape& dims, int64_t* y, cudaStream_t stream) {
  Numbers numbers = {};
  for (int i = 0; i < dims.rank(); ++i) numbers.at[i] = dims[i];
  return Launch("ShapeOf", {dims.rank() > 0 ? 1 : 0, 1}, stream, WriteKernel,
                numbers, dims.rank(), y);
}

}  // namespace sluice::cuda
