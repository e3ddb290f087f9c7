// Convolutions over images, NHWC. Filters are HWIO: [height, width, input
// channels per group, output channels].
#ifndef SLUICE_GRAPH_OPS_CONV_H_
#define SLUICE_GRAPH_OPS_CONV_H_

#include <array>
#include <cstdint>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/padding.h"

namespace SLUICE_PUBLIC sluice {

// Pairs are (vertical, horizontal).
struct Conv2DOptions {
  std::array<int64_t, 2> strides = {1, 1};
  std::array<int64_t, 2> dilations = {1, 1};
  Padding padding = Padding::kSame;
  // Top, bottom, left, right; read with Padding::kExplicit alone.
  std::array<int64_t, 4> explicit_padding = {0, 0, 0, 0};
  // Input and output channels are cut into this many groups, each with
  // filters of its own.
  int64_t groups = 1;
};

// x[n,h,w,i] with filter[kh,kw,i/groups,o] gives [n,h',w',o]. A
// cross-correlation: the filter is not flipped.
Output Conv2D(Operand x, Operand filter, const Conv2DOptions& options = {});
// The gradients of Conv2D with respect to x and to the filter, whose shape is
// given as an int64 vector. In x's the batch alone may be -1, which stands for
// that of dy.
Output Conv2DBackpropInput(Operand dy, Operand filter, Operand x_shape,
                           const Conv2DOptions& options = {});
Output Conv2DBackpropFilter(Operand x, Operand dy, Operand filter_shape,
                            const Conv2DOptions& options = {});

// Each channel with filters of its own: x[n,h,w,c] with filter[kh,kw,c,m]
// gives [n,h',w',c*m], output channel c * m + j from input channel c.
// options.groups must be 1.
Output DepthwiseConv2D(Operand x, Operand filter,
                       const Conv2DOptions& options = {});
Output DepthwiseConv2DBackpropInput(Operand dy, Operand filter, Operand x_shape,
                                    const Conv2DOptions& options = {});
Output DepthwiseConv2DBackpropFilter(Operand x, Operand dy,
                                     Operand filter_shape,
                                     const Conv2DOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CONV_H_
