// Kernels over the rows of a matrix: softmax, bias and its gradient.
#include "engine/semantics/scalar.h"
#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/reduction.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

// Rows up to this long are padded to whole vectors, since a class per digit
// would otherwise be computed one by one.
inline constexpr int64_t kShortRow = 128;

// out = exp(x - max(x)), of a short row; returns the sum of out. max_out:
// max(x).
SLUICE_INLINE float ExpRow(const float* x, float* out, int64_t n,
                           float* max_out) {
  const float max = ExtremeOf<1>(x, n);
  *max_out = max;
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = scalar::Exp()(x[i] - max);
  return Sum(out, n);
}

// A short row of x, padded with minus infinity, whose exponential is zero.
struct ShortRow {
  alignas(64) float values[kShortRow];
  int64_t padded;

  explicit ShortRow(int64_t columns)
      : padded((columns + kLanes<float> - 1) / kLanes<float> * kLanes<float>) {
    for (int64_t i = 0; i < padded; ++i) values[i] = -__builtin_inff();
  }
};

SLUICE_INLINE void Copy(const float* x, float* y, int64_t n) {
  __builtin_memcpy(y, x, static_cast<unsigned long>(n) * sizeof(float));
}

// Elements of a long row that are summed in float, or whose exponentials are:
// in one float sum of very many the last digits of each would be lost.
inline constexpr int64_t kSumBlock = 1024;

// sum(exp(x - max(x))) of a row of any length. The exponentials go to `out`,
// which may be x, or, where it is null, nowhere.
float SumExpLong(const float* x, float* out, int64_t n, float* max_out) {
  alignas(64) float scratch[kSumBlock];
  const float max = ExtremeOf<1>(x, n);
  *max_out = max;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t block = n - begin < kSumBlock ? n - begin : kSumBlock;
    float* const e = out == nullptr ? scratch : out + begin;
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < block; ++i) {
      e[i] = scalar::Exp()(x[begin + i] - max);
    }
    sum += double{Sum(e, block)};
  }
  return static_cast<float>(sum);
}

void Softmax(const float* x, float* y, int64_t rows, int64_t columns) {
  float max;
  if (columns > kShortRow) {
    for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
      const float scale = 1.0f / SumExpLong(x, y, columns, &max);
      for (int64_t i = 0; i < columns; ++i) y[i] *= scale;
    }
    return;
  }
  ShortRow row(columns);
  alignas(64) float e[kShortRow];
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    Copy(x, row.values, columns);
    const float scale = 1.0f / ExpRow(row.values, e, row.padded, &max);
    for (int64_t i = 0; i < row.padded; ++i) e[i] *= scale;
    Copy(e, y, columns);
  }
}

void SumExp(const float* x, float* max, float* sum, int64_t rows,
            int64_t columns) {
  if (columns > kShortRow) {
    for (int64_t r = 0; r < rows; ++r) {
      sum[r] = SumExpLong(x + r * columns, nullptr, columns, max + r);
    }
    return;
  }
  ShortRow row(columns);
  alignas(64) float e[kShortRow];
  for (int64_t r = 0; r < rows; ++r) {
    Copy(x + r * columns, row.values, columns);
    sum[r] = ExpRow(row.values, e, row.padded, max + r);
  }
}

// An infinite maximum is the result.
void LogSumExp(const float* x, float* y, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 64;  // rows
  float sum[kBlock];
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    const int64_t block = rows - begin < kBlock ? rows - begin : kBlock;
    float* max = y + begin;
    SumExp(x + begin * columns, max, sum, block, columns);
    for (int64_t r = 0; r < block; ++r) {
      if (!scalar::IsInf()(max[r])) max[r] += scalar::Log()(sum[r]);
    }
  }
}

void LogSoftmax(const float* x, float* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    float max, sum;
    SumExp(x, &max, &sum, 1, columns);
    const float log_sum = scalar::Log()(sum);
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < columns; ++i) y[i] = (x[i] - max) - log_sum;
  }
}

void ShiftedExp(const float* x, float shift, float factor, float offset,
                float* y, int64_t n) {
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    y[i] = factor * scalar::Exp()(x[i] - shift) - offset;
  }
}

float ShiftedSum(const float* x, float shift, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t block = n - begin < kSumBlock ? n - begin : kSumBlock;
    const float* const in = x + begin;
    sum += double{SumTerms<float>(
        block,
        [&](int64_t i)
            __attribute__((always_inline)) { return Load(in + i) - shift; },
        [&](int64_t i) { return in[i] - shift; })};
  }
  return static_cast<float>(sum);
}

void BiasAdd(const float* x, const float* bias, float* y, int64_t rows,
             int64_t columns, bool relu) {
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    if (relu) {
      SLUICE_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) {
        y[i] = scalar::Relu()(x[i] + bias[i]);
      }
    } else {
      SLUICE_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) y[i] = x[i] + bias[i];
    }
  }
}

// Rows that are summed before the result joins the total: shorter chains of
// additions lose fewer bits.
inline constexpr int64_t kSumRows = 128;

// y[0, kWidth) += the sums of columns of x[rows, stride].
template <int kVectors>
SLUICE_INLINE void AddColumnSums(const float* x, float* y, int64_t rows,
                                 int64_t stride) {
  Vector<float> sum[kVectors] = {};
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    for (int v = 0; v < kVectors; ++v) sum[v] += Load(x + v * kLanes<float>);
  }
  for (int v = 0; v < kVectors; ++v) {
    float* out = y + v * kLanes<float>;
    Store(out, Load(out) + sum[v]);
  }
}

void ColumnSums(const float* x, float* y, int64_t rows, int64_t columns,
                bool accumulate) {
  constexpr int kWidth = kLanes<float>;
  for (int64_t i = 0; i < columns && !accumulate; ++i) y[i] = 0;
  for (int64_t begin = 0; begin < rows; begin += kSumRows) {
    const int64_t block = rows - begin < kSumRows ? rows - begin : kSumRows;
    const float* in = x + begin * columns;
    int64_t i = 0;
    for (; i + 4 * kWidth <= columns; i += 4 * kWidth) {
      AddColumnSums<4>(in + i, y + i, block, columns);
    }
    for (; i + kWidth <= columns; i += kWidth) {
      AddColumnSums<1>(in + i, y + i, block, columns);
    }
    for (; i < columns; ++i) {
      float sum = 0;
      for (int64_t r = 0; r < block; ++r) sum += in[r * columns + i];
      y[i] += sum;
    }
  }
}

}  // namespace

void AddRows(simd::SimdKernels& table) noexcept {
  table.softmax = Softmax;
  table.log_softmax = LogSoftmax;
  table.log_sum_exp = LogSumExp;
  table.sum_exp = SumExp;
  table.shifted_exp = ShiftedExp;
  table.shifted_sum = ShiftedSum;
  table.bias_add = BiasAdd;
  table.column_sums = ColumnSums;
}

}  // namespace sluice::SLUICE_ISA
