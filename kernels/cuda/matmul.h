// Products of matrices.
#ifndef SLUICE_KERNELS_CUDA_MATMUL_H_
#define SLUICE_KERNELS_CUDA_MATMUL_H_

#include <cuda_runtime.h>

#include "engine/kernel.h"
#include "engine/product.h"
#include "kernels/cuda/product.h"

namespace sluice::cuda {

// The products of MatMul, MatMulBias, MatMulAdd or BatchMatMul.
ProductShape ProductShapeOf(const KernelSpec& spec);

// c = op(a) op(b), through the epilogue. `product` is one of the batch;
// `workspace` is ProductWorkspace.
using MatMulLauncher = Status (*)(const Product& product,
                                  const ProductShape& shape, const void* a,
                                  const void* b, void* c,
                                  const Epilogue& epilogue, void* workspace,
                                  cudaStream_t stream);
MatMulLauncher FindMatMul(DType dtype);  // of a floating dtype

// Our own kernel for any of the four ops.
Result<KernelPtr> MakeMatMul(const KernelSpec& spec);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_MATMUL_H_
