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
