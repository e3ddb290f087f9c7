// What tests that walk the table of ops share.
#ifndef SLUICE_TESTS_SUPPORT_OP_CHECK_H_
#define SLUICE_TESTS_SUPPORT_OP_CHECK_H_

#include <algorithm>

#include "graph/evaluate.h"
#include "tests/support/op_probe.h"

namespace sluice::testing {

// Allowed difference from a result of wider type, relative to the largest.
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

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OP_CHECK_H_
