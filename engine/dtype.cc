#include "engine/dtype.h"

#include <string>

namespace sluice {
namespace {

struct Info {
  std::string_view name;
  size_t size;
};
constexpr Info kInfo[kNumDTypes] = {
    {"float32", 4},  {"float64", 8}, {"float16", 2},
    {"bfloat16", 2}, {"int8", 1},    {"uint8", 1},
    {"int32", 4},    {"int64", 8},   {"bool", 1}};

}  // namespace

// Both conversions are F. Giesen's public-domain branch-light forms; rounding
// is to nearest even, subnormals are kept.
Half::Half(float value) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = u & 0x80000000u;
  u ^= sign;
  if (u >= 0x47800000u) {  // 65536 and above, infinity, NaN
    bits = u > 0x7f800000u ? 0x7e00 : 0x7c00;
  } else if (u < 0x38800000u) {  // below 2^-14: a half subnormal or zero
    const float magic = std::bit_cast<float>(uint32_t{126} << 23);
    bits = static_cast<uint16_t>(
        std::bit_cast<uint32_t>(std::bit_cast<float>(u) + magic) -
        (uint32_t{126} << 23));
  } else {
    const uint32_t odd = (u >> 13) & 1u;
    u += 0xc8000fffu + odd;  // rebias the exponent by 15 - 127, round
    bits = static_cast<uint16_t>(u >> 13);
  }
  bits |= static_cast<uint16_t>(sign >> 16);
}

Half::operator float() const {
  const uint32_t exponent_mantissa = (bits & 0x7fffu) << 13;
  const uint32_t exponent = exponent_mantissa & (0x7c00u << 13);
  uint32_t u = exponent_mantissa + (uint32_t{112} << 23);
  if (exponent == 0x7c00u << 13) {  // infinity, NaN
    u += uint32_t{112} << 23;
  } else if (exponent == 0) {  // zero, subnormal: renormalise
    u += uint32_t{1} << 23;
    u = std::bit_cast<uint32_t>(std::bit_cast<float>(u) -
                                std::bit_cast<float>(uint32_t{113} << 23));
  }
  return std::bit_cast<float>(u |
                              (static_cast<uint32_t>(bits & 0x8000u) << 16));
}

size_t SizeOf(DType dtype) {
  return kInfo[static_cast<int>(dtype)].size;
}

std::string_view NameOf(DType dtype) {
  return kInfo[static_cast<int>(dtype)].name;
}

Result<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  std::string known;
  for (const Info& info : kInfo) known += " " + std::string(info.name);
  return InvalidArgument("unknown dtype '" + std::string(name) +
                         "'; known are" + known);
}

}  // namespace sluice
