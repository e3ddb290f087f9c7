// Batch normalisation, plain and fused with what follows it: an addition and a
// ReLU. One driver cuts the rows into blocks; the loops over a block are the
// reference's (any dtype) or the vector table's (float32).
//
// Bytes moved, in units of the image tensor, for float32; a mask is 1/32 of it:
//   BatchNorm          x twice, y                         3
//   BatchNormRelu      the same and the mask              3     (apart: 5)
//   BatchNormAddRelu   x twice, addend, y                 4     (apart: 8)
//   BatchNormApply     x, y; with Relu; with AddRelu      2; 2; 3
//   BatchNormGrad      x and dy twice, dx                 5
//   BatchNormReluGrad  the same and the mask twice        5     (apart: 8)
//     of dy + dy2      x twice, dy, dy2, g twice, dx      7     (apart: 11)
//   BatchNormAddReluGrad, whose g is an output too:
//     of dy            x twice, dy, g twice, dx           6     (apart: 8)
//     of dy + dy2      x twice, dy, dy2, g twice, dx      7     (apart: 11)
// Apart, an addition or ReLU in place of its operand counts 3 or 2.
#ifndef SLUICE_KERNELS_CPU_NORM_BATCH_NORM_H_
#define SLUICE_KERNELS_CPU_NORM_BATCH_NORM_H_

#include "engine/kernel.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

// The loops over a block of rows; what they do is said in simd/batch_norm.h.
template <typename T>
struct BatchNormLoops {
  using C = ComputeType<T>;
  void (*moments)(const T* x, int64_t rows, int64_t channels, C* mean,
                  C* squares);
  void (*normalize)(const simd::BatchNormBlock<T, C>& block);
  void (*grad_sums)(const simd::BatchNormGradBlock<T, C>& block);
  void (*grad)(const simd::BatchNormGradBlock<T, C>& block);
};

// The reference loops, for every floating dtype
// (kernels/cpu/norm/batch_norm_loops.cc).
template <typename T>
BatchNormLoops<T> ReferenceBatchNormLoops();
extern template BatchNormLoops<float> ReferenceBatchNormLoops();
extern template BatchNormLoops<double> ReferenceBatchNormLoops();
extern template BatchNormLoops<Half> ReferenceBatchNormLoops();
extern template BatchNormLoops<BFloat16> ReferenceBatchNormLoops();

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_NORM_BATCH_NORM_H_
