// Tells which of NVIDIA's libraries there are.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_LIBRARIES_H_
#define SLUICE_KERNELS_CUDA_VENDOR_LIBRARIES_H_

#include <map>
#include <string>

namespace sluice::cuda {

// ModuleLibraries of engine/module.h: cublaslt, cudnn, nccl and nvrtc. Opens
// them, as kernels would.
std::map<std::string, std::string> FindNvidiaLibraries();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_LIBRARIES_H_
