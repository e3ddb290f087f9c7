// How reductions on a GPU are cut into passes over memory, one launch each.
#ifndef SLUICE_ENGINE_SEMANTICS_REDUCE_PLAN_H_
#define SLUICE_ENGINE_SEMANTICS_REDUCE_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/semantics/axis_form.h"
#include "engine/shape.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// One pass over memory, [outer, n, inner] to [outer, segments, inner]: a long n
// is cut into segments, whose results the next pass combines.
struct ReducePass {
  AxisForm shape;
  int64_t segment = 1;  // elements of n
  int64_t segments = 1;

  int64_t results() const { return shape.outer * segments * shape.inner; }
};

// The passes that reduce some of x's dimensions, innermost first. Cuts and
// order depend on the shape and on whether x is 16-byte aligned alone: so do
// the bits.
struct ReducePlan {
  std::vector<ReducePass> passes;  // at least one
  int64_t count = 1;               // of elements that go into a result

  ReducePlan(const Shape& x, const std::vector<bool>& reduced);
  // Results of all passes but the last, which are kept between passes.
  int64_t states() const;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_REDUCE_PLAN_H_
