#include "engine/runtime/transfer.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable& table) {
  RegisterArrayKernels(table);
  RegisterBatchNormKernels(table);
  RegisterCollectiveKernels(table);
  RegisterControlKernels(table);
  RegisterConvKernels(table);
  RegisterDepthwiseConvKernels(table);
  RegisterElementwiseKernels(table);
  RegisterFusedKernels(table);
  RegisterIndexKernels(table);
  RegisterLayerNormKernels(table);
  RegisterLossKernels(table);
  RegisterMatMulKernels(table);
  RegisterOptimizerKernels(table);
  RegisterOptimizerRowsKernels(table);
  RegisterPoolKernels(table);
  RegisterRandomKernels(table);
  RegisterReduceKernels(table);
  RegisterShapeFillKernels(table);
  RegisterShapeKernels(table);
  RegisterSliceKernels(table);
  RegisterSoftmaxKernels(table);
  RegisterStateKernels(table);
  RegisterTransferKernels(table, DeviceType::kCuda);
#if SLUICE_CUDA_LIBRARIES
  RegisterCublasMatMulKernels(table);
  RegisterNvrtcKernels(table);
#endif
#if SLUICE_HAVE_CUDNN
  RegisterCudnnConvKernels(table);
#endif
}

}  // namespace sluice::cuda
