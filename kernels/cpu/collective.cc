// Ops in which the steps of all workers meet.
#include "engine/runtime/collective.h"

#include <cstring>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

Result<KernelPtr> MakeAllReduce(const KernelSpec& spec) {
  const TensorType type = spec.inputs[0];
  const Reduction how =
      spec.attrs.Bool("mean") ? Reduction::kMean : Reduction::kSum;
  return KernelOf(
      [type, how, name = spec.origin](const KernelContext& c) -> Status {
        void* const result = c.output<char>(0);
        if (type.bytes() > 0 && result != c.input<char>(0)) {
          std::memcpy(result, c.input<char>(0), type.bytes());
        }
        Collective* const workers = c.step().collective;
        if (workers == nullptr) return {};
        return workers->AllReduce(name, type.dtype, result,
                                  type.shape.elements(), how);
      });
}

}  // namespace

void RegisterCollectiveKernels(KernelTable& table) {
  table.Register(
      {.op = "AllReduce", .dtypes = kFloating, .make = MakeAllReduce});
}

}  // namespace sluice::cpu
