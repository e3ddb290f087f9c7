// The kernels of pooling.
#include "kernels/cuda/ops/conv/pool.h"

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Result<KernelPtr> MakePool(const KernelSpec& spec, const Shape& x) {
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  SLUICE_ASSIGN_OR_RETURN(const Window2D w,
                          WindowOf(spec.attrs, x, window[0], window[1]));
  const PoolShape shape = {x[0], x[3], w.h, w.w};
  const PoolLauncher launch = FindPool(spec.op, spec.inputs[0].dtype);
  const bool three = spec.inputs.size() == 3;
  return KernelOf([launch, shape, three](const KernelContext& c) {
    return launch(shape, c.input<void>(0), three ? c.input<void>(1) : nullptr,
                  three ? c.input<void>(2) : nullptr, c.output<void>(0),
                  StreamOf(c));
  });
}

}  // namespace

void RegisterPoolKernels(KernelTable& table) {
  for (const char* op :
       {"MaxPool", "MaxPoolGrad", "MaxPoolGradGrad", "AvgPool"}) {
    RegisterOwn(table, op, kFloating, [](const KernelSpec& spec) {
      return MakePool(spec, spec.inputs[0].shape);
    });
  }
  // Is given no x, but its shape.
  RegisterOwn(table, "AvgPoolGrad", kFloating, [](const KernelSpec& spec) {
    return MakePool(spec, spec.outputs[0].shape);
  });
}

}  // namespace sluice::cuda
