// Kernels that move tensors out of and within a step.
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Status Copy(void* to, const void* from, size_t bytes, const KernelContext& c) {
  if (bytes == 0) return {};
  return Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(c)),
               "copy");
}

Result<KernelPtr> MakeCopy(const KernelSpec& spec) {
  return KernelOf([bytes = spec.inputs[0].bytes()](const KernelContext& c) {
    return Copy(c.output<void>(0), c.input<void>(0), bytes, c);
  });
}

}  // namespace

void RegisterControlKernels(KernelTable& table) {
  const auto add = [&](const char* op,
                       Result<KernelPtr> (*make)(const KernelSpec& spec)) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .provider = "own",
                    .make = make});
  };
  add("Copy", MakeCopy);
  add("Fetch", MakeCopy);
}

}  // namespace sluice::cuda
