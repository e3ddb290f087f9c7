// Kernels that move tensors in, out of and within a step.
#include <cstring>

#include "engine/runtime/rendezvous.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// The rendezvous slot of the node's key, given by lowering.
int Slot(const KernelSpec& spec) {
  return static_cast<int>(spec.attrs.Int("slot"));
}

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
  table.Register({.op = "Send", .make = [](const KernelSpec& spec) {
                    return Result<KernelPtr>(
                        KernelOf([slot = Slot(spec)](const KernelContext& c) {
                          return c.step().rendezvous->Send(slot,
                                                           c.input<char>(0));
                        }));
                  }});
  table.Register({.op = "Recv", .make = [](const KernelSpec& spec) {
                    return Result<KernelPtr>(
                        KernelOf([slot = Slot(spec)](const KernelContext& c) {
                          return c.step().rendezvous->Recv(slot,
                                                           c.output<char>(0));
                        }));
                  }});
}

}  // namespace sluice::cpu
