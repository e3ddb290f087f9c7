// CUDA C++ for a fused program: a kernel that loads each operand once, keeps
// every value between in registers, and stores each result once. The text is a
// pure function of the program, the dtype and how operands repeat; sizes are
// arguments, so that one kernel serves every batch size.
//
// It includes kernels/cuda/fused/fused_device.h. NVRTC compiles it for a device
// (nvrtc.cc), the test suite as C++ for the emulation.
#ifndef SLUICE_KERNELS_CUDA_FUSED_FUSED_SOURCE_H_
#define SLUICE_KERNELS_CUDA_FUSED_FUSED_SOURCE_H_

#include <string>

#include "kernels/cuda/fused/fused_form.h"

namespace sluice::cuda {

struct FusedSource {
  std::string name;  // of the kernel, extern "C": a hash of what it computes
  std::string text;
};
FusedSource FusedSourceOf(const FusedForm& form);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_FUSED_SOURCE_H_
