// How the workers of a job combine one tensor of each.
#ifndef SLUICE_ENGINE_REDUCTION_H_
#define SLUICE_ENGINE_REDUCTION_H_

#include <cstdint>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

enum class Reduction : uint8_t { kSum, kMean };

}  // namespace sluice

#endif  // SLUICE_ENGINE_REDUCTION_H_
