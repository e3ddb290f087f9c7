// The device's side of bad_index.h.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_DEVICE_H_
#define SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_DEVICE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// The word is only touched when something is wrong; the least position wins,
// whatever the order of threads. Positions count from 0.
__device__ inline void ReportBadIndex(BadIndex* bad, int64_t position,
                                      int64_t index) {
  constexpr int64_t kLast = 0xfffffffe;  // one less: not kNoBadIndex
  const int64_t at = position < kLast ? position : kLast;
  const int64_t low = index > INT32_MIN ? index : INT32_MIN;
  const int64_t near = low < INT32_MAX ? low : INT32_MAX;
  // Atomic among the device's threads; the host reads it when they are done.
  atomicMin(bad, static_cast<BadIndex>(at) << 32 |
                     static_cast<BadIndex>(static_cast<uint32_t>(near)));
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_DEVICE_H_
