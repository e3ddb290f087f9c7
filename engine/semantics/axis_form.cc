#include "engine/semantics/axis_form.h"

namespace sluice {

AxisForm AxisFormOf(const KernelSpec& spec, int operand) {
  const Shape& x = spec.inputs[operand].shape;
  const int64_t given = spec.attrs.Int("axis");
  const int axis = static_cast<int>(given < 0 ? given + x.rank() : given);
  return {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank())};
}

std::vector<bool> ReducedDims(const Shape& x, const Shape& y,
                              const Attributes& attrs) {
  std::vector<bool> reduced(x.rank(), false);
  if (attrs.Has("axes")) {
    const std::vector<int64_t>& axes = attrs.Ints("axes");
    if (axes.empty()) reduced.assign(x.rank(), true);
    for (int64_t a : axes) reduced[a < 0 ? a + x.rank() : a] = true;
  } else {
    for (int d = 1; d <= x.rank(); ++d) {
      reduced[x.rank() - d] = d > y.rank() || y[-d] == 1;
    }
  }
  return reduced;
}

std::vector<DimGroup> GroupDims(const Shape& x,
                                const std::vector<bool>& reduced) {
  std::vector<DimGroup> groups;
  for (int d = 0; d < x.rank(); ++d) {
    if (x[d] == 1) continue;
    if (!groups.empty() && groups.back().reduced == reduced[d]) {
      groups.back().size *= x[d];
    } else {
      groups.push_back({x[d], reduced[d]});
    }
  }
  return groups;
}

std::vector<DimGroup> GroupDims(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  return GroupDims(x, ReducedDims(x, spec.outputs[0].shape, spec.attrs));
}

int64_t ReducedCount(const std::vector<DimGroup>& groups) {
  int64_t count = 1;
  for (const DimGroup& group : groups) {
    if (group.reduced) count *= group.size;
  }
  return count;
}

std::vector<AxisForm> ReductionSteps(std::vector<DimGroup> groups) {
  std::vector<AxisForm> steps;
  const auto product = [&](size_t from, size_t to) {
    int64_t size = 1;
    for (size_t i = from; i < to; ++i) size *= groups[i].size;
    return size;
  };
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].reduced) continue;
    steps.push_back(
        {product(0, i), groups[i].size, product(i + 1, groups.size())});
    groups.erase(groups.begin() + static_cast<ptrdiff_t>(i));
  }
  if (steps.empty()) steps.push_back({product(0, groups.size()), 1, 1});
  return steps;
}

}  // namespace sluice
