// Products of matrices, each transposed on request.
#include "kernels/cuda/ops/gemm/matmul.h"

#include "kernels/cuda/ops/gemm/product_kernels.h"

namespace sluice::cuda {
namespace {

template <typename T>
MatrixOperand<T> OperandOf(const void* matrix, int64_t lines, int64_t length,
                           bool along_k) {
  return {static_cast<const T*>(matrix),
          static_cast<int>(lines),
          static_cast<int>(length),
          length,
          along_k,
          LinesAreWhole<T>(matrix, length, 0)};
}

template <typename T>
Status MatMul(const Product& p, const ProductShape& shape, const void* a,
              const void* b, void* c, const Epilogue& epilogue, void* workspace,
              cudaStream_t stream) {
  return LaunchProduct<T>("MatMul", shape,
                          p.transpose_a ? OperandOf<T>(a, p.k, p.m, false)
                                        : OperandOf<T>(a, p.m, p.k, true),
                          p.transpose_b ? OperandOf<T>(b, p.n, p.k, true)
                                        : OperandOf<T>(b, p.k, p.n, false),
                          static_cast<T*>(c), epilogue, workspace, stream);
}

}  // namespace

MatMulLauncher FindMatMul(DType dtype) {
  return DispatchFloating(dtype, []<typename E>(TypeTag<E>) -> MatMulLauncher {
    return MatMul<DeviceTypeOf<E>>;
  });
}

}  // namespace sluice::cuda
