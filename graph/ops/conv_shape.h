// What the ops of convolutions share.
#ifndef SLUICE_GRAPH_OPS_CONV_SHAPE_H_
#define SLUICE_GRAPH_OPS_CONV_SHAPE_H_

#include "engine/shape.h"
#include "engine/status.h"
#include "graph/graph.h"

namespace sluice {

// The shape of what `node` makes, or would if it went forward, of x [n,h,w,c]
// and an HWIO filter; unknown where either is.
Result<Shape> ConvolutionShape(const Node& node, const Shape& x,
                               const Shape& filter);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CONV_SHAPE_H_
