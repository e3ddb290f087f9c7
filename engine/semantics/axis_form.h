// How reductions and scans see their operands, on any device: as a matrix of
// lines along an axis.
#ifndef SLUICE_ENGINE_SEMANTICS_AXIS_FORM_H_
#define SLUICE_ENGINE_SEMANTICS_AXIS_FORM_H_

#include <cstdint>
#include <vector>

#include "engine/kernel.h"
#include "engine/shape.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// x seen as [outer, n, inner] about one dimension, or neighbouring ones taken
// as one. Columns are [1, n, inner], rows [outer, n, 1], everything [1, n, 1].
struct AxisForm {
  int64_t outer = 1, n = 1, inner = 1;
};

// The form about the attribute `axis` of input `operand`.
AxisForm AxisFormOf(const KernelSpec& spec, int operand);

// Which of x's dimensions a reduction to y takes away: those of the attribute
// `axes`, all if that is empty; without the attribute, those that y lacks or
// has as 1 (SumTo, L2Loss).
std::vector<bool> ReducedDims(const Shape& x, const Shape& y,
                              const Attributes& attrs);

// Neighbouring dimensions that are all reduced or all kept, as one.
struct DimGroup {
  int64_t size;
  bool reduced;
};

// x's dimensions without those of size 1, in alternating groups.
std::vector<DimGroup> GroupDims(const Shape& x,
                                const std::vector<bool>& reduced);
// Input 0's, as its op reduces them.
std::vector<DimGroup> GroupDims(const KernelSpec& spec);

// The number of elements that go into each result.
int64_t ReducedCount(const std::vector<DimGroup>& groups);

// The steps that take the reduced groups away, each about one of them, the
// innermost first. Where there are none, one step about an axis of size 1.
std::vector<AxisForm> ReductionSteps(std::vector<DimGroup> groups);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_AXIS_FORM_H_
