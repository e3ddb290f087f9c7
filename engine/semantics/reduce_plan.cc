#include "engine/semantics/reduce_plan.h"

#include <algorithm>

#include "engine/ceil_div.h"

namespace sluice {
namespace {

// Elements of n in a segment. Long enough that the first pass's results are
// few, short enough that several segments fill a GPU when rows are few.
int64_t SegmentOf(const AxisForm& shape) {
  return shape.inner == 1 ? 1 << 14 : 1 << 9;
}

// Passes that reduce n altogether.
void AddPasses(AxisForm shape, std::vector<ReducePass>* passes) {
  int64_t segments = 1;
  do {
    const int64_t segment = SegmentOf(shape);
    segments = std::max<int64_t>(CeilDiv(shape.n, segment), 1);
    passes->push_back({shape, segment, segments});
    shape.n = segments;
  } while (segments > 1);
}

}  // namespace

ReducePlan::ReducePlan(const Shape& x, const std::vector<bool>& reduced) {
  const std::vector<DimGroup> groups = GroupDims(x, reduced);
  count = ReducedCount(groups);
  for (const AxisForm& step : ReductionSteps(groups)) AddPasses(step, &passes);
}

int64_t ReducePlan::states() const {
  int64_t states = 0;
  for (size_t i = 0; i + 1 < passes.size(); ++i) states += passes[i].results();
  return states;
}

}  // namespace sluice
