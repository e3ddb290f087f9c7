// The registration functions of the CPU kernels, one per op family, each at
// the end of its file.
#ifndef SLUICE_KERNELS_CPU_KERNELS_H_
#define SLUICE_KERNELS_CPU_KERNELS_H_

#include "engine/kernel.h"

namespace sluice::cpu {

void RegisterStateKernels(KernelTable& table);
void RegisterControlKernels(KernelTable& table);
void RegisterElementwiseKernels(KernelTable& table);
void RegisterActivationKernels(KernelTable& table);
void RegisterFusedKernels(KernelTable& table);
void RegisterReduceKernels(KernelTable& table);
void RegisterMatMulKernels(KernelTable& table);
void RegisterConvKernels(KernelTable& table);
void RegisterPoolKernels(KernelTable& table);
void RegisterMaxPoolKernels(KernelTable& table);
void RegisterFastMaxPoolKernels(KernelTable& table);
void RegisterNormKernels(KernelTable& table);
void RegisterDropoutKernels(KernelTable& table);
void RegisterSoftmaxKernels(KernelTable& table);
void RegisterLossKernels(KernelTable& table);
void RegisterShapeKernels(KernelTable& table);
void RegisterArrayKernels(KernelTable& table);
void RegisterSliceKernels(KernelTable& table);
void RegisterIndexKernels(KernelTable& table);
void RegisterScatterAddKernels(KernelTable& table);
void RegisterSumRowsKernels(KernelTable& table);
void RegisterCountedRowsKernels(KernelTable& table);
void RegisterRandomKernels(KernelTable& table);
void RegisterOptimizerKernels(KernelTable& table);
void RegisterOptimizerRowsKernels(KernelTable& table);
void RegisterCollectiveKernels(KernelTable& table);
void RegisterWidenedKernels(KernelTable& table);  // half types of many families
#if SLUICE_HAVE_ONEDNN
void RegisterOnednnKernels(KernelTable& table);  // a library, not a family
#endif

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_KERNELS_H_
