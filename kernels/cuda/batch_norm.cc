// The kernels of batch normalisation, plain and fused.
#include "kernels/cuda/batch_norm.h"

#include "kernels/cuda/kernels.h"

namespace sluice::cuda {
namespace {

BatchNormShape ShapeOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  BatchNormShape shape = {x.elements(0, x.rank() - 1), x[-1]};
  if (spec.attrs.Has("epsilon")) shape.epsilon = spec.attrs.Float("epsilon");
  if (spec.attrs.Has("momentum")) {
    shape.momentum = spec.attrs.Float("momentum");
  }
  return shape;
}

// Of an op that has a ReLU's mask, which is output 5, or an addend, input 5.
Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  const BatchNormShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return KernelOf(
      [shape, launch = FindBatchNorm(dtype), relu = spec.outputs.size() > 5,
       add = spec.inputs.size() > 5](const KernelContext& c) {
        BatchNormOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.offset = c.input<void>(2);
        o.running_mean = c.input<void>(3);
        o.running_variance = c.input<void>(4);
        if (add) o.addend = c.input<void>(5);
        o.y = c.output<void>(0);
        o.mean = c.output<void>(1);
        o.inv_std = c.output<void>(2);
        o.new_mean = c.output<void>(3);
        o.new_variance = c.output<void>(4);
        if (relu) o.mask = c.output<uint8_t>(5);
        o.workspace = c.workspace();
        return launch(shape, o, StreamOf(c));
      },
      BatchNormWorkspace(shape, dtype));
}

Result<KernelPtr> MakeInference(const KernelSpec& spec) {
  const BatchNormShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return KernelOf(
      [shape, launch = FindBatchNormInference(dtype)](const KernelContext& c) {
        BatchNormOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.offset = c.input<void>(2);
        o.running_mean = c.input<void>(3);
        o.running_variance = c.input<void>(4);
        o.y = c.output<void>(0);
        o.workspace = c.workspace();
        return launch(shape, o, StreamOf(c));
      },
      BatchNormWorkspace(shape, dtype));
}

// The fused ops have a mask before dy, and dy may be a sum of two terms.
template <bool relu>
Result<KernelPtr> MakeGradient(const KernelSpec& spec) {
  const BatchNormShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  constexpr int kDy = relu ? 5 : 4;
  return KernelOf(
      [shape, launch = FindBatchNormGrad(dtype),
       two_terms = spec.inputs.size() > kDy + 1,
       add = spec.outputs.size() > 3](const KernelContext& c) {
        BatchNormGradOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.mean = c.input<void>(2);
        o.inv_std = c.input<void>(3);
        if (relu) o.mask = c.input<uint8_t>(4);
        o.dy = c.input<void>(kDy);
        if (two_terms) o.dy2 = c.input<void>(kDy + 1);
        o.dx = c.output<void>(0);
        o.dscale = c.output<void>(1);
        o.doffset = c.output<void>(2);
        if (add) o.g = c.output<void>(3);
        o.workspace = c.workspace();
        return launch(shape, o, StreamOf(c));
      },
      BatchNormWorkspace(shape, dtype));
}

}  // namespace

void RegisterBatchNormKernels(KernelTable& table) {
  for (const char* op : {"BatchNorm", "BatchNormRelu", "BatchNormAddRelu"}) {
    RegisterOwn(table, op, kFloating, MakeForward);
  }
  RegisterOwn(table, "BatchNormInference", kFloating, MakeInference);
  RegisterOwn(table, "BatchNormGrad", kFloating, MakeGradient<false>);
  for (const char* op : {"BatchNormReluGrad", "BatchNormAddReluGrad"}) {
    RegisterOwn(table, op, kFloating, MakeGradient<true>);
  }
}

}  // namespace sluice::cuda
