// Matrix products of our own: C[m,n] = op(A)[m,k] op(B)[k,n].
//
// The method is Goto's and BLIS's (Van Zee and van de Geijn, 2015): a register
// tile of C, panels of B packed to stream from cache, blocks of A in L2. Work
// is cut by the sizes of the product alone, so the bits do not depend on the
// number of threads; they do depend on the instruction set.
#ifndef SLUICE_KERNELS_CPU_GEMM_GEMM_H_
#define SLUICE_KERNELS_CPU_GEMM_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "engine/tensor.h"

namespace sluice {

// A matrix that is computed rather than stored, e.g. the patches of an image.
// read(self, row, column, count, out) writes `count` consecutive elements of a
// row of the matrix as it would be stored, before op(). It is called from
// several threads at once, about once per row and block of 256 columns.
template <typename T>
struct MatrixReader {
  using Read = void (*)(const void* self, int64_t row, int64_t column,
                        int64_t count, T* out);
  Read read = nullptr;
  const void* self = nullptr;
};

// One product. All matrices are row-major; ld* is the distance in elements
// between rows as stored.
template <typename T>
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  // A is stored [k,m]
  bool transpose_b = false;  // B is stored [n,k]
  const T* a = nullptr;
  int64_t lda = 0;
  const T* b = nullptr;
  int64_t ldb = 0;
  T* c = nullptr;
  int64_t ldc = 0;
  // Used instead of a and lda, b and ldb, when set.
  MatrixReader<T> read_a;
  MatrixReader<T> read_b;
  // The data of PackB's result; used instead of all that describes B, when set.
  const T* packed_b = nullptr;
  // C = act(addend + op(A) op(B) + bias): addend[m,n] with rows ldc apart,
  // which may be C itself; bias[n] on each row; act = max(0, x) if relu. With k
  // = 0 the product is zero.
  const T* addend = nullptr;
  const T* bias = nullptr;
  bool relu = false;
};

// op(B) in the order in which products read it, for a B that serves many of
// them: packed_b is the result's data. The order depends on n, k and the
// instruction set.
template <typename T>
Tensor PackB(const Gemm<T>& gemm);

// Bytes that RunGemm needs; depends on sizes, transposes, whether readers and
// packed_b are set, and the instruction set; not on pointers or strides.
template <typename T>
size_t GemmWorkspace(const Gemm<T>& gemm);

// Runs over ComputeThreads(). `workspace`: GemmWorkspace bytes, aligned to 64;
// may be null when that is 0. C may not overlap A, B or bias,
// nor addend in part. Allocates
// nothing.
template <typename T>
void RunGemm(const Gemm<T>& gemm, void* workspace);

extern template Tensor PackB<float>(const Gemm<float>&);
extern template Tensor PackB<double>(const Gemm<double>&);
extern template size_t GemmWorkspace<float>(const Gemm<float>&);
extern template size_t GemmWorkspace<double>(const Gemm<double>&);
extern template void RunGemm<float>(const Gemm<float>&, void*);
extern template void RunGemm<double>(const Gemm<double>&, void*);

}  // namespace sluice

#endif  // SLUICE_KERNELS_CPU_GEMM_GEMM_H_
