// Every CPU kernel of an op, on given inputs.
#ifndef SLUICE_TESTS_SUPPORT_EACH_KERNEL_H_
#define SLUICE_TESTS_SUPPORT_EACH_KERNEL_H_

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/graph.h"
#include "tests/support/kernel_run.h"

namespace sluice::testing {

// Calls check(results) for every kernel of the op.
template <typename Check>
void ForEachKernel(const std::string& op, const Attributes& attrs,
                   const std::vector<Tensor>& inputs, const Check& check) {
  Graph graph;
  NodeRequest request{op, {}, attrs};
  for (const Tensor& x : inputs) {
    request.inputs.emplace_back(graph.Placeholder("x", x.dtype(), x.shape()));
  }
  const KernelSpec spec = SpecOf(graph.Add(std::move(request)), false);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    CAPTURE(op);
    CAPTURE(def->provider);
    check(RunKernel(*def, spec, inputs));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_EACH_KERNEL_H_
