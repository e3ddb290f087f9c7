// Launching fused kernels: generated ones (fused_source.h), and an interpreter
// that runs any program, without a compiler. Programs compute in float64 or, of
// narrower elements, float32.
#ifndef SLUICE_KERNELS_CUDA_FUSED_FUSED_H_
#define SLUICE_KERNELS_CUDA_FUSED_FUSED_H_

#include <cuda_runtime.h>

#include <functional>

#include "engine/kernel.h"
#include "kernels/cuda/fused/fused_form.h"

namespace sluice::cuda {

// A generated kernel. On a device it may stand for a cudaKernel_t.
using FusedKernel = void (*)(FusedArguments);
Status LaunchFused(FusedKernel kernel, const FusedWork& work,
                   const FusedArguments& arguments, cudaStream_t stream);

// A program for the interpreter, plain data.
inline constexpr int kMostInterpretedSteps = 64;
static_assert(kMostInterpretedSteps >= kMostProgramSteps);
struct InterpretedStep {
  double params[2];
  uint8_t function;  // its place among those of engine/semantics/scalar.h
  uint8_t operands[3];
};
struct InterpretedProgram {
  DType dtype;
  FusedSumKind sum;
  uint8_t inputs, steps, outputs, rank;
  FusedRead reads[kMostFusedInputs];
  uint8_t stored[kMostFusedOutputs];
  uint8_t summed;
  InterpretedStep step[kMostInterpretedSteps];
};
// Unimplemented if it has too many steps.
Result<InterpretedProgram> InterpretedProgramOf(const FusedForm& form);
// Launches a program. `work` must be of packs of one element, and its sums
// become states.
Status LaunchInterpreted(const InterpretedProgram& program,
                         const FusedWork& work, const FusedArguments& arguments,
                         cudaStream_t stream);

// sums[r] = scale times the sum of the segments' states of result r.
Status AddSegments(const FusedWork& work, const void* states, void* sums,
                   cudaStream_t stream);

// Registers kernels above the interpreter's: for specs that `has` accepts,
// `find` gives the compiled form. Where it has none after all, stderr is told
// once and the kernel is Unimplemented, so that KernelTable::Make takes the
// interpreter's.
using HasFusedKernel = std::function<bool(const KernelSpec&)>;
using FindFusedKernel = std::function<Result<FusedKernel>(const KernelSpec&)>;
void RegisterGeneratedFusedKernels(KernelTable& table, const char* provider,
                                   const HasFusedKernel& has,
                                   FindFusedKernel find);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_FUSED_H_
