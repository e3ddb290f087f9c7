// Matrix products. The reference is Eigen's product; above it our own GEMM.
#include <Eigen/Core>
#include <algorithm>
#include <vector>

#include "engine/semantics/product.h"
#include "engine/threads.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

// Where the matrices of a batch begin, in elements; of empty results, of which
// there may be any number, nowhere.
struct BatchOffsets {
  std::vector<int64_t> a, b;
};

BatchOffsets OffsetsOf(const KernelSpec& spec) {
  const Shape& c = spec.outputs[0].shape;
  if (c.elements() == 0) return {};
  const int rank = c.rank() - 2;
  const int64_t batches = c.elements(0, rank);
  auto offsets = [&](const Shape& x) {
    std::vector<int64_t> out(batches);
    const int lacking = c.rank() - x.rank();
    const int64_t matrix = x[-2] * x[-1];
    for (int64_t i = 0; i < batches; ++i) {
      int64_t rest = i, stride = matrix;
      for (int d = rank - 1; d >= lacking; --d) {
        if (x[d - lacking] > 1) out[i] += rest % c[d] * stride;
        rest /= c[d];
        stride *= x[d - lacking];
      }
    }
    return out;
  };
  return {offsets(spec.inputs[0].shape), offsets(spec.inputs[1].shape)};
}

template <typename T, int kOrder>
using ConstMap =
    Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>,
               0, Eigen::OuterStride<>>;
template <typename T>
using RowMap = Eigen::Map<
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

// Rows [begin, end) of C by Eigen. A transposed row-major matrix is a
// column-major one.
template <typename T, int kOrderA, int kOrderB>
void EigenRows(const Product& p, const T* a, const T* b, T* c, int64_t begin,
               int64_t end) {
  const bool ta = kOrderA == Eigen::ColMajor;
  const ConstMap<T, kOrderA> rows_of_a(
      a + begin * (ta ? 1 : p.k), end - begin, p.k,
      Eigen::OuterStride<>(std::max<int64_t>(ta ? p.m : p.k, 1)));
  const ConstMap<T, kOrderB> all_of_b(
      b, p.k, p.n,
      Eigen::OuterStride<>(
          std::max<int64_t>(kOrderB == Eigen::ColMajor ? p.k : p.n, 1)));
  RowMap<T>(c + begin * p.n, end - begin, p.n).noalias() = rows_of_a * all_of_b;
}

template <typename T>
void ReferenceRows(const Product& p, const T* a, const T* b, T* c,
                   int64_t begin, int64_t end) {
  constexpr auto kRow = Eigen::RowMajor;
  constexpr auto kCol = Eigen::ColMajor;
  if (p.transpose_a) {
    p.transpose_b ? EigenRows<T, kCol, kCol>(p, a, b, c, begin, end)
                  : EigenRows<T, kCol, kRow>(p, a, b, c, begin, end);
  } else {
    p.transpose_b ? EigenRows<T, kRow, kCol>(p, a, b, c, begin, end)
                  : EigenRows<T, kRow, kRow>(p, a, b, c, begin, end);
  }
}

// The storage types, accumulated in float.
template <typename T>
requires(!std::is_same_v<T, ComputeType<T>>) void ReferenceRows(
    const Product& p, const T* a, const T* b, T* c, int64_t begin,
    int64_t end) {
  constexpr int64_t kBlock = 64;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j0 = 0; j0 < p.n; j0 += kBlock) {
      const int64_t width = std::min(kBlock, p.n - j0);
      float sum[kBlock] = {};
      for (int64_t q = 0; q < p.k; ++q) {
        const float x = float(p.transpose_a ? a[q * p.m + i] : a[i * p.k + q]);
        for (int64_t j = 0; j < width; ++j) {
          sum[j] += x * float(p.transpose_b ? b[(j0 + j) * p.k + q]
                                            : b[q * p.n + j0 + j]);
        }
      }
      for (int64_t j = 0; j < width; ++j) c[i * p.n + j0 + j] = T(sum[j]);
    }
  }
}

template <typename T>
void ReferenceProduct(const Product& p, const T* a, const T* b, T* c) {
  // About 2^20 multiplications per piece of work.
  const int64_t row = std::max<int64_t>(p.n * p.k, 1);
  ParallelFor(p.m, std::max<int64_t>((int64_t{1} << 20) / row, 1),
              [&](int64_t begin, int64_t end) {
                ReferenceRows(p, a, b, c, begin, end);
              });
}

// C = max(0, C + what is added), the maximum with `relu` alone.
template <typename T>
void AddTo(const Product& p, Added added, bool relu, const T* x, T* c) {
  using C = ComputeType<T>;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      T& y = c[i * p.n + j];
      const C sum = C(y) + C(x[added == Added::kBias ? j : i * p.n + j]);
      y = T(relu && C(0) > sum ? C(0) : sum);
    }
  }
}

// The product goes to scratch memory first where C may be the addend.
Result<KernelPtr> MakeReferenceSum(const KernelSpec& spec) {
  const Product p = ProductOf(spec);
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return KernelOf(
            [p, added = AddedTo(spec),
             relu = HasRelu(spec)](const KernelContext& c) {
              T* product = static_cast<T*>(c.workspace());
              ReferenceProduct(p, c.input<T>(0), c.input<T>(1), product);
              AddTo(p, added, relu, c.input<T>(2), product);
              std::copy(product, product + p.m * p.n, c.output<T>(0));
            },
            p.m * p.n * sizeof(T));
      });
}

Result<KernelPtr> MakeReference(const KernelSpec& spec) {
  const Product p = ProductOf(spec);
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return KernelOf([p, at = OffsetsOf(spec)](const KernelContext& c) {
          for (size_t i = 0; i < at.a.size(); ++i) {
            ReferenceProduct(p, c.input<T>(0) + at.a[i],
                             c.input<T>(1) + at.b[i],
                             c.output<T>(0) + i * p.m * p.n);
          }
        });
      });
}

Result<KernelPtr> MakeGemm(const KernelSpec& spec) {
  const Product p = ProductOf(spec);
  const Added added = AddedTo(spec);
  return DispatchFloatDouble(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        Gemm<T> prepared = {.m = p.m,
                            .n = p.n,
                            .k = p.k,
                            .transpose_a = p.transpose_a,
                            .transpose_b = p.transpose_b,
                            .lda = p.transpose_a ? p.m : p.k,
                            .ldb = p.transpose_b ? p.k : p.n,
                            .ldc = p.n,
                            .relu = HasRelu(spec)};
        // One matrix that never changes serves all products.
        Tensor packed;
        const Tensor* b = ConstantInput(spec, 1);
        if (b != nullptr && b->elements() == p.k * p.n) {
          prepared.b = b->data<T>();
          packed = PackB(prepared);
          prepared.packed_b = packed.template data<T>();
        }
        return KernelOf(
            [prepared, packed, added,
             at = OffsetsOf(spec)](const KernelContext& c) {
              Gemm<T> gemm = prepared;
              if (added == Added::kBias) gemm.bias = c.input<T>(2);
              if (added == Added::kMatrix) gemm.addend = c.input<T>(2);
              for (size_t i = 0; i < at.a.size(); ++i) {
                gemm.a = c.input<T>(0) + at.a[i];
                gemm.b = c.input<T>(1) + at.b[i];
                gemm.c = c.output<T>(0) + i * gemm.m * gemm.n;
                RunGemm(gemm, c.workspace());
              }
            },
            GemmWorkspace(prepared));
      });
}

// --- BiasAdd -----------------------------------------------------------------

int64_t RowGrain(int64_t columns) {
  return std::max<int64_t>((1 << 15) / std::max<int64_t>(columns, 1), 1);
}

Result<KernelPtr> MakeBiasAdd(const KernelSpec& spec) {
  const int64_t columns = spec.inputs[1].shape[0];
  const Shape& x_shape = spec.inputs[0].shape;
  const int64_t rows = x_shape.elements(0, x_shape.rank() - 1);
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return KernelOf([rows, columns](const KernelContext& c) {
          const T* x = c.input<T>(0);
          const T* bias = c.input<T>(1);
          T* y = c.output<T>(0);
          using C = ComputeType<T>;
          if (columns == 0) return;  // there may be 2^62 rows of nothing
          ParallelFor(rows, RowGrain(columns), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
              for (int64_t j = 0; j < columns; ++j) {
                y[r * columns + j] = T(C(x[r * columns + j]) + C(bias[j]));
              }
            }
          });
        });
      });
}

Result<KernelPtr> MakeFastBiasAdd(const KernelSpec& spec) {
  const int64_t columns = spec.inputs[1].shape[0];
  const Shape& x_shape = spec.inputs[0].shape;
  const int64_t rows = x_shape.elements(0, x_shape.rank() - 1);
  return KernelOf(
      [rows, columns, add = Simd().bias_add](const KernelContext& c) {
        if (columns == 0) return;  // there may be 2^62 rows of nothing
        ParallelFor(rows, RowGrain(columns), [&](int64_t begin, int64_t end) {
          add(c.input<float>(0) + begin * columns, c.input<float>(1),
              c.output<float>(0) + begin * columns, end - begin, columns,
              /*relu=*/false);
        });
      });
}

}  // namespace

void RegisterMatMulKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto make) {
    table.Register({.op = op, .dtypes = kFloating, .make = make});
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .dtypes = kFloatDouble,
                    .make = MakeGemm});
  };
  add("MatMul", MakeReference);
  add("BatchMatMul", MakeReference);
  add("MatMulBias", MakeReferenceSum);
  add("MatMulAdd", MakeReferenceSum);
  table.Register({.op = "BiasAdd", .dtypes = kFloating, .make = MakeBiasAdd});
  table.Register({.op = "BiasAdd",
                  .priority = 10,
                  .provider = "simd",
                  .dtypes = DType::kFloat32,
                  .make = MakeFastBiasAdd});
}

}  // namespace sluice::cpu
