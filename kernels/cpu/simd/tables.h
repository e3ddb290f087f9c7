// The functions that each file of this folder hands to table.cc, within one
// instruction set.
#ifndef SLUICE_KERNELS_CPU_SIMD_TABLES_H_
#define SLUICE_KERNELS_CPU_SIMD_TABLES_H_

#include "kernels/cpu/simd/simd.h"

namespace sluice::SLUICE_ISA {

// The whole table.
const simd::SimdKernels& Table();

// Each function fills in the table's fields of its file.
void AddUnary(simd::SimdKernels& table) noexcept;       // unary.cc
void AddBinary(simd::SimdKernels& table) noexcept;      // binary.cc
void AddReductions(simd::SimdKernels& table) noexcept;  // reduction.cc
void AddRows(simd::SimdKernels& table) noexcept;        // rows.cc
void AddOptimizers(simd::SimdKernels& table) noexcept;  // optimizer.cc
void AddFused(simd::SimdKernels& table) noexcept;       // fused.cc
void AddChains(simd::SimdKernels& table) noexcept;      // chain.cc
void AddGemm(simd::SimdKernels& table) noexcept;        // gemm.cc
void AddConv(simd::SimdKernels& table) noexcept;        // conv.cc
void AddPool(simd::SimdKernels& table) noexcept;        // pool.cc
void AddRandom(simd::SimdKernels& table) noexcept;      // random.cc
void AddWinograd(simd::SimdKernels& table) noexcept;    // winograd.cc
void AddBatchNorm(simd::SimdKernels& table) noexcept;   // batch_norm.cc
void AddDepthwise(simd::SimdKernels& table) noexcept;   // depthwise.cc

}  // namespace sluice::SLUICE_ISA

#endif  // SLUICE_KERNELS_CPU_SIMD_TABLES_H_
