// The generated kernels that were compiled for the emulation, in place of a
// run-time compiler.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_COMPILED_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_COMPILED_H_

#include <string>

#include "kernels/cuda/fused/fused.h"

namespace sluice::testing {

// By the name that FusedSourceOf gives; null for what FusedSpecs() lacks.
cuda::FusedKernel FindCompiledFused(const std::string& name);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_COMPILED_H_
