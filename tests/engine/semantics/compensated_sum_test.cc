// Sums of many whole numbers, of which double holds each, but not what they
// come to on the way: against sums of integers.
#include "engine/semantics/compensated_sum.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

double ValueOf(CompensatedSum sum) {
  return static_cast<double>(sum);
}

TEST_CASE("a compensated sum is what its terms come to, rounded once") {
  constexpr int64_t kLargest = int64_t{1} << 53;
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t terms = random.Between(1, 500);
    const int64_t least = random.Chance(2) ? -kLargest : 0;
    CompensatedSum parts[2];
    int64_t wanted = 0;
    for (int64_t i = 0; i < terms; ++i) {
      const int64_t term = random.Between(least, kLargest);
      parts[random.Between(0, 1)] += CompensatedSum(static_cast<double>(term));
      wanted += term;
    }
    const double got = ValueOf(parts[0] + parts[1]);
    const int64_t error = std::abs(static_cast<int64_t>(got) - wanted);
    CHECK(error <= std::abs(wanted) / kLargest);
  }
}

TEST_CASE("a compensated sum has the infinities and NaN of a plain one") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  const CompensatedSum one(1), infinite(kInf);
  CHECK(ValueOf(CompensatedSum()) == 0);
  CHECK(ValueOf(one + infinite + one) == kInf);
  CHECK(ValueOf(CompensatedSum(kMost) + CompensatedSum(kMost)) == kInf);
  CHECK(std::isnan(ValueOf(infinite + CompensatedSum(-kInf) + one)));
  CHECK(std::isnan(ValueOf(one + CompensatedSum(std::nan("")) + one)));
}

}  // namespace
}  // namespace sluice
