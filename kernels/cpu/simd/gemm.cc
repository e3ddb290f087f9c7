// The matrix product kernels of this instruction set.
#include "kernels/cpu/simd/gemm_micro.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {

void AddGemm(simd::SimdKernels& table) noexcept {
  table.gemm_f32 = {kTileRows, kTileColumns<float>, Multiply<float>,
                    PackB<float>, PackA<float>};
  table.gemm_f64 = {kTileRows, kTileColumns<double>, Multiply<double>,
                    PackB<double>, PackA<double>};
}

}  // namespace sluice::SLUICE_ISA
