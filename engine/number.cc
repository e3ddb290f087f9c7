#include "engine/number.h"

#include <fmt/format.h>

#include <limits>

namespace sluice {

std::string Number::ToString() const {
  return whole_ ? fmt::to_string(integer_) : fmt::format("{}", real_);
}

Status CheckHolds(DType dtype, const Number& number) {
  const bool held = DispatchDType(dtype, [&]<typename T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      return number.real() == 0 || (number.whole() && number.integer() == 1);
    } else if constexpr (std::is_integral_v<T>) {
      return number.real() == 0 ||
             (number.whole() && std::in_range<T>(number.integer()));
    } else {
      using C = ComputeType<T>;
      const C rounded = static_cast<C>(T(static_cast<C>(number.real())));
      return std::isfinite(rounded) || !std::isfinite(number.real());
    }
  });
  if (held) return {};
  return InvalidArgument(fmt::format("{} cannot hold the number {}",
                                     NameOf(dtype), number.ToString()));
}

}  // namespace sluice
