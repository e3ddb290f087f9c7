#include "engine/precision.h"

#include <string>

namespace sluice {
namespace {

constexpr std::string_view kNames[] = {"fp32", "tf32", "fp16", "bf16"};

}  // namespace

std::string_view NameOf(Precision precision) {
  return kNames[static_cast<int>(precision)];
}

Result<Precision> ParsePrecision(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (kNames[i] == name) return static_cast<Precision>(i);
  }
  return InvalidArgument("wanted fp32, tf32, fp16 or bf16, got '" +
                         std::string(name) + "'");
}

std::optional<DType> HalfTypeOf(Precision precision) {
  if (precision == Precision::kFloat16) return DType::kFloat16;
  if (precision == Precision::kBFloat16) return DType::kBFloat16;
  return std::nullopt;
}

}  // namespace sluice
