// A dataset whose examples tell where they come from.
#ifndef SLUICE_TESTS_SUPPORT_NUMBERS_H_
#define SLUICE_TESTS_SUPPORT_NUMBERS_H_

#include <cstdint>

#include "io/sources/datasets.h"

namespace sluice::testing {

// Examples {"x": 0}, {"x": 1}, ..., int64 [].
inline Dataset Numbers(int64_t n) {
  Tensor x(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) x.data<int64_t>()[i] = i;
  return datasets::FromTensors({{"x", x}}, "numbers");
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_NUMBERS_H_
