// The kernels of batch normalisation, plain and fused.
#include "kernels/cuda/ops/norm/batch_norm.h"

#include "kernels/cuda/runtime/kernels.h"

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

// An op with a ReLU has a mask as its last output; an addend is input 5; sums
// are the last two inputs.
enum class Statistics : uint8_t { kOfBatch, kBySums, kVariance, kInverse };
template <Statistics statistics>
Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  constexpr bool kSums = statistics == Statistics::kBySums;
  constexpr bool kTraining = kSums || statistics == Statistics::kOfBatch;
  const int operands = static_cast<int>(spec.inputs.size()) - (kSums ? 2 : 0);
  constexpr int kMask = kTraining ? 5 : 1;
  const BatchNormShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return KernelOf(
      [shape,
       launch =
           kTraining ? FindBatchNorm(dtype) : FindBatchNormInference(dtype),
       relu = spec.outputs.size() > kMask, operands](const KernelContext& c) {
        BatchNormOperands o;
        o.x = c.input<void>(0);
        o.scale = c.input<void>(1);
        o.offset = c.input<void>(2);
        o.running_mean = c.input<void>(3);
        (statistics == Statistics::kInverse ? o.given_inv_std
                                            : o.running_variance) =
            c.input<void>(4);
        if (operands > 5) o.addend = c.input<void>(5);
        if (kSums) {
          o.sum = c.input<void>(operands);
          o.squares = c.input<void>(operands + 1);
        }
        o.y = c.output<void>(0);
        if (kTraining) {
          o.mean = c.output<void>(1);
          o.inv_std = c.output<void>(2);
          o.new_mean = c.output<void>(3);
          o.new_variance = c.output<void>(4);
        }
        if (relu) o.mask = c.output<uint8_t>(kMask);
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
    RegisterOwn(table, op, kFloating, MakeForward<Statistics::kOfBatch>);
  }
  for (const char* op :
       {"BatchNormBySums", "BatchNormReluBySums", "BatchNormAddReluBySums"}) {
    RegisterOwn(table, op, kFloating, MakeForward<Statistics::kBySums>);
  }
  RegisterOwn(table, "BatchNormInference", kFloating,
              MakeForward<Statistics::kVariance>);
  for (const char* op :
       {"BatchNormApply", "BatchNormApplyRelu", "BatchNormApplyAddRelu"}) {
    RegisterOwn(table, op, kFloating, MakeForward<Statistics::kInverse>);
  }
  RegisterOwn(table, "BatchNormGrad", kFloating, MakeGradient<false>);
  for (const char* op : {"BatchNormReluGrad", "BatchNormAddReluGrad"}) {
    RegisterOwn(table, op, kFloating, MakeGradient<true>);
  }
}

}  // namespace sluice::cuda
