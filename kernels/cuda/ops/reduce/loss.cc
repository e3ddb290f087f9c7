// The kernels of the losses and their gradients.
#include "kernels/cuda/ops/reduce/loss.h"

#include "engine/semantics/index_error.h"
#include "kernels/cuda/ops/array/index_report.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

CrossEntropyShape ShapeOf(const KernelSpec& spec) {
  const Shape& logits = spec.inputs[0].shape;
  return {logits.elements(0, logits.rank() - 1), logits[-1],
          spec.attrs.Float("label_smoothing")};
}

using OperandsOf = CrossEntropyOperands (*)(const KernelContext& c);

Result<KernelPtr> MakeCrossEntropy(const KernelSpec& spec,
                                   OperandsOf operands) {
  const CrossEntropyShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  const auto run = [=](CrossEntropyLauncher launch, const KernelContext& c,
                       BadIndex* bad) {
    CrossEntropyOperands o = operands(c);
    o.bad = bad;
    return launch(shape, o, StreamOf(c));
  };
  if (!IsInteger(spec.inputs[1].dtype)) {
    return KernelOf(
        [run, launch = FindCrossEntropy(dtype)](const KernelContext& c) {
          return run(launch, c, nullptr);
        });
  }
  return CheckingKernelOf(
      [classes = shape.classes](std::string_view label, int64_t row) {
        return LabelOutOfRange(label, row, classes);
      },
      [run, launch = FindSparseCrossEntropy(dtype, spec.inputs[1].dtype)](
          const KernelContext& c, BadIndex* bad) {
        return run(launch, c, bad);
      });
}

Result<KernelPtr> MakeLoss(const KernelSpec& spec) {
  return MakeCrossEntropy(spec, [](const KernelContext& c) {
    CrossEntropyOperands o;
    o.logits = c.input<void>(0);
    o.labels = c.input<void>(1);
    o.loss = c.output<void>(0);
    o.max_out = c.output<void>(1);
    o.scale_out = c.output<void>(2);
    return o;
  });
}

Result<KernelPtr> MakeGrad(const KernelSpec& spec) {
  return MakeCrossEntropy(spec, [](const KernelContext& c) {
    CrossEntropyOperands o;
    o.logits = c.input<void>(0);
    o.labels = c.input<void>(1);
    o.max = c.input<void>(2);
    o.scale = c.input<void>(3);
    o.dloss = c.input<void>(4);
    o.dlogits = c.output<void>(0);
    return o;
  });
}

Result<KernelPtr> MakeLossWithGrad(const KernelSpec& spec) {
  return MakeCrossEntropy(spec, [](const KernelContext& c) {
    CrossEntropyOperands o;
    o.logits = c.input<void>(0);
    o.labels = c.input<void>(1);
    o.dloss = c.input<void>(2);
    o.loss = c.output<void>(0);
    o.max_out = c.output<void>(1);
    o.scale_out = c.output<void>(2);
    o.dlogits = c.output<void>(3);
    return o;
  });
}

Result<KernelPtr> MakeSigmoidCrossEntropy(const KernelSpec& spec) {
  const Shape& logits = spec.inputs[0].shape;
  const Shape shapes[] = {logits, logits};
  return KernelOf([shape = BroadcastOf(logits, shapes),
                   launch = FindSigmoidCrossEntropy(spec.inputs[0].dtype)](
                      const KernelContext& c) {
    return launch(c.input<void>(0), c.input<void>(1), c.output<void>(0), shape,
                  {}, StreamOf(c));
  });
}

}  // namespace

void RegisterLossKernels(KernelTable& table) {
  for (const char* op : {"SoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy"}) {
    RegisterOwn(table, op, kFloating, MakeLoss);
  }
  for (const char* op :
       {"SoftmaxCrossEntropyGrad", "SparseSoftmaxCrossEntropyGrad"}) {
    RegisterOwn(table, op, kFloating, MakeGrad);
  }
  for (const char* op :
       {"SoftmaxCrossEntropyWithGrad", "SparseSoftmaxCrossEntropyWithGrad"}) {
    RegisterOwn(table, op, kFloating, MakeLossWithGrad);
  }
  RegisterOwn(table, "SigmoidCrossEntropy", kFloating, MakeSigmoidCrossEntropy);
}

}  // namespace sluice::cuda
