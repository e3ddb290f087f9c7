// Shape checks of the ops that work per channel, x's last dimension.
#ifndef SLUICE_GRAPH_OPS_CHANNELS_H_
#define SLUICE_GRAPH_OPS_CHANNELS_H_

#include "graph/op.h"

namespace sluice {

// Inputs [first, last] must be vectors over the channels of input 0.
Status CheckChannels(InferContext& c, int first, int last);
// A vector over the channels of input 0.
Shape Channels(InferContext& c);

// A probe's input of positive values: a variance, or another operand that is
// divided by or whose root is taken.
constexpr ProbeInput Positive(Ints shape) {
  return {.shape = shape, .lo = 0.5, .hi = 2};
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CHANNELS_H_
