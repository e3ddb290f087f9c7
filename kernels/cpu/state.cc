// Writes to variables. The kernels move or add bytes; ordering against reads
// is the graph's business.
#include "engine/semantics/assigned_rows.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per piece of work

// Whether the operand `apply`, if there is one, says no.
bool Skips(const KernelContext& c, bool conditional) {
  return conditional && !*c.input<bool>(2);
}

Result<KernelPtr> MakeAssign(const KernelSpec& spec) {
  const size_t bytes = spec.inputs[1].bytes();
  const size_t begin = FirstAssigned(spec.attrs, spec.inputs[0]);
  const bool conditional = spec.inputs.size() > 2;
  return KernelOf([bytes, begin, conditional](const KernelContext& c) {
    if (Skips(c, conditional)) return;
    char* const variable = c.mutable_input<char>(0) + begin;
    if (bytes > 0 && variable != c.input<char>(1)) {
      CopyBytes(c.input<char>(1), variable, bytes);
    }
  });
}

Result<KernelPtr> MakeAssignList(const KernelSpec& spec) {
  std::vector<size_t> bytes;
  for (const TensorType& input : spec.inputs) bytes.push_back(input.bytes());
  bytes.resize(bytes.size() / 2);  // of variables
  return KernelOf([bytes](const KernelContext& c) {
    const int variables = static_cast<int>(bytes.size());
    if (!*c.input<bool>(2 * variables)) return;
    for (int i = 0; i < variables; ++i) {
      CopyBytes(c.input<char>(variables + i), c.mutable_input<char>(i),
                bytes[i]);
    }
  });
}

// variable = variable + sign * value.
Result<KernelPtr> MakeAccumulate(const KernelSpec& spec, int sign) {
  const int64_t n = spec.inputs[0].shape.elements();
  const bool conditional = spec.inputs.size() > 2;
  return DispatchDType(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        if constexpr (std::is_same_v<T, bool>) {
          return Unimplemented("cannot add to a bool variable");
        } else {
          return KernelOf([n, sign, conditional](const KernelContext& c) {
            if (Skips(c, conditional)) return;
            T* variable = c.mutable_input<T>(0);
            const T* value = c.input<T>(1);
            using C = ComputeType<T>;
            const C factor = static_cast<C>(sign);
            ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                variable[i] =
                    T(static_cast<C>(static_cast<C>(variable[i]) +
                                     factor * static_cast<C>(value[i])));
              }
            });
          });
        }
      });
}

}  // namespace

void RegisterStateKernels(KernelTable& table) {
  table.Register({.op = "Assign", .make = MakeAssign});
  table.Register({.op = "AssignList", .make = MakeAssignList});
  table.Register(
      {.op = "AssignAdd", .dtypes = kNumeric, .make = [](const KernelSpec& s) {
         return MakeAccumulate(s, 1);
       }});
  table.Register(
      {.op = "AssignSub", .dtypes = kNumeric, .make = [](const KernelSpec& s) {
         return MakeAccumulate(s, -1);
       }});
}

}  // namespace sluice::cpu
