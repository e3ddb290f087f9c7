// Convolutions with one input channel to a group, as depthwise ones are:
// channel o of the result comes from channel o / geometry.out of x alone.
#ifndef SLUICE_KERNELS_CUDA_OPS_CONV_CONV_DEPTHWISE_H_
#define SLUICE_KERNELS_CUDA_OPS_CONV_CONV_DEPTHWISE_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "engine/semantics/conv_geometry.h"
#include "kernels/cuda/ops/conv/conv.h"

namespace sluice::cuda {

// Bytes of device memory for partial sums of the filter's gradient; geometry.in
// must be 1, as below.
size_t DepthwiseWorkspace(const ConvGeometry& geometry, ConvPass pass,
                          DType dtype);

// `a` and `b` are the operands in the op's order: x or dy, then the filter or
// dy. Sums of half types are taken in float and rounded once.
using DepthwiseLauncher = Status (*)(const ConvGeometry& geometry,
                                     const void* a, const void* b, void* result,
                                     void* workspace, cudaStream_t stream);
DepthwiseLauncher FindDepthwise(ConvPass pass, DType dtype);  // floating

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_CONV_CONV_DEPTHWISE_H_
