// The table of this instruction set.
#include "kernels/cpu/simd/tables.h"
#include "kernels/cpu/simd/vector.h"

#define SLUICE_STRING_(x) #x
#define SLUICE_STRING(x) SLUICE_STRING_(x)

namespace sluice::SLUICE_ISA {
namespace {

simd::SimdKernels MakeTable() noexcept {
  simd::SimdKernels table = {};
  table.isa = SLUICE_STRING(SLUICE_ISA);
  table.vector_bytes = kVectorBytes;
  AddUnary(table);
  AddBinary(table);
  AddReductions(table);
  AddRows(table);
  AddOptimizers(table);
  AddFused(table);
  AddChains(table);
  AddGemm(table);
  AddConv(table);
  AddPool(table);
  AddRandom(table);
  AddWinograd(table);
  AddBatchNorm(table);
  AddDepthwise(table);
  return table;
}

}  // namespace

const simd::SimdKernels& Table() {
  static const simd::SimdKernels table = MakeTable();
  return table;
}

}  // namespace sluice::SLUICE_ISA
