#include "models/nn/group_moments.h"

#include <numeric>

#include "graph/ops/array.h"
#include "graph/ops/collective.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"

namespace sluice {

// The mean first, and then the squares of what is apart from it: the mean of
// squares less the square of the mean loses the digits of a small variance. A
// worker without examples adds nothing.
GroupMoments GroupMomentsOf(const Output& given) {
  const DType dtype = ComputeDType(given.dtype());
  const Output x = given.dtype() == dtype ? given : Cast(given, dtype);
  Axes axes(static_cast<size_t>(x.shape().rank() - 1));
  std::iota(axes.begin(), axes.end(), 0);
  const int64_t channels = x.shape()[-1];
  const Output mine = Cast(Size(x), dtype) / static_cast<double>(channels);
  const Output sums =
      AllReduce(Concat({Sum(x, axes), Reshape(mine, {1})}, 0), Reduction::kSum);
  const Output rows = Reshape(Slice(sums, {channels}, {1}), {});
  const Output count = Maximum(rows, 1.0);
  const Output mean = Slice(sums, {0}, {channels}) / count;
  const Output squares =
      AllReduce(Sum(Square(x - mean), axes), Reduction::kSum);
  return {mean, squares / count, rows};
}

}  // namespace sluice
