// Stands in for the CUDA header of this name, as cuda_runtime.h beside it does.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_BF16_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_BF16_H_

#include "engine/dtype.h"

using __nv_bfloat16 = sluice::BFloat16;

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_BF16_H_
