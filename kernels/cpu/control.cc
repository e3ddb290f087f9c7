// Kernels that move tensors out of and within a step.
#include <cstring>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

Result<KernelPtr> MakeCopy(const KernelSpec& spec) {
  const size_t bytes = spec.inputs[0].bytes();
  return KernelOf([bytes](const KernelContext& c) {
    if (bytes == 0) return;
    std::memcpy(c.output<char>(0), c.input<char>(0), bytes);
  });
}

}  // namespace

void RegisterControlKernels(KernelTable& table) {
  table.Register({.op = "Copy", .make = MakeCopy});
  table.Register({.op = "Fetch", .make = MakeCopy});
}

}  // namespace sluice::cpu
