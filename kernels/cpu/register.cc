#include "kernels/cpu/kernels.h"

namespace sluice {

void RegisterCpuKernels(KernelTable& table) {
  cpu::RegisterStateKernels(table);
  cpu::RegisterControlKernels(table);
  cpu::RegisterElementwiseKernels(table);
  cpu::RegisterActivationKernels(table);
  cpu::RegisterFusedKernels(table);
  cpu::RegisterReduceKernels(table);
  cpu::RegisterMatMulKernels(table);
  cpu::RegisterConvKernels(table);
  cpu::RegisterPoolKernels(table);
  cpu::RegisterNormKernels(table);
  cpu::RegisterDropoutKernels(table);
  cpu::RegisterSoftmaxKernels(table);
  cpu::RegisterLossKernels(table);
  cpu::RegisterShapeKernels(table);
  cpu::RegisterArrayKernels(table);
  cpu::RegisterSliceKernels(table);
  cpu::RegisterIndexKernels(table);
  cpu::RegisterRandomKernels(table);
  cpu::RegisterOptimizerKernels(table);
  cpu::RegisterWidenedKernels(table);
#if SLUICE_HAVE_ONEDNN
  cpu::RegisterOnednnKernels(table);
#endif
}

}  // namespace sluice
