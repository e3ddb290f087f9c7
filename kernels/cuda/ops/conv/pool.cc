// The kernels of pooling.
#include "kernels/cuda/ops/conv/pool.h"

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Result<PoolShape> ShapeOf(const KernelSpec& spec, const Shape& x) {
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  SLUICE_ASSIGN_OR_RETURN(const Window2D w,
                          WindowOf(spec.attrs, x, window[0], window[1]));
  return PoolShape{x[0], x[3], w.h, w.w};
}

// Of an op with so many operands that are no shape.
Result<KernelPtr> MakePool(const KernelSpec& spec, const Shape& x,
                           int operands) {
  SLUICE_ASSIGN_OR_RETURN(const PoolShape shape, ShapeOf(spec, x));
  const PoolLauncher launch = FindPool(spec.op, spec.inputs[0].dtype);
  return KernelOf([=](const KernelContext& c) {
    const auto operand = [&](int i) {
      return i < operands ? c.input<void>(i) : nullptr;
    };
    return launch(shape, operand(0), operand(1), operand(2), c.output<void>(0),
                  StreamOf(c));
  });
}

}  // namespace

void RegisterPoolKernels(KernelTable& table) {
  for (const char* op :
       {"MaxPool", "MaxPoolGrad", "MaxPoolGradGrad", "AvgPool"}) {
    RegisterOwn(table, op, kFloating, [](const KernelSpec& spec) {
      return MakePool(spec, spec.inputs[0].shape,
                      static_cast<int>(spec.inputs.size()));
    });
  }
  // Are given no x, but its shape, as the last operand.
  for (const char* op : {"MaxPoolGradWithArgmax", "AvgPoolGrad"}) {
    RegisterOwn(table, op, kFloating, [](const KernelSpec& spec) {
      return MakePool(spec, spec.outputs[0].shape,
                      static_cast<int>(spec.inputs.size()) - 1);
    });
  }
  RegisterOwn(table, "MaxPoolWithArgmax", kFloating,
              [](const KernelSpec& spec) -> Result<KernelPtr> {
                SLUICE_ASSIGN_OR_RETURN(const PoolShape shape,
                                        ShapeOf(spec, spec.inputs[0].shape));
                const auto launch = FindMaxPoolWithArgmax(spec.inputs[0].dtype);
                return KernelOf([=](const KernelContext& c) {
                  return launch(shape, c.input<void>(0), c.output<void>(0),
                                c.output<uint8_t>(1), StreamOf(c));
                });
              });
}

}  // namespace sluice::cuda
