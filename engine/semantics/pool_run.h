// How mean pools add what is in a window, and gradients of pools what windows
// give to an element: in runs, whose sums are then added, since in one sum of
// very many the last digits of each would be lost. The kernels of all devices
// share it.
#ifndef SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_
#define SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_

#include <algorithm>
#include <cstdint>

#include "engine/ceil_div.h"
#include "engine/semantics/window.h"

namespace sluice {

inline constexpr int kPoolRun = 256;  // elements, or windows

// Whether a window of so many elements may be more than one run.
constexpr bool HasPoolRuns(int64_t h, int64_t w) {
  return h * w > kPoolRun;
}

// Whether more windows than one run may be over an element of the images, which
// their gradients are added to.
inline bool HasGradRuns(const WindowDim& h, const WindowDim& w) {
  const auto over = [](const WindowDim& d) {
    return std::min(d.output, CeilDiv(d.window, d.stride));
  };
  return HasPoolRuns(over(h), over(w));
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_POOL_RUN_H_
