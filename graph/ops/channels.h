// Shape checks of the ops that work per channel, x's last dimension.
#ifndef SLUICE_GRAPH_OPS_CHANNELS_H_
#define SLUICE_GRAPH_OPS_CHANNELS_H_

#include "graph/op.h"

namespace sluice {

// Inputs [first, last] must be vectors over the channels of input 0.
Status CheckChannels(InferContext& c, int first, int last);
// A vector over the channels of input 0.
Shape Channels(InferContext& c);

// Of a probe: variances, or others that are divided by or have roots taken.
constexpr ProbeInput Positive(Ints shape) {
  return {.shape = shape, .lo = 0.5, .hi = 2};
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CHANNELS_H_
