// The lists of axes that ops have as attributes.
#ifndef SLUICE_GRAPH_OPS_AXES_H_
#define SLUICE_GRAPH_OPS_AXES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/status.h"

namespace sluice {

// Each in [0, rank), in their order; an error if one is out of range or the
// list names one twice.
Result<std::vector<int64_t>> NormalizeAxes(std::span<const int64_t> axes,
                                           int rank);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_AXES_H_
