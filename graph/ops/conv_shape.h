// What the ops of convolutions share, whichever layout their filters have
// (OpDef::conv).
#ifndef SLUICE_GRAPH_OPS_CONV_SHAPE_H_
#define SLUICE_GRAPH_OPS_CONV_SHAPE_H_

#include <cstdint>

#include "graph/graph.h"
#include "graph/op.h"

namespace sluice {

inline constexpr FixedList<AttrDef, 10> kConvAttrs = {
    {"strides", Ints{1, 1}},
    {"dilations", Ints{1, 1}},
    {"padding", "SAME"},
    {"explicit_padding", Ints{0, 0, 0, 0}},
    {"groups", 1}};

// Shape functions: of (x, filter), (dy, filter, x's shape) and (x, dy, filter's
// shape).
Status ConvShape(InferContext& c);
Status ConvBackpropInputShape(InferContext& c);
Status ConvBackpropFilterShape(InferContext& c);

// OpDef::multiply_adds of the three.
int64_t ConvMultiplyAdds(const Node& node);
int64_t ConvInputMultiplyAdds(const Node& node);
int64_t ConvFilterMultiplyAdds(const Node& node);

// Attributes of probes, for filters of either layout.
inline constexpr FixedList<AttrSetting, 8> kStrided = {{"strides", Ints{2, 1}},
                                                       {"groups", 2}};
inline constexpr FixedList<AttrSetting, 8> kDilated = {
    {"dilations", Ints{1, 2}},
    {"padding", "EXPLICIT"},
    {"explicit_padding", Ints{1, 0, 2, 1}}};
// Without any of its lines an image has windows, of padding alone.
inline constexpr FixedList<AttrSetting, 8> kAllPadding = {
    {"strides", Ints{2, 1}},
    {"padding", "EXPLICIT"},
    {"explicit_padding", Ints{1, 2, 0, 1}}};

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CONV_SHAPE_H_
