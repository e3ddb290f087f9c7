// How mean pools add what is in a window: in runs of its elements, whose sums
// are then added, since in one sum over a large window the last digits of each
// element would be lost. The kernels of all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_
#define SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_

#include <cstdint>

namespace sluice {

inline constexpr int kPoolRun = 256;  // elements

// Whether a window of so many elements may be more than one run.
constexpr bool HasPoolRuns(int64_t h, int64_t w) {
  return h * w > kPoolRun;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_
