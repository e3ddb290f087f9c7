// Products of matrices.
#ifndef SLUICE_KERNELS_CUDA_OPS_GEMM_MATMUL_H_
#define SLUICE_KERNELS_CUDA_OPS_GEMM_MATMUL_H_

#include <cuda_runtime.h>

#include <vector>

#include "engine/kernel.h"
#include "engine/semantics/product.h"
#include "kernels/cuda/ops/gemm/product.h"

namespace sluice::cuda {

// The products of MatMul, MatMulBias, MatMulAdd or BatchMatMul.
ProductShape ProductShapeOf(const KernelSpec& spec);

// A matrix as cuBLAS sees it: column-major, transposed before it is used.
struct ColumnMajor {
  int64_t rows, columns;  // of what lies in memory
  int64_t pitch;          // elements from one column to the next
  bool transposed;
};
// C = op(A) op(B) of row-major matrices as a product of column-major ones,
// which is C^T = op(B)^T op(A)^T: `first` is B, `second` is A.
struct ColumnMajorProduct {
  ColumnMajor first, second, result;
};
ColumnMajorProduct ColumnMajorProductOf(const Product& product);

// How operands of a batch follow each other: `inner` products by one call, for
// each of the outer offsets.
struct MatMulBatches {
  int32_t inner = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // elements
  struct Offsets {
    int64_t a = 0, b = 0, c = 0;  // elements
  };
  std::vector<Offsets> outer;
};
MatMulBatches MatMulBatchesOf(const ProductShape& shape);
// Whether `inner` can count the products of one call.
inline bool BatchesAreServed(const ProductShape& shape) {
  return shape.batch.dims[shape.batch.rank - 1] < kMaxProductSize;
}

// c = op(a) op(b), through the epilogue. `product` is one of the batch;
// `workspace` is ProductWorkspace.
using MatMulLauncher = Status (*)(const Product& product,
                                  const ProductShape& shape, const void* a,
                                  const void* b, void* c,
                                  const Epilogue& epilogue, void* workspace,
                                  cudaStream_t stream);
MatMulLauncher FindMatMul(DType dtype);  // of a floating dtype

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_GEMM_MATMUL_H_
