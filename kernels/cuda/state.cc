// The kernels of writes to variables.
#include "kernels/cuda/state.h"

#include "kernels/cuda/kernels.h"

namespace sluice::cuda {
namespace {

// The operand `apply`, which may be absent.
const bool* Apply(const KernelContext& c, bool conditional) {
  return conditional ? c.input<bool>(2) : nullptr;
}

Result<KernelPtr> MakeAssign(const KernelSpec& spec) {
  return KernelOf(
      [bytes = spec.inputs[0].bytes(),
       conditional = spec.inputs.size() > 2](const KernelContext& c) {
        return AssignBytes(Apply(c, conditional), c.input<void>(1),
                           c.mutable_input<void>(0), bytes, StreamOf(c));
      });
}

template <int sign>
Result<KernelPtr> MakeAccumulate(const KernelSpec& spec) {
  return KernelOf(
      [launch = FindAccumulate(spec.inputs[0].dtype),
       n = spec.inputs[0].shape.elements(),
       conditional = spec.inputs.size() > 2](const KernelContext& c) {
        return launch(Apply(c, conditional), sign, c.input<void>(1),
                      c.mutable_input<void>(0), n, StreamOf(c));
      });
}

}  // namespace

void RegisterStateKernels(KernelTable& table) {
  RegisterOwn(table, "Assign", kAnyType, MakeAssign);
  RegisterOwn(table, "AssignAdd", kNumeric, MakeAccumulate<1>);
  RegisterOwn(table, "AssignSub", kNumeric, MakeAccumulate<-1>);
}

}  // namespace sluice::cuda
