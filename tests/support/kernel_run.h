// Single kernels on given inputs, and what they are compared with.
#ifndef SLUICE_TESTS_SUPPORT_KERNEL_RUN_H_
#define SLUICE_TESTS_SUPPORT_KERNEL_RUN_H_

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/guarded_run.h"

namespace sluice::testing {

// One kernel's results; checks that it stays inside its buffers, which hold
// `fill` before.
inline std::vector<Tensor> RunKernel(const KernelDef& def,
                                     const KernelSpec& spec,
                                     const std::vector<Tensor>& inputs,
                                     unsigned char fill = 0xcd) {
  const KernelPtr kernel = def.make(spec).ValueOrThrow();
  const GuardedRunResult run =
      GuardedRun(*kernel, spec, inputs, /*mutates=*/0, {.fill = fill});
  CHECK_MESSAGE(run.fault.empty(), run.fault);
  return run.tensors;
}

// What the reference kernel computes when every float32 is a float64.
inline std::vector<Tensor> Float64Reference(const KernelSpec& spec,
                                            const std::vector<Tensor>& inputs) {
  KernelSpec wide = spec;
  for (auto* types : {&wide.inputs, &wide.outputs}) {
    for (TensorType& type : *types) {
      if (type.dtype == DType::kFloat32) type.dtype = DType::kFloat64;
    }
  }
  std::vector<Tensor> wide_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    wide_inputs.push_back(inputs[i].Cast(wide.inputs[i].dtype));
  }
  return RunKernel(
      *KernelTable::Global().FindAll(wide, DeviceType::kCpu).back(), wide,
      wide_inputs);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_KERNEL_RUN_H_
