#include "graph/ops/conv.h"

#include <fmt/format.h>

#include <array>

#include "engine/semantics/conv_geometry.h"
#include "engine/semantics/filter_layout.h"
#include "engine/semantics/window.h"
#include "graph/ops/conv_shape.h"
#include "graph/ops/expression.h"
#include "graph/ops/padding.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// The shape of what `node` makes, or would if it went forward, of x [n,h,w,c]
// and a filter in its layout; unknown where either is.
Result<Shape> ConvolutionShape(const Node& node, const Shape& x,
                               const Shape& given) {
  const bool ohwi = node.op().conv.ohwi && given.rank() == 4;
  const Shape filter = ohwi ? HwioOf(given) : given;
  if (x.rank() != 4 || filter.rank() != 4) {
    return InvalidArgument(
        fmt::format("wanted images [n,h,w,c] and a filter of rank 4, got x={} "
                    "filter={}",
                    x.ToString(), filter.ToString()));
  }
  const bool depthwise = IsDepthwise(node.attrs());
  const int64_t groups = depthwise ? 1 : node.attrs().Int("groups");
  if (groups < 1) {
    return InvalidArgument(
        fmt::format("groups must be positive, got {}", groups));
  }
  if (x[3] >= 0 && filter[2] >= 0) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t wanted,
                            CheckedElements(std::array{filter[2], groups}));
    if (x[3] != wanted) {
      return InvalidArgument(
          fmt::format("channels differ: x={} has {}, filter={} wants {}",
                      x.ToString(), x[3], filter.ToString(), wanted));
    }
  }
  if (filter[3] >= 0 && filter[3] % groups != 0) {
    return InvalidArgument(fmt::format(
        "{} output channels cannot be cut into {} groups", filter[3], groups));
  }
  SLUICE_ASSIGN_OR_RETURN(const Window2D window,
                          WindowOf(node.attrs(), x, filter[0], filter[1]));
  int64_t channels = filter[3];
  if (depthwise && (filter[2] < 0 || filter[3] < 0)) {
    channels = kUnknown;
  } else if (depthwise) {
    SLUICE_ASSIGN_OR_RETURN(channels,
                            CheckedElements(std::array{filter[2], filter[3]}));
  }
  return Shape{x[0], window.h.output, window.w.output, channels};
}

// dy must be what the convolution of x with filter would be.
Status CheckGradientShape(const Node& node, const Shape& dy, const Shape& x,
                          const Shape& filter) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y, ConvolutionShape(node, x, filter));
  if (!Compatible(y, dy)) {
    return InvalidArgument(fmt::format(
        "dy={} is not the shape {} that x={} and filter={} give", dy.ToString(),
        y.ToString(), x.ToString(), filter.ToString()));
  }
  return {};
}

}  // namespace

Status ConvShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y,
                          ConvolutionShape(c.node(), c.input(0), c.input(1)));
  c.SetOutput(0, y);
  return {};
}

Status ConvBackpropInputShape(InferContext& c) {
  // The batch is dy's, so it alone may be left open.
  SLUICE_ASSIGN_OR_RETURN(Shape x, FullShapeOperand(c, 2, /*first=*/1));
  SLUICE_RETURN_IF_ERROR(
      CheckGradientShape(c.node(), c.input(0), x, c.input(1)));
  if (x[0] < 0) x.set(0, c.input(0)[0]);
  c.SetOutput(0, x);
  return {};
}

Status ConvBackpropFilterShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape filter, FullShapeOperand(c, 2));
  SLUICE_RETURN_IF_ERROR(
      CheckGradientShape(c.node(), c.input(1), c.input(0), filter));
  c.SetOutput(0, filter);
  return {};
}

namespace {

// y, or dy, has a product for each element of one output's filter. Depthwise
// filters [height, width, c, m] have a group for each channel.
int64_t MultiplyAdds(const Node& node, const Output& y, const Output& filter) {
  const Shape& f = filter.shape();
  const int64_t products = node.op().conv.ohwi         ? f.elements(1, 4)
                           : IsDepthwise(node.attrs()) ? f.elements(0, 2)
                                                       : f.elements(0, 3);
  return y.shape().elements() * products;
}

}  // namespace

int64_t ConvMultiplyAdds(const Node& node) {
  return MultiplyAdds(node, node.output(0), node.input(1));
}
int64_t ConvInputMultiplyAdds(const Node& node) {
  return MultiplyAdds(node, node.input(0), node.input(1));
}
int64_t ConvFilterMultiplyAdds(const Node& node) {
  return MultiplyAdds(node, node.input(1), node.output(0));
}

namespace {

// Of the fused ops: y's channels get a bias, an addend has y's shape.
Status SumShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(ConvShape(c));
  const Shape y = c.output(0);
  for (int i = 2; i < c.node().num_inputs(); ++i) {
    const Shape wanted = i == 2 ? Shape{y[-1]} : y;
    if (!Compatible(wanted, c.input(i))) {
      return InvalidArgument(fmt::format(
          "'{}' has shape {}, wanted {}", c.node().op().inputs[i].name,
          c.input(i).ToString(), wanted.ToString()));
    }
  }
  return {};
}

// The three ops are bilinear and each other's gradients.
struct Family {
  const char* forward;
  const char* backprop_input;
  const char* backprop_filter;
};
Family FamilyOf(const Node& node) {
  if (IsDepthwise(node.attrs())) {
    return {"DepthwiseConv2D", "DepthwiseConv2DBackpropInput",
            "DepthwiseConv2DBackpropFilter"};
  }
  return {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"};
}

Outputs ForwardGradient(const Node& node, const Outputs& dy) {
  const Family f = FamilyOf(node);
  const Output x = node.input(0), filter = node.input(1);
  return {WithAttrsOf(node, f.backprop_input, {dy[0], filter, ShapeOf(x)}),
          WithAttrsOf(node, f.backprop_filter, {x, dy[0], ShapeOf(filter)})};
}

Outputs BackpropInputGradient(const Node& node, const Outputs& ddx) {
  const Family f = FamilyOf(node);
  const Output dy = node.input(0), filter = node.input(1);
  return {WithAttrsOf(node, f.forward, {ddx[0], filter}),
          WithAttrsOf(node, f.backprop_filter, {ddx[0], dy, ShapeOf(filter)}),
          Output()};
}

Outputs BackpropFilterGradient(const Node& node, const Outputs& dfilter) {
  const Family f = FamilyOf(node);
  const Output x = node.input(0), dy = node.input(1);
  return {WithAttrsOf(node, f.backprop_input, {dy, dfilter[0], ShapeOf(x)}),
          WithAttrsOf(node, f.forward, {x, dfilter[0]}), Output()};
}

// x [2,7,6,c] under 3x2 windows, stride 2 by 1: y is [2,4,6,...] with SAME,
// [2,3,5,...] with VALID.
constexpr FixedList<double, 8> kXShape4 = {2, 7, 6, 4};
constexpr FixedList<double, 8> kFilterShape = {3, 2, 2, 6};
constexpr FixedList<double, 8> kXShape3 = {2, 7, 6, 3};
constexpr FixedList<double, 8> kDepthwiseShape = {3, 2, 3, 2};
constexpr FixedList<AttrSetting, 8> kValidStrided = {{"strides", Ints{2, 1}},
                                                     {"padding", "VALID"}};

constexpr FixedList<AttrDef, 10> kFusedAttrs = {
    {"strides", Ints{1, 1}}, {"dilations", Ints{1, 1}},
    {"padding", "SAME"},     {"explicit_padding", Ints{0, 0, 0, 0}},
    {"groups", 1},           {"relu", false}};
constexpr FixedList<AttrSetting, 8> kStridedRelu = {
    {"strides", Ints{2, 1}}, {"groups", 2}, {"relu", true}};
constexpr FixedList<AttrDef, 10> kDepthwiseAttrs = {
    {"strides", Ints{1, 1}},
    {"dilations", Ints{1, 1}},
    {"padding", "SAME"},
    {"explicit_padding", Ints{0, 0, 0, 0}}};

bool Always(const Node&) {
  return true;
}

// `ohwi`: the op with an OHWI filter, or null.
constexpr OpDef ForwardOp(const char* name, const char* ohwi, const char* doc,
                          FixedList<AttrDef, 10> attrs,
                          FixedList<Probe, 6> probes) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}, {"filter"}},
          .attrs = attrs,
          .shape = ConvShape,
          .gradient = ForwardGradient,
          .ohwi_op = ohwi,
          .scales_channels = Always,
          .multiply_adds = ConvMultiplyAdds,
          .half = HalfRule::kPrefer,
          .probes = probes};
}

// Forward it is a transposed convolution.
constexpr OpDef BackpropInputOp(const char* name, const char* ohwi,
                                const char* doc, FixedList<AttrDef, 10> attrs,
                                FixedList<Probe, 6> probes) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"dy"}, {"filter"}, {"x_shape", "int64"}},
          .outputs = {{"dx"}},
          .attrs = attrs,
          .shape = ConvBackpropInputShape,
          .gradient = BackpropInputGradient,
          .conv = {ConvPass::kInput},
          .ohwi_op = ohwi,
          .multiply_adds = ConvInputMultiplyAdds,
          .half = HalfRule::kPrefer,
          .probes = probes};
}

constexpr OpDef BackpropFilterOp(const char* name, const char* ohwi,
                                 const char* doc, FixedList<AttrDef, 10> attrs,
                                 FixedList<Probe, 6> probes) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}, {"dy"}, {"filter_shape", "int64"}},
          .outputs = {{"dfilter"}},
          .attrs = attrs,
          .shape = ConvBackpropFilterShape,
          .gradient = BackpropFilterGradient,
          .conv = {ConvPass::kFilter},
          .ohwi_op = ohwi,
          .multiply_adds = ConvFilterMultiplyAdds,
          .half = HalfRule::kPrefer,
          .probes = probes};
}

constexpr OpDef kConvOps[] = {
    ForwardOp("Conv2D", "OhwiConv2D",
              "Convolves NHWC images with an HWIO filter.", kConvAttrs,
              {{.inputs = {{.shape = {2, 7, 6, 4}}, {.shape = {3, 2, 2, 6}}},
                .attrs = kStrided},
               {.inputs = {{.shape = {1, 5, 6, 3}}, {.shape = {3, 2, 3, 4}}},
                .attrs = kDilated},
               {.inputs = {{.shape = {3, 4, 5, 3}}, {.shape = {1, 1, 3, 4}}}},
               {.inputs = {{.shape = {2, 1, 5, 3}}, {.shape = {3, 2, 3, 4}}},
                .attrs = kAllPadding}}),
    // The fusion pass makes the next two, after gradients were taken. Their
    // probes are a window of every kind: grouped, one pixel, Winograd's.
    {.name = "Conv2DBias",
     .doc = "Conv2D + bias along the channels; relu: max(0, that).",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"filter"}, {"bias"}},
     .attrs = kFusedAttrs,
     .shape = SumShape,
     .gradient = NotDifferentiable,
     .multiply_adds = ConvMultiplyAdds,
     .probes =
         {{.inputs = {{.shape = {2, 7, 6, 8}},
                      {.shape = {3, 2, 4, 10}},
                      {.shape = {10}}},
           .attrs = kStridedRelu},
          {.inputs = {{.shape = {3, 4, 5, 3}},
                      {.shape = {1, 1, 3, 4}},
                      {.shape = {4}}}},
          {.inputs = {{.shape = {1, 9, 10, 32}},
                      {.shape = {3, 3, 32, 64}},
                      {.shape = {64}}},
           .attrs = {{"relu", true}}},
          // NaN stays (MatMulBias), of a grouped one, too.
          {.inputs = {{.shape = {3, 4, 5, 3}},
                      {.shape = {1, 1, 3, 4}},
                      {.shape = {4},
                       .values = {__builtin_nan(""), 9, -9, __builtin_inf()}}},
           .attrs = {{"relu", true}}},
          {.inputs = {{.shape = {2, 7, 6, 8}},
                      {.shape = {3, 2, 4, 4}},
                      {.shape = {4}, .values = {9, __builtin_nan(""), 9, -9}}},
           .attrs = kStridedRelu}}},
    {.name = "Conv2DBiasAdd",
     .doc = "Conv2D + bias along the channels + addend; relu: max(0, that).",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"filter"}, {"bias"}, {"addend"}},
     .attrs = kFusedAttrs,
     .shape = SumShape,
     .gradient = NotDifferentiable,
     .inplace = {3},
     .multiply_adds = ConvMultiplyAdds,
     .probes = {{.inputs = {{.shape = {2, 7, 6, 8}},
                            {.shape = {3, 2, 4, 10}},
                            {.shape = {10}},
                            {.shape = {2, 4, 6, 10}}},
                 .attrs = kStridedRelu},
                {.inputs = {{.shape = {3, 4, 5, 3}},
                            {.shape = {1, 1, 3, 4}},
                            {.shape = {4}},
                            {.shape = {3, 4, 5, 4}}}},
                {.inputs = {{.shape = {1, 6, 6, 16}},
                            {.shape = {3, 3, 16, 16}},
                            {.shape = {16}},
                            {.shape = {1, 6, 6, 16}}}},
                {.inputs = {{.shape = {1, 9, 10, 32}},
                            {.shape = {3, 3, 32, 64}},
                            {.shape = {64}},
                            {.shape = {1, 9, 10, 64}}},
                 .attrs = {{"relu", true}}},
                {.inputs = {{.shape = {3, 4, 5, 3}},
                            {.shape = {1, 1, 3, 4}},
                            {.shape = {4},
                             .values = {__builtin_nan(""), 9, -9,
                                        __builtin_inf()}},
                            {.shape = {3, 4, 5, 4}}},
                 .attrs = {{"relu", true}}}}},
    BackpropInputOp(
        "Conv2DBackpropInput", "OhwiConv2DBackpropInput",
        "The gradient of Conv2D with respect to x, whose shape is given.",
        kConvAttrs,
        {{.inputs = {{.shape = {2, 4, 6, 6}},
                     {.shape = {3, 2, 2, 6}},
                     {.shape = {4}, .values = kXShape4}},
          .attrs = kStrided},
         {.inputs = {{.shape = {1, 4, 7, 4}},
                     {.shape = {3, 2, 3, 4}},
                     {.shape = {4}, .values = {1, 5, 6, 3}}},
          .attrs = kDilated}}),
    BackpropFilterOp(
        "Conv2DBackpropFilter", "OhwiConv2DBackpropFilter",
        "The gradient of Conv2D with respect to the filter, whose shape is "
        "given.",
        kConvAttrs,
        {{.inputs = {{.shape = {2, 7, 6, 4}},
                     {.shape = {2, 4, 6, 6}},
                     {.shape = {4}, .values = kFilterShape}},
          .attrs = kStrided},
         {.inputs = {{.shape = {1, 5, 6, 3}},
                     {.shape = {1, 4, 7, 4}},
                     {.shape = {4}, .values = {3, 2, 3, 4}}},
          .attrs = kDilated},
         {.inputs = {{.shape = {2, 1, 5, 3}},
                     {.shape = {2, 1, 5, 4}},
                     {.shape = {4}, .values = {3, 2, 3, 4}}},
          .attrs = kAllPadding}}),
    ForwardOp("DepthwiseConv2D", nullptr,
              "Convolves each channel of NHWC images with filters of its own.",
              kDepthwiseAttrs,
              {{.inputs = {{.shape = {2, 7, 6, 3}}, {.shape = {3, 2, 3, 2}}},
                .attrs = kValidStrided},
               {.inputs = {{.shape = {1, 5, 6, 3}}, {.shape = {3, 2, 3, 1}}},
                .attrs = kDilated},
               {.inputs = {{.shape = {1, 4, 4, 5}}, {.shape = {3, 3, 5, 1}}}}}),
    BackpropInputOp(
        "DepthwiseConv2DBackpropInput", nullptr,
        "The gradient of DepthwiseConv2D with respect to x, whose shape is "
        "given.",
        kDepthwiseAttrs,
        {{.inputs = {{.shape = {2, 3, 5, 6}},
                     {.shape = {3, 2, 3, 2}},
                     {.shape = {4}, .values = kXShape3}},
          .attrs = kValidStrided}}),
    BackpropFilterOp(
        "DepthwiseConv2DBackpropFilter", nullptr,
        "The gradient of DepthwiseConv2D with respect to the filter, whose "
        "shape is given.",
        kDepthwiseAttrs,
        {{.inputs = {{.shape = {2, 7, 6, 3}},
                     {.shape = {2, 3, 5, 6}},
                     {.shape = {4}, .values = kDepthwiseShape}},
          .attrs = kValidStrided}}),
};

Attributes AttributesOf(const Conv2DOptions& options) {
  Attributes attrs = WindowAttributes(options);
  attrs.Set("dilations", ToInts(options.dilations));
  return attrs;
}

Output Convolution(const char* op, std::vector<Operand> inputs,
                   const Conv2DOptions& options) {
  Graph& graph = inputs[0].graph();
  Attributes attrs = AttributesOf(options);
  attrs.Set("groups", options.groups);
  return graph.Add({op, std::move(inputs), std::move(attrs)}).output(0);
}

Output Depthwise(const char* op, std::vector<Operand> inputs,
                 const Conv2DOptions& options) {
  Graph& graph = inputs[0].graph();
  if (options.groups != 1) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: every channel is a group of its own; groups "
                    "must stay 1, got {} ({})",
                    op, options.groups, FormatLocation(inputs[0].location())));
  }
  return graph.Add({op, std::move(inputs), AttributesOf(options)}).output(0);
}

}  // namespace

std::span<const OpDef> ConvOps() {
  return kConvOps;
}

Output Conv2D(Operand x, Operand filter, const Conv2DOptions& options) {
  return Convolution("Conv2D", {x, filter}, options);
}
Output Conv2DBackpropInput(Operand dy, Operand filter, Operand x_shape,
                           const Conv2DOptions& options) {
  return Convolution("Conv2DBackpropInput", {dy, filter, x_shape}, options);
}
Output Conv2DBackpropFilter(Operand x, Operand dy, Operand filter_shape,
                            const Conv2DOptions& options) {
  return Convolution("Conv2DBackpropFilter", {x, dy, filter_shape}, options);
}
Output DepthwiseConv2D(Operand x, Operand filter,
                       const Conv2DOptions& options) {
  return Depthwise("DepthwiseConv2D", {x, filter}, options);
}
Output DepthwiseConv2DBackpropInput(Operand dy, Operand filter, Operand x_shape,
                                    const Conv2DOptions& options) {
  return Depthwise("DepthwiseConv2DBackpropInput", {dy, filter, x_shape},
                   options);
}
Output DepthwiseConv2DBackpropFilter(Operand x, Operand dy,
                                     Operand filter_shape,
                                     const Conv2DOptions& options) {
  return Depthwise("DepthwiseConv2DBackpropFilter", {x, dy, filter_shape},
                   options);
}

}  // namespace sluice
