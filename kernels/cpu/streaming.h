// When results are stored past the caches.
#ifndef SLUICE_KERNELS_CPU_STREAMING_H_
#define SLUICE_KERNELS_CPU_STREAMING_H_

#include <cstddef>

namespace sluice::cpu {

// An array of this size pushes its own beginning out of the last-level cache
// that cores of a server share, so its reader comes too late anyway.
inline constexpr size_t kStreamedBytes = size_t{16} << 20;

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_STREAMING_H_
