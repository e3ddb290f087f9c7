// The registration functions of the CUDA kernels, one per op family, each in
// the file of its family that ends in .cc. They turn a KernelSpec into a call
// of a launcher; the launchers and their kernels are in the .cu beside it.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_KERNELS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_KERNELS_H_

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "engine/kernel.h"

namespace sluice::cuda {

// Registers the kernels of all families.
void RegisterCudaKernels(KernelTable& table);

void RegisterArrayKernels(KernelTable& table);
void RegisterBatchNormKernels(KernelTable& table);
void RegisterCollectiveKernels(KernelTable& table);
void RegisterControlKernels(KernelTable& table);
void RegisterConvKernels(KernelTable& table);
void RegisterDepthwiseConvKernels(KernelTable& table);
void RegisterElementwiseKernels(KernelTable& table);
void RegisterFusedKernels(KernelTable& table);
void RegisterIndexKernels(KernelTable& table);
void RegisterLayerNormKernels(KernelTable& table);
void RegisterLossKernels(KernelTable& table);
void RegisterMatMulKernels(KernelTable& table);
void RegisterNvrtcKernels(KernelTable& table);
void RegisterOptimizerKernels(KernelTable& table);
void RegisterOptimizerRowsKernels(KernelTable& table);
void RegisterPoolKernels(KernelTable& table);
void RegisterRandomKernels(KernelTable& table);
void RegisterReduceKernels(KernelTable& table);
void RegisterShapeFillKernels(KernelTable& table);
void RegisterShapeKernels(KernelTable& table);
void RegisterSliceKernels(KernelTable& table);
void RegisterSoftmaxKernels(KernelTable& table);
void RegisterStateKernels(KernelTable& table);

// Kernels by libraries of NVIDIA's: not in the emulation
// (tests/kernels/cuda/emulation).
void RegisterCublasMatMulKernels(KernelTable& table);
void RegisterCudnnConvKernels(KernelTable& table);

// Adds a kernel of ours for `op`, of these dtypes of its input 0 (or output 0).
inline void RegisterOwn(KernelTable& table, std::string op, DTypeSet dtypes,
                        decltype(KernelDef::make) make,
                        bool (*supports)(const KernelSpec&) = nullptr) {
  table.Register({.op = std::move(op),
                  .device = DeviceType::kCuda,
                  .provider = "own",
                  .supports = supports,
                  .dtypes = dtypes,
                  .make = make});
}

// The stream that a kernel adds its work to.
inline cudaStream_t StreamOf(const KernelContext& context) {
  return static_cast<cudaStream_t>(context.step().stream);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_KERNELS_H_
