// A number as the user wrote it: integers of up to 64 bits stay exact, which a
// double would not keep beyond 2^53.
#ifndef SLUICE_ENGINE_NUMBER_H_
#define SLUICE_ENGINE_NUMBER_H_

#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/dtype.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Number {
 public:
  constexpr Number() = default;  // 0
  template <std::integral T>
  constexpr Number(T value) {              // NOLINT: implicit
    if (std::in_range<int64_t>(+value)) {  // bool and char are ints here
      integer_ = static_cast<int64_t>(value);
    } else {
      whole_ = false;
      real_ = static_cast<double>(value);
    }
  }
  // A double that is an int64 becomes one, so that equal numbers are the same.
  template <std::floating_point T>
  Number(T value) : real_(static_cast<double>(value)) {  // NOLINT: implicit
    whole_ = real_ >= -0x1p63 && real_ < 0x1p63 && real_ == std::floor(real_) &&
             !(real_ == 0 && std::signbit(real_));
    if (whole_) integer_ = static_cast<int64_t>(real_);
  }

  // Whether integer() is the number: neither fractional, nor -0, nor beyond
  // int64.
  bool whole() const { return whole_; }
  int64_t integer() const { return integer_; }
  double real() const {  // rounded for integers beyond 2^53
    return whole_ ? static_cast<double>(integer_) : real_;
  }
  std::string ToString() const;
  // False where either is NaN.
  friend bool operator<=(const Number& a, const Number& b) {
    return a.whole_ && b.whole_ ? a.integer_ <= b.integer_
                                : a.real() <= b.real();
  }

 private:
  bool whole_ = true;
  int64_t integer_ = 0;
  double real_ = 0;
};

// Ok if an element of dtype can be the number: integers hold what is whole and
// in range, bool 0 and 1, floats all but finite numbers that they would make
// infinite. Floats round. The error names both: "int32 cannot hold the number
// 7.5".
Status CheckHolds(DType dtype, const Number& number);

}  // namespace sluice

#endif  // SLUICE_ENGINE_NUMBER_H_
