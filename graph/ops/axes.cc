#include "graph/ops/axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/shape.h"

namespace sluice {

Result<std::vector<int64_t>> NormalizeAxes(std::span<const int64_t> axes,
                                           int rank) {
  std::vector<int64_t> normal;
  for (int64_t given : axes) {
    SLUICE_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, rank));
    if (std::find(normal.begin(), normal.end(), axis) != normal.end()) {
      return InvalidArgument(fmt::format("axis {} is given twice", axis));
    }
    normal.push_back(axis);
  }
  return normal;
}

}  // namespace sluice
