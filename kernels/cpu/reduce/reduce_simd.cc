// float32 reductions by vector code: rows [outer, n] and columns [n, inner],
// in which nearly all reductions of a training step fall.
#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cpu/reduce/reduce.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowSegment = 1 << 14;     // elements of a row, one task
constexpr int64_t kRowBlock = 1 << 10;       // elements summed in float
constexpr int64_t kMaxColumns = 1 << 12;     // wider: the reference's blocks
constexpr int64_t kColumnSegment = 1 << 15;  // elements of some rows, one task
constexpr int64_t kFloatRows = 64;           // summed in float

// The form, if exactly one group is reduced and none is empty.
bool OneGroup(const KernelSpec& spec, AxisForm* form) {
  bool seen = false;
  for (const DimGroup& group : GroupDims(spec)) {
    if (group.size == 0 || (group.reduced && seen)) return false;
    (group.reduced ? form->n : seen ? form->inner : form->outer) = group.size;
    seen |= group.reduced;
  }
  return seen;
}

bool Rows(const KernelSpec& spec) {
  AxisForm form;
  return OneGroup(spec, &form) && form.inner == 1;
}
bool Columns(const KernelSpec& spec) {
  AxisForm form;
  return OneGroup(spec, &form) && form.inner > 1 && form.inner <= kMaxColumns;
}

// y = the rows' results. Segment(x, n) gives a double, Merge(a, b) combines
// two of them, Finish(total) makes the element.
template <typename Segment, typename Merge, typename Finish>
KernelPtr ReduceRows(const KernelSpec& spec, Segment segment_of, Merge merge,
                     Finish finish) {
  AxisForm form;
  SLUICE_CHECK(OneGroup(spec, &form));
  const int64_t segments = CeilDiv(form.n, kRowSegment);
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / form.n);
  return KernelOf(
      [=](const KernelContext& c) {
        const float* x = c.input<float>(0);
        float* y = c.output<float>(0);
        double* partial = static_cast<double*>(c.workspace());
        ParallelFor(
            form.outer * segments, grain, [&](int64_t begin, int64_t end) {
              for (int64_t task = begin; task < end; ++task) {
                const int64_t row = task / segments;
                const int64_t first = task % segments * kRowSegment;
                const int64_t n = std::min(kRowSegment, form.n - first);
                const double result = segment_of(x + row * form.n + first, n);
                if (segments == 1) {
                  y[row] = finish(result);
                } else {
                  partial[task] = result;
                }
              }
            });
        for (int64_t row = 0; segments > 1 && row < form.outer; ++row) {
          double total = partial[row * segments];
          for (int64_t s = 1; s < segments; ++s) {
            total = merge(total, partial[row * segments + s]);
          }
          y[row] = finish(total);
        }
      },
      segments > 1 ? form.outer * segments * sizeof(double) : 0);
}

double SumSegment(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t at = 0; at < n; at += kRowBlock) {
    sum += static_cast<double>(Simd().sum(x + at, std::min(kRowBlock, n - at)));
  }
  return sum;
}

// sums[columns] = column sums of x[rows, columns]; `block` is scratch.
void AddColumns(const float* x, int64_t rows, int64_t columns, float* block,
                double* sums) {
  std::fill_n(sums, columns, 0.0);
  for (int64_t at = 0; at < rows; at += kFloatRows) {
    Simd().column_sums(x + at * columns, block, std::min(kFloatRows, rows - at),
                       columns, /*accumulate=*/false);
    for (int64_t j = 0; j < columns; ++j) {
      sums[j] += static_cast<double>(block[j]);
    }
  }
}

KernelPtr MakeSumRows(const KernelSpec& spec, double factor) {
  return ReduceRows(
      spec, SumSegment, [](double a, double b) { return a + b; },
      [factor](double sum) { return static_cast<float>(sum * factor); });
}

// Sums of up to kFloatRows rows in float, those in double.
KernelPtr MakeSumColumns(const KernelSpec& spec, double factor) {
  AxisForm form;
  SLUICE_CHECK(OneGroup(spec, &form));
  const int64_t rows = std::max(kFloatRows, kColumnSegment / form.inner);
  const int64_t segments = CeilDiv(form.n, rows);
  const int64_t tasks = form.outer * segments;
  const int64_t cost = std::min(form.n, rows) * form.inner;
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / cost);
  return KernelOf(
      [=](const KernelContext& c) {
        const int64_t inner = form.inner;
        double* partial = static_cast<double*>(c.workspace());
        float* floats = reinterpret_cast<float*>(partial + tasks * inner);
        ParallelFor(tasks, grain, [&](int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t first = task % segments * rows;
            AddColumns(
                c.input<float>(0) + (task / segments * form.n + first) * inner,
                std::min(rows, form.n - first), inner, floats + task * inner,
                partial + task * inner);
          }
        });
        const int64_t outer_grain =
            std::max<int64_t>(1, kReduceGrain / (segments * inner));
        ParallelFor(form.outer, outer_grain, [&](int64_t begin, int64_t end) {
          for (int64_t o = begin; o < end; ++o) {
            double* total = partial + o * segments * inner;
            for (int64_t s = 1; s < segments; ++s) {
              for (int64_t j = 0; j < inner; ++j) {
                total[j] += total[s * inner + j];
              }
            }
            for (int64_t j = 0; j < inner; ++j) {
              c.output<float>(0)[o * inner + j] =
                  static_cast<float>(total[j] * factor);
            }
          }
        });
      },
      tasks * form.inner * (sizeof(double) + sizeof(float)));
}

template <typename Choose>
KernelPtr MakeExtremeRows(const KernelSpec& spec,
                          float (*of_segment)(const float*, int64_t)) {
  return ReduceRows(
      spec,
      [of_segment](const float* x, int64_t n) {
        return static_cast<double>(of_segment(x, n));
      },
      [](double a, double b) { return Choose()(a, b); },
      [](double best) { return static_cast<float>(best); });
}

KernelPtr MakeLogSumExpRows(const KernelSpec& spec) {
  AxisForm form;
  SLUICE_CHECK(OneGroup(spec, &form));
  const int64_t grain = std::max<int64_t>(1, kReduceGrain / 4 / form.n);
  return KernelOf([=](const KernelContext& c) {
    ParallelFor(form.outer, grain, [&](int64_t begin, int64_t end) {
      Simd().log_sum_exp(c.input<float>(0) + begin * form.n,
                         c.output<float>(0) + begin, end - begin, form.n);
    });
  });
}

double MeanFactor(const KernelSpec& spec) {
  return 1 / static_cast<double>(ReducedCount(GroupDims(spec)));
}

}  // namespace

void RegisterReduceSimdKernels(KernelTable& table) {
  auto add = [&](const char* op, bool (*supports)(const KernelSpec&),
                 KernelPtr (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports = supports,
                    .dtypes = DType::kFloat32,
                    .make = [make](const KernelSpec& s) -> Result<KernelPtr> {
                      return make(s);
                    }});
  };
  for (const char* op : {"Sum", "SumTo"}) {
    add(op, Rows, [](const KernelSpec& s) { return MakeSumRows(s, 1); });
    add(op, Columns, [](const KernelSpec& s) { return MakeSumColumns(s, 1); });
  }
  add("Mean", Rows,
      [](const KernelSpec& s) { return MakeSumRows(s, MeanFactor(s)); });
  add("Mean", Columns,
      [](const KernelSpec& s) { return MakeSumColumns(s, MeanFactor(s)); });
  add("Max", Rows, [](const KernelSpec& s) {
    return MakeExtremeRows<scalar::Maximum>(s, Simd().max);
  });
  add("Min", Rows, [](const KernelSpec& s) {
    return MakeExtremeRows<scalar::Minimum>(s, Simd().min);
  });
  add("LogSumExp", Rows, MakeLogSumExpRows);
}

}  // namespace sluice::cpu
