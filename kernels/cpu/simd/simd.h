// The vector kernels: one table of plain functions per instruction set, chosen
// once when the program runs.
//
// Every .cc in this folder is compiled once per instruction set inside the
// namespace SLUICE_ISA (baseline, avx2, avx512). These files define no inline
// function or template with external linkage, or the linker could hand AVX-512
// code to an AVX2 machine (scripts/check_isa_symbols.sh); so this header stays
// free of standard library code.
//
// All functions are single-threaded, allocate nothing, and take pointers of any
// alignment. Input and output may be the same array, not partly overlap.
#ifndef SLUICE_KERNELS_CPU_SIMD_SIMD_H_
#define SLUICE_KERNELS_CPU_SIMD_SIMD_H_

#include <cstdint>

#include "engine/visibility.h"
#include "kernels/cpu/simd/batch_norm.h"
#include "kernels/cpu/simd/chain.h"
#include "kernels/cpu/simd/conv.h"
#include "kernels/cpu/simd/depthwise.h"
#include "kernels/cpu/simd/pool.h"
#include "kernels/cpu/simd/random.h"
#include "kernels/cpu/simd/winograd.h"

namespace SLUICE_INTERNAL sluice {

enum class DType : uint8_t;

namespace simd {

// Parameters of an elementwise op: LeakyRelu and Elu a = alpha, Clip a = low,
// b = high. Gelu's tanh form is an op of its own, GeluTanh.
struct OpParams {
  double a = 0;
  double b = 0;
};

// y[i] = op(x[i]). x is of the op's dtype, y too, or bool for IsNan and such.
using UnaryFn = void (*)(const void* x, void* y, int64_t n, OpParams params);
// y[i] = op(a[i], b[i]); comparisons write bool. In the scalar forms the
// scalar operand points to one element.
using BinaryFn = void (*)(const void* a, const void* b, void* y, int64_t n,
                          OpParams params);

struct BinaryFns {
  BinaryFn vector_vector = nullptr;
  BinaryFn vector_scalar = nullptr;
  BinaryFn scalar_vector = nullptr;
};

struct UnaryEntry {
  const char* name;  // the graph's op name, "Exp"
  UnaryFn f32;
  UnaryFn f64;
};
struct BinaryEntry {
  const char* name;
  BinaryFns f32;
  BinaryFns f64;
};

// Hyperparameters of one optimizer step; each optimizer reads those it names.
// Formulas are PyTorch's, eps outside the square root.
struct OptimizerStep {
  float learning_rate = 0;
  float momentum = 0;  // momentum and RMSProp
  bool nesterov = false;
  float decay = 0;  // RMSProp's rho (PyTorch's alpha)
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;  // AdamW's decoupled one: p *= 1 - lr * weight_decay
  // Adam's bias corrections 1 - beta1^t and 1 - beta2^t for step t = 1, 2, ...
  float correction1 = 1;
  float correction2 = 1;
};

// The inner parts of a matrix product; kernels/cpu/gemm/gemm.h drives them.
template <typename T>
struct GemmTile;
template <typename T>
struct GemmKernels {
  int rows;     // of C in one register tile
  int columns;  // of C in one register tile: the width of a panel of B
  void (*multiply)(const GemmTile<T>& tile);
  // Packs B[k,n], B[p,j] at b[p*row_stride + j*column_stride], into panels of
  // `columns` columns, panel_stride elements apart, each stored row after row
  // and padded with zeros to full width.
  void (*pack)(const T* b, int64_t row_stride, int64_t column_stride, int64_t k,
               int64_t n, T* panels, int64_t panel_stride);
  // Packs A[m,k], stored transposed, A[i,p] at a[p*stride + i], into register
  // tiles: the rows of each stored side by side, `rows` elements from one p to
  // the next, and tile_stride elements from tile to tile, kTilePadding of them
  // free. Rows are spread evenly over the tiles, as `multiply` takes them.
  void (*pack_a)(const T* a, int64_t stride, int64_t m, int64_t k, T* tiles,
                 int64_t tile_stride);
};

struct SimdKernels {
  const char* isa;   // "baseline", "avx2", "avx512"
  int vector_bytes;  // of the vectors the kernels work on

  const UnaryEntry* unary;
  int num_unary;
  const BinaryEntry* binary;
  int num_binary;

  // Reductions over contiguous elements. Several partial sums are kept and
  // combined in a fixed order, so the result depends on n alone.
  float (*sum)(const float* x, int64_t n);
  double (*sum_f64)(const double* x, int64_t n);
  double (*sum_squares)(const float* x, int64_t n);  // in double
  float (*max)(const float* x, int64_t n);           // NaN if any is; n >= 1
  float (*min)(const float* x, int64_t n);

  void (*axpy)(float a, const float* x, float* y, int64_t n);  // y += a * x

  // Softmax, and its logarithm, of each row of x[rows, columns].
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t columns);
  void (*log_softmax)(const float* x, float* y, int64_t rows, int64_t columns);
  // y[row] = log(sum(exp(x[row, :]))).
  void (*log_sum_exp)(const float* x, float* y, int64_t rows, int64_t columns);
  // max[row], and sum[row] = sum(exp(x[row, :] - max[row])).
  void (*sum_exp)(const float* x, float* max, float* sum, int64_t rows,
                  int64_t columns);
  // y = factor * exp(x - shift) - offset.
  void (*shifted_exp)(const float* x, float shift, float factor, float offset,
                      float* y, int64_t n);
  float (*shifted_sum)(const float* x, float shift, int64_t n);  // of x - shift
  // y = x + bias, bias[columns]; relu: negative results become zero.
  void (*bias_add)(const float* x, const float* bias, float* y, int64_t rows,
                   int64_t columns, bool relu);
  // y[column] = sum over rows of x, in row order within each of the vector's
  // columns: the gradient of bias_add. accumulate: added to y.
  void (*column_sums)(const float* x, float* y, int64_t rows, int64_t columns,
                      bool accumulate);

  // y[i] = condition[i] ? a[i] : b[i].
  void (*select_f32)(const bool* condition, const float* a, const float* b,
                     float* y, int64_t n);
  void (*select_f64)(const bool* condition, const double* a, const double* b,
                     double* y, int64_t n);
  // Copies past the caches; y is aligned to 64 bytes.
  void (*stream)(const float* x, float* y, int64_t n);
  // As stream, without waiting for the stores: `fence` must follow the last
  // part before another thread is told.
  void (*stream_part)(const float* x, float* y, int64_t n);
  void (*fence)();

  // Optimizers: p the parameters and g their gradients, n elements each.
  void (*sgd)(const OptimizerStep& step, const float* g, float* p, int64_t n);
  // v = momentum * v + g;  p -= lr * (nesterov ? g + momentum * v : v).
  void (*momentum)(const OptimizerStep& step, const float* g, float* v,
                   float* p, int64_t n);
  // s = decay * s + (1 - decay) * g^2;  v = momentum * v + g / (sqrt(s) + eps);
  // p -= lr * v. v may be null when momentum is 0.
  void (*rmsprop)(const OptimizerStep& step, const float* g, float* s, float* v,
                  float* p, int64_t n);
  // s += g^2;  p -= lr * g / (sqrt(s) + eps).
  void (*adagrad)(const OptimizerStep& step, const float* g, float* s, float* p,
                  int64_t n);
  // m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  // p -= lr / correction1 * m / (sqrt(v) / sqrt(correction2) + eps), after
  // p *= 1 - lr * weight_decay.
  void (*adam)(const OptimizerStep& step, const float* g, float* m, float* v,
               float* p, int64_t n);

  ChainKernels chain;
  GemmKernels<float> gemm_f32;
  GemmKernels<double> gemm_f64;
  ConvKernels conv;
  PoolKernels pool;
  RandomKernels random;
  WinogradKernels winograd;
  BatchNormKernels batch_norm;
  DepthwiseKernels depthwise;
};

}  // namespace simd

// The table of ChosenIsa (engine/cpu_features.h), whose errors it throws. Fixed
// at the first call.
const simd::SimdKernels& Simd();

// One table by name, or null if it was not compiled in or the processor lacks
// it. For tests and `sluice doctor`.
const simd::SimdKernels* SimdFor(const char* isa);

// The loop of an elementwise op in a table, null if there is none for this op
// and dtype (only float32 and float64 have any).
simd::UnaryFn FindUnary(const simd::SimdKernels& table, const char* name,
                        DType dtype);
simd::BinaryFns FindBinary(const simd::SimdKernels& table, const char* name,
                           DType dtype);
// The loop in Simd().
simd::UnaryFn FindUnary(const char* name, DType dtype);
simd::BinaryFns FindBinary(const char* name, DType dtype);

}  // namespace sluice

#endif  // SLUICE_KERNELS_CPU_SIMD_SIMD_H_
