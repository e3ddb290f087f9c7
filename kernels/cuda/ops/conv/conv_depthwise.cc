// The kernels of depthwise convolutions, and of those that are so in fact.
#include "kernels/cuda/ops/conv/conv_depthwise.h"

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

bool IsDepthwise(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  return g.ok() && g->in == 1 && g->groups > 1;
}

Result<KernelPtr> MakeDepthwise(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometryOf(spec));
  const DType dtype = spec.inputs[0].dtype;
  const ConvPass pass = spec.conv.pass;
  return KernelOf(
      [geometry, launch = FindDepthwise(pass, dtype)](const KernelContext& c) {
        return launch(geometry, c.input<void>(0), c.input<void>(1),
                      c.output<void>(0), c.workspace(), StreamOf(c));
      },
      DepthwiseWorkspace(geometry, pass, dtype));
}

}  // namespace

// Above the products of conv.cc, which have a row or column each here.
void RegisterDepthwiseConvKernels(KernelTable& table) {
  for (const char* op :
       {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
        "DepthwiseConv2D", "DepthwiseConv2DBackpropInput",
        "DepthwiseConv2DBackpropFilter"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .priority = 10,
                    .provider = "depthwise",
                    .supports = IsDepthwise,
                    .dtypes = kFloating,
                    .make = MakeDepthwise});
  }
}

}  // namespace sluice::cuda
