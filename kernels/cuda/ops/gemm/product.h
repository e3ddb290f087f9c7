// Our own matrix products: C[m,n] = A B over tiles in shared memory. A and B
// are matrices (matmul.h) or what a convolution makes of images and filters
// (conv.h). They serve every shape and dtype; libraries are above them where
// they serve.
//
// Sums are taken in one order that the shape fixes: along k in each part of k,
// then over the parts.
#ifndef SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_H_
#define SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"

namespace sluice::cuda {

// A batch of products: the matrices of a batch, or the groups of a
// convolution. Matrix i begins at batch's offset of i times the step.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  Broadcast batch;  // of a and b
  int64_t a_step = 0, b_step = 0;
  int64_t c_step = 0;   // elements from one C to the next
  int64_t c_pitch = 0;  // elements from one row of C to the next
};

// m, n and k of one product must be below this.
inline constexpr int64_t kMaxProductSize = (int64_t{1} << 31) - 256;
inline bool IsServed(const ProductShape& s) {
  return s.m < kMaxProductSize && s.n < kMaxProductSize &&
         s.k < kMaxProductSize;
}

// What happens to the sums: + bias[column] + addend, an array like C which may
// be C, then max(0, .). Null pointers add nothing.
struct Epilogue {
  const void* bias = nullptr;
  int64_t bias_step = 0;  // elements from one product's bias to the next's
  const void* addend = nullptr;
  bool relu = false;
};

// Bytes of device memory for partial sums: few tiles and a long k are cut along
// k.
size_t ProductWorkspace(const ProductShape& shape, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_H_
