// Which element of its window a maximum pool's result is, as a byte: row by row
// of the window, padding counted. Includes nothing but integers, since files of
// every instruction set and CUDA include it.
#ifndef SLUICE_ENGINE_SEMANTICS_POOL_ARGMAX_H_
#define SLUICE_ENGINE_SEMANTICS_POOL_ARGMAX_H_

#include <cstdint>

namespace sluice {

// A window may have as many elements. The byte itself: none is the largest,
// since one is NaN, and none gets a gradient.
inline constexpr uint8_t kNoPoolElement = 255;

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_POOL_ARGMAX_H_
