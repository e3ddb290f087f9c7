// The kernels of layer normalisation.
#include "kernels/cuda/ops/norm/layer_norm.h"

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

LayerNormShape ShapeOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  LayerNormShape shape = {x.elements(0, x.rank() - 1), x[-1]};
  if (spec.attrs.Has("epsilon")) shape.epsilon = spec.attrs.Float("epsilon");
  return shape;
}

Result<KernelPtr> MakeLayerNorm(const KernelSpec& spec) {
  return KernelOf(
      [shape = ShapeOf(spec),
       launch = FindLayerNorm(spec.inputs[0].dtype)](const KernelContext& c) {
        LayerNormOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.offset = c.input<void>(2);
        o.y = c.output<void>(0);
        o.mean = c.output<void>(1);
        o.inv_std = c.output<void>(2);
        return launch(shape, o, StreamOf(c));
      });
}

Result<KernelPtr> MakeLayerNormGrad(const KernelSpec& spec) {
  const LayerNormShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return KernelOf(
      [shape, launch = FindLayerNormGrad(dtype)](const KernelContext& c) {
        LayerNormGradOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.mean = c.input<void>(2);
        o.inv_std = c.input<void>(3);
        o.dy = c.input<void>(4);
        o.dx = c.output<void>(0);
        o.dscale = c.output<void>(1);
        o.doffset = c.output<void>(2);
        o.workspace = c.workspace();
        return launch(shape, o, StreamOf(c));
      },
      LayerNormGradWorkspace(shape, dtype));
}

}  // namespace

void RegisterLayerNormKernels(KernelTable& table) {
  RegisterOwn(table, "LayerNorm", kFloating, MakeLayerNorm);
  RegisterOwn(table, "LayerNormGrad", kFloating, MakeLayerNormGrad);
}

}  // namespace sluice::cuda
