// What the processor under us can do, asked once.
#ifndef SLUICE_ENGINE_CPU_FEATURES_H_
#define SLUICE_ENGINE_CPU_FEATURES_H_

#include <cstdint>
#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct CpuFeatures {
  std::string model;     // "AMD EPYC"; empty when unknown
  int cores = 1;         // that this process may run on
  bool avx2 = false;     // with FMA, and saved by the system
  bool avx512 = false;   // F, BW, DQ, VL
  int64_t l1_bytes = 0;  // data caches; 0 when unknown
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
};

const CpuFeatures& Cpu();

// The instruction set that kernels use, and so what the last bits of results
// depend on: "avx512", "avx2" or "baseline"; the best that the processor has,
// or SLUICE_ISA. Throws Error where that is none of them, or one that the
// processor lacks: at each call, since nothing can be computed then.
const std::string& ChosenIsa();

}  // namespace sluice

#endif  // SLUICE_ENGINE_CPU_FEATURES_H_
