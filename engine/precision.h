// The precision in which a model's float32 arithmetic is done.
#ifndef SLUICE_ENGINE_PRECISION_H_
#define SLUICE_ENGINE_PRECISION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/dtype.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

enum class Precision : uint8_t {
  kFloat32,
  // float32 whose products may round operands to 10 bits of mantissa, as the
  // tensor cores of GPUs do. On a CPU the same as kFloat32.
  kTf32,
  // Mixed precision: products, convolutions and what is between them in half,
  // the rest, and all variables, in float32 (graph/passes/precision.cc).
  kFloat16,
  kBFloat16,
};

std::string_view NameOf(Precision precision);  // "fp32", "tf32", "fp16", "bf16"
// The error lists the names.
Result<Precision> ParsePrecision(std::string_view name);
// The type that mixed precision puts beside float32; nullopt without.
std::optional<DType> HalfTypeOf(Precision precision);

}  // namespace sluice

#endif  // SLUICE_ENGINE_PRECISION_H_
