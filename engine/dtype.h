// Element types. Half and BFloat16 are storage types: arithmetic on them goes
// through float.
#ifndef SLUICE_ENGINE_DTYPE_H_
#define SLUICE_ENGINE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt32,
  kInt64,
  kBool,  // one byte, 0 or 1
};
inline constexpr int kNumDTypes = 9;

// IEEE 754 binary16. The conversions are F. Giesen's public-domain forms.
// Subnormals are kept, even by processors that take those of float32 for 0. All
// cases are computed and one is chosen without a jump, so that loops become
// vectors.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  // Rounds to nearest even; NaN stays NaN.
  explicit Half(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = u & 0x80000000u;
    u ^= sign;
    // Below 2^-14, a half subnormal or zero: the addition aligns and rounds.
    constexpr uint32_t kMagic = uint32_t{126} << 23;
    const float aligned =
        std::bit_cast<float>(u) + std::bit_cast<float>(kMagic);
    const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - kMagic;
    // Rebias the exponent by 15 - 127, round.
    const uint32_t normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
    // 65536 and above, infinity, NaN. Signed comparisons are cheaper.
    const auto magnitude = static_cast<int32_t>(u);
    const uint32_t beyond = Choose(magnitude > 0x7f800000, 0x7e00, 0x7c00);
    const uint32_t finite = Choose(magnitude < 0x38800000, subnormal, normal);
    bits = static_cast<uint16_t>(
        Choose(magnitude >= 0x47800000, beyond, finite) | (sign >> 16));
  }
  explicit operator float() const {
    const uint32_t exponent_mantissa = (bits & 0x7fffu) << 13;
    const uint32_t exponent = exponent_mantissa & (0x7c00u << 13);
    const uint32_t normal = exponent_mantissa + (uint32_t{112} << 23);
    const uint32_t beyond = normal + (uint32_t{112} << 23);  // infinity, NaN
    // Zero, subnormal: renormalise.
    const float renormal = std::bit_cast<float>(normal + (uint32_t{1} << 23)) -
                           std::bit_cast<float>(uint32_t{113} << 23);
    const uint32_t finite =
        Choose(exponent == 0, std::bit_cast<uint32_t>(renormal), normal);
    return std::bit_cast<float>(
        Choose(exponent == 0x7c00u << 13, beyond, finite) |
        (static_cast<uint32_t>(bits & 0x8000u) << 16));
  }
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }

 private:
  // a where the condition holds, else b.
  static uint32_t Choose(bool condition, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - static_cast<uint32_t>(condition);
    return (a & mask) | (b & ~mask);
  }
};

// The upper half of a binary32.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  // Rounds to nearest even; NaN stays NaN.
  explicit BFloat16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      u += 0x7fffu + ((u >> 16) & 1u);
      bits = static_cast<uint16_t>(u >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  friend bool operator==(BFloat16 a, BFloat16 b) {
    return float(a) == float(b);
  }
};

size_t SizeOf(DType dtype);            // bytes per element
std::string_view NameOf(DType dtype);  // "float32", "bool"
Result<DType> ParseDType(std::string_view name);

inline bool IsFloating(DType t) {
  return t <= DType::kBFloat16;
}
inline bool IsHalf(DType t) {
  return t == DType::kFloat16 || t == DType::kBFloat16;
}
inline bool IsInteger(DType t) {
  return t >= DType::kInt8 && t <= DType::kInt64;
}

// The C++ type of a dtype and back.
template <DType>
struct TypeOf;
template <typename T>
struct DTypeOf;
#define SLUICE_MAP_DTYPE_(type, enumerator)           \
  template <>                                         \
  struct TypeOf<DType::enumerator> {                  \
    using Type = type;                                \
  };                                                  \
  template <>                                         \
  struct DTypeOf<type> {                              \
    static constexpr DType value = DType::enumerator; \
  };
SLUICE_MAP_DTYPE_(float, kFloat32)
SLUICE_MAP_DTYPE_(double, kFloat64)
SLUICE_MAP_DTYPE_(Half, kFloat16)
SLUICE_MAP_DTYPE_(BFloat16, kBFloat16)
SLUICE_MAP_DTYPE_(int8_t, kInt8)
SLUICE_MAP_DTYPE_(uint8_t, kUInt8)
SLUICE_MAP_DTYPE_(int32_t, kInt32)
SLUICE_MAP_DTYPE_(int64_t, kInt64)
SLUICE_MAP_DTYPE_(bool, kBool)
#undef SLUICE_MAP_DTYPE_

// A set of dtypes, for op and kernel constraints.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(DType t) : bits_(1u << static_cast<int>(t)) {}  // NOLINT
  constexpr bool Contains(DType t) const {
    return (bits_ >> static_cast<int>(t)) & 1u;
  }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr DTypeSet operator|(DTypeSet a, DTypeSet b) {
    return DTypeSet(a.bits_ | b.bits_, 0);
  }
  friend constexpr bool operator==(DTypeSet a, DTypeSet b) {
    return a.bits_ == b.bits_;
  }

 private:
  constexpr DTypeSet(uint32_t bits, int) : bits_(bits) {}
  uint32_t bits_ = 0;
};
// Types that a CPU computes in directly.
inline constexpr DTypeSet kFloatDouble =
    DTypeSet(DType::kFloat32) | DType::kFloat64;
inline constexpr DTypeSet kFloating =
    kFloatDouble | DType::kFloat16 | DType::kBFloat16;
inline constexpr DTypeSet kIntegral =
    DTypeSet(DType::kInt8) | DType::kUInt8 | DType::kInt32 | DType::kInt64;
inline constexpr DTypeSet kNumeric = kFloating | kIntegral;
inline constexpr DTypeSet kIndex = DTypeSet(DType::kInt32) | DType::kInt64;
inline constexpr DTypeSet kAnyType = kNumeric | DType::kBool;

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls fn(TypeTag<T>()) with that T of Ts that `dtype` stands for. It must be
// one of them: an op's definition has checked that already.
template <typename T, typename... Ts, typename Fn>
decltype(auto) DispatchAmong(DType dtype, Fn&& fn) {
  if constexpr (sizeof...(Ts) > 0) {
    if (dtype != DTypeOf<T>::value) return DispatchAmong<Ts...>(dtype, fn);
  }
  SLUICE_CHECK(dtype == DTypeOf<T>::value);
  return fn(TypeTag<T>());
}

//   DispatchDType(dtype, [&]<typename T>(TypeTag<T>) { ... });
template <typename Fn>
decltype(auto) DispatchDType(DType dtype, Fn&& fn) {
  return DispatchAmong<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                       int64_t, bool>(dtype, fn);
}
template <typename Fn>
decltype(auto) DispatchFloating(DType dtype, Fn&& fn) {
  return DispatchAmong<float, double, Half, BFloat16>(dtype, fn);
}
template <typename Fn>
decltype(auto) DispatchFloatDouble(DType dtype, Fn&& fn) {
  return DispatchAmong<float, double>(dtype, fn);
}
template <typename Fn>
decltype(auto) DispatchIndex(DType dtype, Fn&& fn) {
  return DispatchAmong<int32_t, int64_t>(dtype, fn);
}

// The type arithmetic on T is done in: float for Half and BFloat16, else T.
template <typename T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>,
                       float, T>;
inline DType ComputeDType(DType t) {
  return IsHalf(t) ? DType::kFloat32 : t;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_DTYPE_H_
