// The kernels of Softmax and LogSoftmax.
#include "kernels/cuda/ops/reduce/softmax.h"

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Result<KernelPtr> MakeSoftmax(const KernelSpec& spec) {
  const AxisForm shape = AxisFormOf(spec, 0);
  const SoftmaxLauncher launch = FindSoftmax(spec.op, spec.inputs[0].dtype);
  return KernelOf([launch, shape](const KernelContext& c) {
    return launch(c.input<void>(0), c.output<void>(0), shape, StreamOf(c));
  });
}

}  // namespace

void RegisterSoftmaxKernels(KernelTable& table) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    RegisterOwn(table, op, kFloating, MakeSoftmax);
  }
}

}  // namespace sluice::cuda
