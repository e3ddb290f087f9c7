// The kernels of random tensors and of dropout. The step's key is read in
// device memory when they run.
#include "kernels/cuda/ops/random.h"

#include "engine/semantics/random.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Result<KernelPtr> MakeDraw(const KernelSpec& spec) {
  const bool uniform = spec.attrs.Has("lo");
  const Number a = spec.attrs.NumberOf(uniform ? "lo" : "mean");
  const Number b = spec.attrs.NumberOf(uniform ? "hi" : "stddev");
  const DrawParams params = {
      HashName(spec.origin), a.real(),    b.real(),
      a.integer(),           b.integer(), spec.attrs.Int("first")};
  const int64_t n = spec.outputs[0].shape.elements();
  const DrawLauncher launch = FindDraw(spec.op, spec.outputs[0].dtype);
  return KernelOf([launch, params, n](const KernelContext& c) {
    return launch(params, c.step().device_key, c.output<void>(0), n,
                  StreamOf(c));
  });
}

Result<KernelPtr> MakeDropout(const KernelSpec& spec) {
  const DropoutParams params = {HashName(spec.origin),
                                spec.attrs.Float("rate")};
  const int64_t n = spec.inputs[0].shape.elements();
  const DropoutLauncher launch = FindDropout(spec.inputs[0].dtype);
  return KernelOf([launch, params, n](const KernelContext& c) {
    return launch(params, c.step().device_key, c.input<void>(0),
                  c.output<void>(0), c.output<bool>(1), n, StreamOf(c));
  });
}

Result<KernelPtr> MakeDropoutGrad(const KernelSpec& spec) {
  const double rate = spec.attrs.Float("rate");
  const int64_t n = spec.inputs[0].shape.elements();
  const DropoutGradLauncher launch = FindDropoutGrad(spec.inputs[0].dtype);
  return KernelOf([launch, rate, n](const KernelContext& c) {
    return launch(rate, c.input<void>(0), c.input<bool>(1), c.output<void>(0),
                  n, StreamOf(c));
  });
}

}  // namespace

void RegisterRandomKernels(KernelTable& table) {
  for (const char* op : {"RandomUniform", "RandomNormal", "TruncatedNormal"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .provider = "own",
                    .make = MakeDraw});
  }
  table.Register({.op = "Dropout",
                  .device = DeviceType::kCuda,
                  .provider = "own",
                  .dtypes = kFloating,
                  .make = MakeDropout});
  table.Register({.op = "DropoutGrad",
                  .device = DeviceType::kCuda,
                  .provider = "own",
                  .dtypes = kFloating,
                  .make = MakeDropoutGrad});
}

}  // namespace sluice::cuda
