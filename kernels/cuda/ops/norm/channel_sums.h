// The sums of each channel of x, seen as [rows, channels], and of its squares:
// what a convolution's kernel gives in passing where a library has one that
// can.
#ifndef SLUICE_KERNELS_CUDA_OPS_NORM_CHANNEL_SUMS_H_
#define SLUICE_KERNELS_CUDA_OPS_NORM_CHANNEL_SUMS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

// Device memory, beside the operands.
size_t ChannelSumsWorkspace(int64_t rows, int64_t channels, DType dtype);

// Device pointers: x of the dtype, sums [channels] of the type it is computed
// in, float for half types.
using ChannelSumsLauncher = Status (*)(int64_t rows, int64_t channels,
                                       const void* x, void* sum, void* squares,
                                       void* workspace, cudaStream_t stream);
ChannelSumsLauncher FindChannelSums(DType dtype);  // of a floating dtype

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_NORM_CHANNEL_SUMS_H_
