#include "kernels/cuda/kernels.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable& table) {
  RegisterConvKernels(table);
  RegisterMatMulKernels(table);
  RegisterPoolKernels(table);
  RegisterControlKernels(table);
  RegisterRandomKernels(table);
  RegisterSoftmaxKernels(table);
}

}  // namespace sluice::cuda
