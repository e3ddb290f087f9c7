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

namespace sluice {

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

// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }
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
  return t == DType::kFloat16 || t == DType::kBFloat16 ? DType::kFloat32 : t;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_DTYPE_H_
