// Arrays of repeated elements or of counted numbers: BroadcastTo, Fill,
// ZerosLike, OnesLike and Range.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_FILL_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_FILL_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"

namespace sluice::cuda {

// y = x broadcast, of any dtype.
using BroadcastLauncher = Status (*)(const void* x, void* y,
                                     const Broadcast& shape,
                                     cudaStream_t stream);
BroadcastLauncher FindBroadcastTo(DType dtype);

// The bytes of a scalar, repeated.
uint64_t PatternOf(const Tensor& element);
// y's bytes = the 8 of `pattern`, repeated.
Status FillBytes(void* y, uint64_t pattern, size_t bytes, cudaStream_t stream);

// y[i] = start[0] + i delta[0] for n elements: float32, float64, int32, int64.
using RangeLauncher = Status (*)(const void* start, const void* delta, void* y,
                                 int64_t n, cudaStream_t stream);
RangeLauncher FindRange(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_FILL_H_
