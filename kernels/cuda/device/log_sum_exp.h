// The sum of exponentials of a line, by the threads of a block.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_LOG_SUM_EXP_H_
#define SLUICE_KERNELS_CUDA_DEVICE_LOG_SUM_EXP_H_

#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/row.h"

namespace sluice::cuda {

// log(sum(exp(x))) is max + log(sum). What is subtracted from x takes the two
// one after the other: together they would be rounded to max's precision.
template <typename C>
struct ExpSum {
  C max;
  C sum;
};
// The ExpSum of a row, in every thread of the block, which must all come here.
// kRuns is RowSum's, `shared` BlockReduce's.
template <bool kRuns, typename T, typename C = ComputeOf<T>>
__device__ ExpSum<C> SumExpOfRow(const T* x, int64_t n, int64_t stride,
                                 bool whole, C* shared) {
  C max = -static_cast<C>(__builtin_inff());
  ForRow(x, n, stride, whole,
         [&](int64_t, C v) { max = scalar::Maximum()(max, v); });
  max = BlockReduce(max, shared, scalar::Maximum());
  RowSum<C, kRuns> sum;
  ForRow(x, n, stride, whole,
         [&](int64_t, C v) { sum.Add(scalar::Exp()(v - max)); });
  return {max, BlockReduce(sum.Result(), shared, scalar::Add())};
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_LOG_SUM_EXP_H_
