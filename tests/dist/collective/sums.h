// What collectives are to give, by loops of their own.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_SUMS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_SUMS_H_

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist::testing {

inline size_t At(int rank) {
  return static_cast<size_t>(rank);
}

inline void CheckOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) CHECK(status.ToString() == "ok");
}

// Every rank but the one that has died says that it is gone.
inline void CheckAllName(const std::vector<Status>& statuses, int died) {
  const std::string name = "rank " + std::to_string(died) + " of";
  for (int rank = 0; rank < static_cast<int>(statuses.size()); ++rank) {
    if (rank == died) continue;
    const Status& status = statuses[At(rank)];
    CAPTURE(status.ToString());
    CHECK(status.code() == Code::kUnavailable);
    CHECK(status.message().find(name) != std::string::npos);
  }
}

// Relative to the sum of magnitudes: a unit of rounding per addition.
inline double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-53;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

// A tensor a rank, of which some elements are NaN or infinite.
inline std::vector<Tensor> RandomTensors(DType dtype, int64_t count, int size,
                                         std::mt19937& random) {
  std::uniform_real_distribution<double> value(-100, 100);
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < size; ++rank) {
    Tensor wide(DType::kFloat64, {count});
    for (double& x : wide.values<double>()) {
      x = std::floor(value(random) * 16) / 16;
    }
    if (IsFloating(dtype) && count > 0 && random() % 3 == 0) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const double special[] = {kInfinity, -kInfinity, std::nan("")};
      const auto place = random() % static_cast<uint64_t>(count);
      wide.data<double>()[place] = special[random() % 3];
    }
    tensors.push_back(wide.Cast(dtype));
  }
  return tensors;
}

inline bool Near(double got, double want, double slack) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= slack;
}

// Elements of `got` that are not the sum or mean of those from `begin` on.
inline int64_t Wrong(const Tensor& got, const std::vector<Tensor>& inputs,
                     Reduction how, int64_t begin = 0) {
  const auto size = static_cast<double>(inputs.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    double sum = 0, magnitude = 0;
    for (const Tensor& input : inputs) {
      sum += input.At(begin + i);
      magnitude += std::abs(input.At(begin + i));
    }
    if (how == Reduction::kMean) sum /= size;
    const double slack =
        IsFloating(got.dtype()) ? magnitude * size * UnitOf(got.dtype()) : 0;
    wrong += !Near(got.At(i), sum, slack);
  }
  return wrong;
}

// Every rank has an error that names two ranks, and has it again.
inline void CheckMismatch(Groups& groups,
                          const std::function<Status(Group&)>& body) {
  const std::vector<Status> statuses = OnAll(groups, body);
  for (size_t i = 0; i < statuses.size(); ++i) {
    CAPTURE(statuses[i].ToString());
    CHECK(statuses[i].code() == Code::kFailedPrecondition);
    const std::string& message = statuses[i].message();
    const size_t first = message.find("rank ");
    CHECK(first != std::string::npos);
    CHECK(message.find("rank ", first + 1) != std::string::npos);
    CHECK(groups[i]->Barrier("later").message() == message);
  }
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_SUMS_H_
