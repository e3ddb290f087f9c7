// Chooses among the instruction sets that kernels/cpu/simd was compiled for.
#include <cstring>

#include "engine/cpu_features.h"
#include "engine/dtype.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {

namespace baseline {
const simd::SimdKernels& Table();
}
#if defined(__x86_64__)
namespace avx2 {
const simd::SimdKernels& Table();
}
namespace avx512 {
const simd::SimdKernels& Table();
}
#endif

const simd::SimdKernels* SimdFor(const char* isa) {
  if (std::strcmp(isa, "baseline") == 0) return &baseline::Table();
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx2") == 0 && Cpu().avx2) return &avx2::Table();
  if (std::strcmp(isa, "avx512") == 0 && Cpu().avx512) {
    return &avx512::Table();
  }
#endif
  return nullptr;
}

const simd::SimdKernels& Simd() {
  static const simd::SimdKernels* const chosen = SimdFor(ChosenIsa().c_str());
  return *chosen;
}

simd::UnaryFn FindUnary(const simd::SimdKernels& table, const char* name,
                        DType dtype) {
  for (int i = 0; i < table.num_unary; ++i) {
    const simd::UnaryEntry& entry = table.unary[i];
    if (std::strcmp(entry.name, name) != 0) continue;
    if (dtype == DType::kFloat32) return entry.f32;
    if (dtype == DType::kFloat64) return entry.f64;
  }
  return nullptr;
}

simd::BinaryFns FindBinary(const simd::SimdKernels& table, const char* name,
                           DType dtype) {
  for (int i = 0; i < table.num_binary; ++i) {
    const simd::BinaryEntry& entry = table.binary[i];
    if (std::strcmp(entry.name, name) != 0) continue;
    if (dtype == DType::kFloat32) return entry.f32;
    if (dtype == DType::kFloat64) return entry.f64;
  }
  return {};
}

simd::UnaryFn FindUnary(const char* name, DType dtype) {
  return FindUnary(Simd(), name, dtype);
}
simd::BinaryFns FindBinary(const char* name, DType dtype) {
  return FindBinary(Simd(), name, dtype);
}

}  // namespace sluice
