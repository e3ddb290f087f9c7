// The kernels of writes to variables.
#include "kernels/cuda/ops/state.h"

#include <vector>

#include "engine/semantics/assigned_rows.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// The operand `apply`, which may be absent.
const bool* Apply(const KernelContext& c, bool conditional) {
  return conditional ? c.input<bool>(2) : nullptr;
}

Result<KernelPtr> MakeAssign(const KernelSpec& spec) {
  return KernelOf([bytes = spec.inputs[1].bytes(),
                   begin = FirstAssigned(spec.attrs, spec.inputs[0]),
                   conditional =
                       spec.inputs.size() > 2](const KernelContext& c) {
    return AssignBytes(Apply(c, conditional), c.input<void>(1),
                       c.mutable_input<char>(0) + begin, bytes, StreamOf(c));
  });
}

Result<KernelPtr> MakeAssignList(const KernelSpec& spec) {
  const int variables = static_cast<int>(spec.attrs.Int("variables"));
  std::vector<TensorType> bytes;
  for (int i = 0; i < variables; ++i) {
    bytes.push_back(
        {DType::kUInt8, {static_cast<int64_t>(spec.inputs[i].bytes())}});
  }
  return KernelOf([lists = ListsOf(bytes),
                   variables](const KernelContext& c) mutable -> Status {
    return LaunchLists(
        lists,
        [&](int i, ArrayList::Array& array) {
          array.from = c.input<void>(variables + i);
          array.to = c.mutable_input<void>(i);
        },
        [&](const ArrayList& list) {
          return AssignListed(c.input<bool>(2 * variables), list, StreamOf(c));
        });
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
  RegisterOwn(table, "AssignList", kAnyType, MakeAssignList);
  RegisterOwn(table, "AssignAdd", kNumeric, MakeAccumulate<1>);
  RegisterOwn(table, "AssignSub", kNumeric, MakeAccumulate<-1>);
}

}  // namespace sluice::cuda
