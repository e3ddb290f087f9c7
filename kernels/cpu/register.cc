#include "engine/runtime/transfer.h"
#include "kernels/cpu/kernels.h"

namespace sluice {

namespace {

void RegisterCpuKernels(KernelTable& table) {
  cpu::RegisterStateKernels(table);
  cpu::RegisterControlKernels(table);
  RegisterTransferKernels(table, DeviceType::kCpu);
  cpu::RegisterElementwiseKernels(table);
  cpu::RegisterActivationKernels(table);
  cpu::RegisterFusedKernels(table);
  cpu::RegisterReduceKernels(table);
  cpu::RegisterMatMulKernels(table);
  cpu::RegisterConvKernels(table);
  cpu::RegisterPoolKernels(table);
  cpu::RegisterMaxPoolKernels(table);
  cpu::RegisterFastMaxPoolKernels(table);
  cpu::RegisterNormKernels(table);
  cpu::RegisterDropoutKernels(table);
  cpu::RegisterSoftmaxKernels(table);
  cpu::RegisterLossKernels(table);
  cpu::RegisterShapeKernels(table);
  cpu::RegisterArrayKernels(table);
  cpu::RegisterSliceKernels(table);
  cpu::RegisterIndexKernels(table);
  cpu::RegisterScatterAddKernels(table);
  cpu::RegisterSumRowsKernels(table);
  cpu::RegisterCountedRowsKernels(table);
  cpu::RegisterRandomKernels(table);
  cpu::RegisterOptimizerKernels(table);
  cpu::RegisterOptimizerRowsKernels(table);
  cpu::RegisterCollectiveKernels(table);
  cpu::RegisterWidenedKernels(table);
#if SLUICE_HAVE_ONEDNN
  cpu::RegisterOnednnKernels(table);
#endif
}

}  // namespace

// Here rather than in engine/, so that whoever asks for the table links the
// built-in kernels, without any registration object.
KernelTable& KernelTable::Global() {
  static KernelTable* table = [] {
    auto* built_in = new KernelTable;  // never destroyed: threads may use it
    RegisterCpuKernels(*built_in);
    return built_in;
  }();
  return *table;
}

}  // namespace sluice
