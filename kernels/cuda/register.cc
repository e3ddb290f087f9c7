#include "kernels/cuda/kernels.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable& table) {
  RegisterBatchNormKernels(table);
  RegisterControlKernels(table);
  RegisterConvKernels(table);
  RegisterElementwiseKernels(table);
  RegisterFusedKernels(table);
  RegisterLossKernels(table);
  RegisterMatMulKernels(table);
  RegisterPoolKernels(table);
  RegisterRandomKernels(table);
  RegisterShapeFillKernels(table);
  RegisterSoftmaxKernels(table);
}

}  // namespace sluice::cuda
