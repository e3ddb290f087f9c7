// The fused programs that the tests of generated kernels run. Their kernels are
// generated and compiled for the emulation when the tests are built
// (write_sources.cc), so the list must be the same in every run.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_SPECS_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_SPECS_H_

#include <vector>

#include "engine/kernel.h"

namespace sluice::testing {

// The probes of Fused and FusedSum, every function of
// engine/semantics/scalar.h, and random programs.
std::vector<KernelSpec> FusedSpecs();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_FUSED_SPECS_H_
