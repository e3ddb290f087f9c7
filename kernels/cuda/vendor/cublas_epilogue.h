// The epilogue that cuBLASLt applies to a product's sums before it writes them.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_EPILOGUE_H_
#define SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_EPILOGUE_H_

#include <cublasLt.h>

#include "engine/semantics/product.h"

namespace sluice::cuda {

// The epilogue of MatMul, MatMulBias, MatMulAdd or BatchMatMul. Never a ReLU,
// also where the product has one: cuBLASLt's is max(x, 0), which may be 0 for
// NaN, and nothing asks it to keep NaN as cuDNN's can be asked. A training that
// diverges would not show it.
inline cublasLtEpilogue_t LtEpilogueOf(const KernelSpec& spec) {
  return AddedTo(spec) == Added::kBias ? CUBLASLT_EPILOGUE_BIAS
                                       : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_EPILOGUE_H_
