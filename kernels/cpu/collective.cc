// Ops in which the steps of all workers meet.
#include "engine/runtime/collective.h"

#include <cstring>
#include <memory>
#include <string_view>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Of what is reduced in place, at once or until the wait for it has returned.
using Reduce = Status (Collective::*)(std::string_view name, DType dtype,
                                      void* data, int64_t count, Reduction how);

template <Reduce kReduce>
Result<KernelPtr> Make(const KernelSpec& spec) {
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
        return (workers->*kReduce)(name, type.dtype, result,
                                   type.shape.elements(), how);
      });
}

class AllReduceWait final : public Kernel {
 public:
  Status Run(const KernelContext& c) override {
    Collective* const workers = c.step().collective;
    if (workers == nullptr) return {};
    return workers->WaitAllReduce(c.input<char>(0));
  }
  bool Ready(const KernelContext& c, Waker& waker) override {
    Collective* const workers = c.step().collective;
    return workers == nullptr || workers->AllReduced(c.input<char>(0), waker);
  }
};

}  // namespace

void RegisterCollectiveKernels(KernelTable& table) {
  table.Register({.op = "AllReduce",
                  .dtypes = kFloating,
                  .make = Make<&Collective::AllReduce>});
  table.Register({.op = "AllReduceStart",
                  .dtypes = kFloating,
                  .make = Make<&Collective::StartAllReduce>});
  table.Register({.op = "AllReduceWait",
                  .dtypes = kFloating,
                  .make = [](const KernelSpec&) -> Result<KernelPtr> {
                    return KernelPtr(std::make_unique<AllReduceWait>());
                  }});
}

}  // namespace sluice::cpu
