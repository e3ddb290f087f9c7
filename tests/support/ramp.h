// A float32 tensor whose elements go up from a negative number, again and
// again, so that neighbours differ and signs do.
#ifndef SLUICE_TESTS_SUPPORT_RAMP_H_
#define SLUICE_TESTS_SUPPORT_RAMP_H_

#include "engine/tensor.h"

namespace sluice::testing {

inline Tensor Ramp(const Shape& shape) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.elements(); ++i) {
    t.data<float>()[i] = 0.1f * static_cast<float>(i % 17) - 0.7f;
  }
  return t;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RAMP_H_
