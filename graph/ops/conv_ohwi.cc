// Convolutions whose filter is OHWI, and what brings filters from one layout
// into the other. passes::TurnFilters makes these nodes for devices that like
// it, after gradients were taken, so they have none of their own.
#include <fmt/format.h>

#include "engine/semantics/filter_layout.h"
#include "graph/ops/conv_shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// In the other layout; what is wrong with a filter of another rank says
// ConvolutionShape.
Shape Hwio(const Shape& ohwi) {
  return ohwi.rank() == 4 ? HwioOf(ohwi) : ohwi;
}

Status ForwardShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(
      const Shape y, ConvolutionShape(c.node(), c.input(0), Hwio(c.input(1))));
  c.SetOutput(0, y);
  return {};
}

Status CheckGradient(const InferContext& c, const Shape& dy, const Shape& x,
                     const Shape& filter) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y,
                          ConvolutionShape(c.node(), x, Hwio(filter)));
  if (Compatible(y, dy)) return {};
  return InvalidArgument(fmt::format(
      "dy={} is not the shape {} that x={} and filter={} give", dy.ToString(),
      y.ToString(), x.ToString(), filter.ToString()));
}

Status BackpropInputShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(Shape x, c.ShapeOperand(2));
  SLUICE_RETURN_IF_ERROR(CheckGradient(c, c.input(0), x, c.input(1)));
  if (x[0] < 0) x.set(0, c.input(0)[0]);
  c.SetOutput(0, x);
  return {};
}

Status BackpropFilterShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape filter, c.ShapeOperand(2));
  SLUICE_RETURN_IF_ERROR(CheckGradient(c, c.input(1), c.input(0), filter));
  c.SetOutput(0, filter);
  return {};
}

// Of each element of y or dy one for each element of an output's filter.
int64_t MultiplyAdds(const Output& y, const Output& filter) {
  return y.shape().elements() * filter.shape().elements(1, 4);
}

Status TurnShape(InferContext& c) {
  const std::string& to = c.attrs().String("layout");
  if (to != "OHWI" && to != "HWIO") {
    return InvalidArgument(fmt::format("layout is OHWI or HWIO, got '{}'", to));
  }
  if (!IsFloating(c.attrs().Type("to"))) {
    return InvalidArgument(fmt::format("wanted a floating dtype 'to', got {}",
                                       NameOf(c.attrs().Type("to"))));
  }
  c.SetNumOutputs(c.num_inputs());
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Shape& filter = c.input(i);
    if (filter.rank() != 4) {
      return InvalidArgument(fmt::format(
          "input {}: a filter has rank 4, got {}", i, filter.ToString()));
    }
    c.SetOutput(i, to == "OHWI" ? OhwiOf(filter) : HwioOf(filter));
  }
  return {};
}

constexpr FixedList<AttrDef, 10> kConvAttrs = {
    {"strides", Ints{1, 1}},
    {"dilations", Ints{1, 1}},
    {"padding", "SAME"},
    {"explicit_padding", Ints{0, 0, 0, 0}},
    {"groups", 1}};
constexpr FixedList<AttrSetting, 8> kStrided = {{"strides", Ints{2, 1}},
                                                {"groups", 2}};
constexpr FixedList<AttrSetting, 8> kDilated = {
    {"dilations", Ints{1, 2}},
    {"padding", "EXPLICIT"},
    {"explicit_padding", Ints{1, 0, 2, 1}}};

// Probes are those of the ops with HWIO filters, turned.
constexpr OpDef kConvOhwiOps[] = {
    {.name = "OhwiConv2D",
     .doc = "Conv2D with an OHWI filter.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"filter"}},
     .attrs = kConvAttrs,
     .shape = ForwardShape,
     .gradient = NotDifferentiable,
     .multiply_adds =
         [](const Node& node) {
           return MultiplyAdds(node.output(0), node.input(1));
         },
     .probes = {{.inputs = {{.shape = {2, 7, 6, 4}}, {.shape = {6, 3, 2, 2}}},
                 .attrs = kStrided},
                {.inputs = {{.shape = {1, 5, 6, 3}}, {.shape = {4, 3, 2, 3}}},
                 .attrs = kDilated},
                {.inputs = {{.shape = {3, 4, 5, 3}},
                            {.shape = {4, 1, 1, 3}}}}}},
    {.name = "OhwiConv2DBackpropInput",
     .doc = "Conv2DBackpropInput with an OHWI filter.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"dy"}, {"filter"}, {"x_shape", "int64"}},
     .outputs = {{"dx"}},
     .attrs = kConvAttrs,
     .shape = BackpropInputShape,
     .gradient = NotDifferentiable,
     .multiply_adds =
         [](const Node& node) {
           return MultiplyAdds(node.input(0), node.input(1));
         },
     .probes = {{.inputs = {{.shape = {2, 4, 6, 6}},
                            {.shape = {6, 3, 2, 2}},
                            {.shape = {4}, .values = {2, 7, 6, 4}}},
                 .attrs = kStrided},
                {.inputs = {{.shape = {1, 4, 7, 4}},
                            {.shape = {4, 3, 2, 3}},
                            {.shape = {4}, .values = {1, 5, 6, 3}}},
                 .attrs = kDilated}}},
    {.name = "OhwiConv2DBackpropFilter",
     .doc = "Conv2DBackpropFilter with an OHWI result, whose shape is given.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"dy"}, {"filter_shape", "int64"}},
     .outputs = {{"dfilter"}},
     .attrs = kConvAttrs,
     .shape = BackpropFilterShape,
     .gradient = NotDifferentiable,
     .multiply_adds =
         [](const Node& node) {
           return MultiplyAdds(node.input(1), node.output(0));
         },
     .probes = {{.inputs = {{.shape = {2, 7, 6, 4}},
                            {.shape = {2, 4, 6, 6}},
                            {.shape = {4}, .values = {6, 3, 2, 2}}},
                 .attrs = kStrided},
                {.inputs = {{.shape = {1, 5, 6, 3}},
                            {.shape = {1, 4, 7, 4}},
                            {.shape = {4}, .values = {4, 3, 2, 3}}},
                 .attrs = kDilated}}},
    {.name = "TurnFilters",
     .doc = "Filters of one layout brought into the other, `layout`, and "
            "converted to dtype `to`, all in one pass.",
     .made_by = MadeBy::kEngine,
     .inputs = {{.name = "filters", .variadic = true}},
     .outputs = {{.name = "turned", .type = "to", .variadic = true}},
     .attrs = {{"to", AttrType::kDType}, {"layout", "OHWI"}},
     .shape = TurnShape,
     .gradient = NotDifferentiable,
     .probes = {{.inputs = {{.shape = {3, 2, 5, 7}},
                            {.shape = {1, 1, 40, 33}},
                            {.shape = {1, 1, 1, 1}}},
                 .attrs = {{"to", DType::kFloat32}}},
                {.inputs = {{.shape = {3, 2, 5, 7}}, {.shape = {1, 1, 3, 70}}},
                 .attrs = {{"to", DType::kFloat16}}},
                {.inputs = {{.shape = {65, 2, 3, 9}}, {.shape = {2, 1, 1, 3}}},
                 .attrs = {{"to", DType::kBFloat16}, {"layout", "HWIO"}}}}},
};

}  // namespace

std::span<const OpDef> ConvOhwiOps() {
  return kConvOhwiOps;
}

}  // namespace sluice
