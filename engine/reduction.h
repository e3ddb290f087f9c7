// What the workers of a job make of one tensor of each.
#ifndef SLUICE_ENGINE_REDUCTION_H_
#define SLUICE_ENGINE_REDUCTION_H_

#include <cstdint>

namespace sluice {

enum class Reduction : uint8_t { kSum, kMean };

}  // namespace sluice

#endif  // SLUICE_ENGINE_REDUCTION_H_
