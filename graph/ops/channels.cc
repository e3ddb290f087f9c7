#include "graph/ops/channels.h"

#include <fmt/format.h>

#include "graph/graph.h"

namespace sluice {

Status CheckChannels(InferContext& c, int first, int last) {
  const Shape& x = c.input(0);
  if (x.rank() < 1) return InvalidArgument("x needs a channel dimension");
  for (int i = first; i <= last; ++i) {
    if (c.input(i).rank() != 1 || !Compatible(c.input(i), Shape{x[-1]})) {
      return InvalidArgument(fmt::format(
          "'{}' must be a vector over the channels of x={}, got {}",
          c.node().op().inputs[i].name, x.ToString(), c.input(i).ToString()));
    }
  }
  return {};
}

Shape Channels(InferContext& c) {
  // scale may know the number of channels when x does not.
  return Compatible(c.input(1), Shape{c.input(0)[-1]}) && c.input(0)[-1] < 0
             ? c.input(1)
             : Shape{c.input(0)[-1]};
}

}  // namespace sluice
