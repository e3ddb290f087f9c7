// Our own kernels of the convolutions.
#include "kernels/cuda/ops/conv/conv.h"

#include "engine/semantics/product.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {

bool IsServedConv(const KernelSpec& spec) {
  const Result<ConvGeometry> geometry = ConvGeometryOf(spec);
  if (!geometry.ok()) return false;
  for (const WindowDim& d : {geometry->h, geometry->w}) {
    // No position is beyond it, nor are there more windows.
    if (d.pad_before + d.input + d.pad_after >= kMaxProductSize) return false;
  }
  return IsServed(ConvProductOf(*geometry, spec.conv.pass));
}

ProductShape ConvProductOf(const ConvGeometry& g, ConvPass pass) {
  const int64_t y_pixels = g.images * g.h.output * g.w.output;
  ProductShape shape;
  shape.batch = {.elements = g.groups,
                 .rank = 1,
                 .dims = {g.groups},
                 .strides = {{1}, {1}}};
  switch (pass) {
    case ConvPass::kForward:
      shape.m = y_pixels;
      shape.n = g.out;
      shape.k = g.taps() * g.in;
      shape.a_step = g.in;
      shape.b_step = shape.c_step = g.out;
      shape.c_pitch = g.y_channels();
      break;
    case ConvPass::kInput:
      shape.m = g.images * g.h.input * g.w.input;
      shape.n = g.in;
      shape.k = g.taps() * g.out;
      shape.a_step = shape.b_step = g.out;
      shape.c_step = g.in;
      shape.c_pitch = g.x_channels();
      break;
    case ConvPass::kFilter:
      shape.m = g.taps() * g.in;
      shape.n = g.out;
      shape.k = y_pixels;
      shape.a_step = g.in;
      shape.b_step = shape.c_step = g.out;
      shape.c_pitch = g.y_channels();
      break;
  }
  return shape;
}

Result<KernelPtr> MakeConv(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometryOf(spec));
  const DType dtype = spec.inputs[0].dtype;
  const ConvPass pass = spec.conv.pass;
  const int added =
      pass == ConvPass::kForward ? static_cast<int>(spec.inputs.size()) - 2 : 0;
  return KernelOf(
      [launch = FindConv(pass, dtype), geometry, added,
       relu = HasRelu(spec)](const KernelContext& c) {
        Epilogue epilogue{.bias_step = geometry.out, .relu = relu};
        if (added > 0) epilogue.bias = c.input<void>(2);
        if (added > 1) epilogue.addend = c.input<void>(3);
        return launch(geometry, c.input<void>(0), c.input<void>(1),
                      c.output<void>(0), epilogue, c.workspace(), StreamOf(c));
      },
      ProductWorkspace(ConvProductOf(geometry, pass), dtype));
}

void RegisterConvKernels(KernelTable& table) {
  RegisterConvOhwiKernels(table);
  for (const char* op :
       {"Conv2D", "Conv2DBias", "Conv2DBiasAdd", "Conv2DBackpropInput",
        "Conv2DBackpropFilter", "DepthwiseConv2D",
        "DepthwiseConv2DBackpropInput", "DepthwiseConv2DBackpropFilter"}) {
    RegisterOwn(table, op, kFloating, MakeConv, IsServedConv);
  }
}

}  // namespace sluice::cuda
