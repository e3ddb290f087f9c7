// What tests that walk the table of ops share.
#ifndef SLUICE_TESTS_SUPPORT_OP_CHECK_H_
#define SLUICE_TESTS_SUPPORT_OP_CHECK_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/compile/evaluate.h"
#include "tests/support/guarded_run.h"
#include "tests/support/op_probe.h"

namespace sluice::testing {

// Allowed difference from a result of wider type, relative to it.
inline double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-11;
    case DType::kFloat32:
      return 2e-5;
    case DType::kFloat16:
      return 5e-3;
    case DType::kBFloat16:
      return 3e-2;
    default:
      return 0;
  }
}

inline double Tolerance(const KernelSpec& spec) {
  double tolerance = 0;
  for (const auto* types : {&spec.inputs, &spec.outputs}) {
    for (const TensorType& type : *types) {
      tolerance = std::max(tolerance, Tolerance(type.dtype));
    }
  }
  return tolerance;
}

// How close a kernel's results come to what is wanted: by the results' own
// magnitude, of each where the op is elementwise. Where terms cancel it is the
// terms' magnitude that counts, since each of them is rounded: a few epsilons
// of what is computed in, float32 for halves, times the largest operand. No
// more than the tolerance itself, though: what takes large operands (softmax
// far from 0) shifts them before it rounds.
inline Allowance AllowanceFor(const KernelSpec& spec,
                              const std::vector<Tensor>& inputs) {
  constexpr double kEpsilons = 16;
  const double tolerance = Tolerance(spec);
  const double epsilon =
      tolerance > Tolerance(DType::kFloat64) ? 0x1p-23 : 0x1p-52;
  double largest = 0;
  for (const Tensor& input : inputs) {
    if (!IsFloating(input.dtype())) continue;
    for (int64_t i = 0; i < input.elements(); ++i) {
      const double x = std::abs(input.At(i));
      if (std::isfinite(x)) largest = std::max(largest, x);
    }
  }
  return {.relative = tolerance,
          .absolute = std::min(tolerance, kEpsilons * epsilon * largest),
          .each = OpTable::Global().Get(spec.op).elementwise};
}

// Another case than the probe itself, with the results of the CPU's reference.
struct OtherCase {
  std::string what;
  ProbeCase c;
  KernelSpec spec;
  std::vector<Tensor> wanted;
};

// Adds what make() returns, unless the op or its reference refuses it.
template <typename Make>
void AddCase(std::string what, Make make, std::vector<OtherCase>* cases) {
  OtherCase made{std::move(what)};
  try {
    made.c = make();
  } catch (const Error&) {
    return;
  }
  made.spec = SpecOf(*made.c.node, /*deterministic=*/false);
  const auto kernels =
      KernelTable::Global().FindAll(made.spec, DeviceType::kCpu);
  if (kernels.empty()) return;
  const KernelPtr reference = kernels.back()->make(made.spec).ValueOrThrow();
  const GuardedRunResult run =
      GuardedRun(*reference, made.spec, made.c.values, made.c.node->mutates());
  if (run.refused) return;
  made.wanted = run.tensors;
  cases->push_back(std::move(made));
}

// The probe without elements somewhere, as Resized(op, probe, 0): an index may
// have nothing left to point at, which is refused.
inline std::vector<OtherCase> EmptiedCases(const OpDef& op, const Probe& probe,
                                           const TypeBinding& binding) {
  std::vector<OtherCase> cases;
  for (const auto& [what, emptied] : Resized(op, probe, 0)) {
    AddCase(
        what, [&, &e = emptied] { return MakeProbeCase(op, e, binding); },
        &cases);
  }
  return cases;
}

// The probe with more operands than a launch on a GPU takes, if the op takes
// any number.
inline std::vector<OtherCase> ManyCases(const OpDef& op, const Probe& probe,
                                        const TypeBinding& binding) {
  std::vector<OtherCase> cases;
  if (VariadicInput(op) < 0) return cases;
  AddCase(
      "many", [&] { return MakeManyCase(op, probe, binding, 260); }, &cases);
  return cases;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OP_CHECK_H_
