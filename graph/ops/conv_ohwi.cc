// Convolutions whose filter is OHWI, and what brings filters from one layout
// into the other. passes::TurnFilters makes these nodes for devices that like
// it, and passes::FuseStatistics the one with sums, after gradients were taken,
// so they have none of their own.
#include <fmt/format.h>

#include "engine/semantics/filter_layout.h"
#include "graph/ops/conv_shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

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

Status ShapeWithSums(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(ConvShape(c));
  const Shape channels = {c.output(0)[3]};
  c.SetOutput(1, channels);
  c.SetOutput(2, channels);
  return {};
}

// Probes are those of the ops with HWIO filters, turned.
constexpr FixedList<Probe, 6> kForwardProbes = {
    {.inputs = {{.shape = {2, 7, 6, 4}}, {.shape = {6, 3, 2, 2}}},
     .attrs = kStrided},
    {.inputs = {{.shape = {1, 5, 6, 3}}, {.shape = {4, 3, 2, 3}}},
     .attrs = kDilated},
    {.inputs = {{.shape = {3, 4, 5, 3}}, {.shape = {4, 1, 1, 3}}}}};

constexpr OpDef kConvOhwiOps[] = {
    {.name = "OhwiConv2D",
     .doc = "Conv2D with an OHWI filter.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"filter"}},
     .attrs = kConvAttrs,
     .shape = ConvShape,
     .gradient = NotDifferentiable,
     .conv = {.ohwi = true},
     .with_sums = "OhwiConv2DWithSums",
     .multiply_adds = ConvMultiplyAdds,
     .probes = kForwardProbes},
    {.name = "OhwiConv2DWithSums",
     .doc = "OhwiConv2D, and of each channel of y the sum and that of the "
            "squares.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}, {"filter"}},
     .outputs = {{"y"}, {"sum", kComputeOfT}, {"squares", kComputeOfT}},
     .attrs = kConvAttrs,
     .shape = ShapeWithSums,
     .gradient = NotDifferentiable,
     .conv = {.ohwi = true},
     .multiply_adds = ConvMultiplyAdds,
     // The last is of those that libraries can sum.
     .probes = {kForwardProbes[0],
                kForwardProbes[1],
                kForwardProbes[2],
                {.inputs = {{.shape = {2, 7, 6, 16}},
                            {.shape = {8, 3, 3, 16}}}}}},
    {.name = "OhwiConv2DBackpropInput",
     .doc = "Conv2DBackpropInput with an OHWI filter.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"dy"}, {"filter"}, {"x_shape", "int64"}},
     .outputs = {{"dx"}},
     .attrs = kConvAttrs,
     .shape = ConvBackpropInputShape,
     .gradient = NotDifferentiable,
     .conv = {.pass = ConvPass::kInput, .ohwi = true},
     .multiply_adds = ConvInputMultiplyAdds,
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
     .shape = ConvBackpropFilterShape,
     .gradient = NotDifferentiable,
     .conv = {.pass = ConvPass::kFilter, .ohwi = true},
     .multiply_adds = ConvFilterMultiplyAdds,
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
