#include "engine/tensor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

TEST_CASE("floats beyond an integer's range become its nearest, NaN 0") {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {
      0, -3.9, 127.9, 128, -129, 2e9, -inf, inf, 1e300, -1e19, std::nan("")};
  const auto n = static_cast<int64_t>(values.size());
  const Tensor wide = Tensor::Array<double>({n}, values);
  auto check = [&]<typename T>(T) {
    using Limits = std::numeric_limits<T>;
    const Tensor cast = wide.Cast(DTypeOf<T>::value);
    for (int64_t i = 0; i < n; ++i) {
      CAPTURE(values[i]);
      // In long double, which holds all of int64.
      const long double whole = std::trunc(static_cast<long double>(values[i]));
      const long double least = Limits::lowest(), most = Limits::max();
      const long double wanted = std::isnan(values[i]) ? 0
                                 : whole < least       ? least
                                 : whole > most        ? most
                                                       : whole;
      CHECK_EQ(static_cast<long double>(cast.data<T>()[i]), wanted);
    }
  };
  check(int8_t{});
  check(uint8_t{});
  check(int32_t{});
  check(int64_t{});
}

TEST_CASE("a shape has at most eight dimensions") {
  static_assert(Shape{1, 2, 3, 4, 5, 6, 7, 8}.rank() == Shape::kMaxRank);
  CHECK_THROWS_WITH_AS((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}),
                       "a tensor has at most 8 dimensions, got 9", Error);
}

}  // namespace
}  // namespace sluice
