#include "kernels/cuda/kernels.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable& table) {
  RegisterSoftmaxKernels(table);
}

}  // namespace sluice::cuda
