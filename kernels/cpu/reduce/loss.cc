// Losses. The inner loops are branch-free, so that they become vector code.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "engine/semantics/index_error.h"
#include "engine/semantics/scalar.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {
namespace {

struct CrossEntropyGeometry {
  int64_t rows = 0, classes = 0;
  double smoothing = 0;

  // What smoothing leaves of a label, and what it gives to each class.
  template <typename C>
  struct Parts {
    C keep, spread;
  };
  template <typename C>
  Parts<C> Smoothing() const {
    return {static_cast<C>(1 - smoothing),
            static_cast<C>(smoothing / static_cast<double>(classes))};
  }

  int64_t grain() const {
    return std::max<int64_t>((1 << 13) / std::max<int64_t>(classes, 1), 1);
  }
};

CrossEntropyGeometry GeometryOf(const KernelSpec& spec) {
  const Shape& logits = spec.inputs[0].shape;
  return {logits.elements(0, logits.rank() - 1), logits[-1],
          spec.attrs.Float("label_smoothing")};
}

// What the loss and its gradient share of a row x. log(softmax(x)) is
// (x - max) - log_sum, softmax(x) is scale * exp(x - max): max and the rest are
// never added up, which would round away what x has beyond max's precision.
template <typename C>
struct RowSums {
  C max;
  C scale;    // 1 / sum(exp(x - max))
  C log_sum;  // of the same sum; for the loss alone
};

template <typename T, typename C = ComputeType<T>>
RowSums<C> RowSumsOf(const T* x, int64_t n) {
  C max = static_cast<C>(x[0]);
  for (int64_t i = 1; i < n; ++i) max = std::max(max, static_cast<C>(x[i]));
  const C sum = SumInRuns<C>(
      n, [&](int64_t i) { return scalar::Exp()(static_cast<C>(x[i]) - max); });
  return {max, 1 / sum, scalar::Log()(sum)};
}

// --- Dense labels ------------------------------------------------------------

// A label for each class.
template <typename T>
struct DenseLabel {
  using C = ComputeType<T>;
  const T* labels;  // of the row

  C Loss(const CrossEntropyGeometry& g, const T* x,
         const RowSums<C>& row) const {
    const auto [keep, spread] = g.Smoothing<C>();
    return SumInRuns<C>(
        g.classes, [&, keep = keep, spread = spread](int64_t i) {
          return (keep * static_cast<C>(labels[i]) + spread) *
                 (row.log_sum - (static_cast<C>(x[i]) - row.max));
        });
  }

  void Grad(const CrossEntropyGeometry& g, const T* x, const RowSums<C>& row,
            C dloss, T* dx) const {
    const auto [keep, spread] = g.Smoothing<C>();
    const C sum = SumInRuns<C>(g.classes, [&, keep = keep](int64_t i) {
      return keep * static_cast<C>(labels[i]);
    });
    const C total = row.scale * (static_cast<C>(g.smoothing) + sum);
    for (int64_t i = 0; i < g.classes; ++i) {
      const C e = scalar::Exp()(static_cast<C>(x[i]) - row.max);
      const C label = keep * static_cast<C>(labels[i]) + spread;
      dx[i] = T(dloss * (e * total - label));
    }
  }
};

// Which of the loss and its gradient an op computes.
enum class Wanted : uint8_t { kLoss, kGrad, kBoth };

template <typename T>
struct CrossEntropyOperands {
  const T* logits;
  const T* max = nullptr;  // for kGrad alone, as is the next: else computed
  const T* scale = nullptr;
  const T* dloss = nullptr;  // not for kLoss, nor is dlogits
  T* dlogits = nullptr;
  T* loss_out = nullptr;  // not for kGrad, nor are the next two
  T* max_out = nullptr;
  T* scale_out = nullptr;

  CrossEntropyOperands(Wanted wanted, const KernelContext& k)
      : logits(k.input<T>(0)) {
    if (wanted == Wanted::kGrad) {
      max = k.input<T>(2);
      scale = k.input<T>(3);
      dloss = k.input<T>(4);
      dlogits = k.output<T>(0);
      return;
    }
    loss_out = k.output<T>(0);
    max_out = k.output<T>(1);
    scale_out = k.output<T>(2);
    if (wanted == Wanted::kBoth) {
      dloss = k.input<T>(2);
      dlogits = k.output<T>(3);
    }
  }
};

// One row: its loss and gradient by the label's kind, as far as wanted.
template <typename T, typename Label>
void CrossEntropyRow(const CrossEntropyGeometry& g,
                     const CrossEntropyOperands<T>& o, int64_t r,
                     const Label& label) {
  using C = ComputeType<T>;
  const int64_t at = r * g.classes;
  const T* x = o.logits + at;
  RowSums<C> sums;
  if (o.loss_out != nullptr) {
    sums = RowSumsOf(x, g.classes);
    o.loss_out[r] = T(label.Loss(g, x, sums));
    o.max_out[r] = T(sums.max);
    o.scale_out[r] = T(sums.scale);
  } else {
    sums = {static_cast<C>(o.max[r]), static_cast<C>(o.scale[r]), 0};
  }
  if (o.dlogits != nullptr) {
    label.Grad(g, x, sums, static_cast<C>(o.dloss[r]), o.dlogits + at);
  }
}

template <typename T>
void DenseRows(const CrossEntropyGeometry& g, Wanted wanted,
               const KernelContext& k) {
  const CrossEntropyOperands<T> o(wanted, k);
  ParallelFor(g.rows, g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      CrossEntropyRow(g, o, r, DenseLabel<T>{k.input<T>(1) + r * g.classes});
    }
  });
}

// --- One class per row -------------------------------------------------------

// The first row whose label is not a class, in a step that otherwise goes on.
class BadRow {
 public:
  explicit BadRow(int64_t rows) : row_(rows), rows_(rows) {}
  void Report(int64_t row) {
    int64_t seen = row_.load(std::memory_order_relaxed);
    while (row < seen &&
           !row_.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
    }
  }
  template <typename L>
  Status ToStatus(const L* labels, int64_t classes) const {
    const int64_t row = row_.load();
    if (row == rows_) return {};
    return LabelOutOfRange(fmt::to_string(labels[row]), row, classes);
  }

 private:
  std::atomic<int64_t> row_;
  int64_t rows_;
};

struct SparseLabel {
  int64_t label;

  template <typename T, typename C>
  C Loss(const CrossEntropyGeometry& g, const T* x,
         const RowSums<C>& row) const {
    const auto [keep, spread] = g.Smoothing<C>();
    C loss = keep * (row.log_sum - (static_cast<C>(x[label]) - row.max));
    if (spread != 0) {
      loss += spread * SumInRuns<C>(g.classes, [&](int64_t i) {
                return row.log_sum - (static_cast<C>(x[i]) - row.max);
              });
    }
    return loss;
  }

  template <typename T, typename C>
  void Grad(const CrossEntropyGeometry& g, const T* x, const RowSums<C>& row,
            C dloss, T* dx) const {
    const auto [keep, spread] = g.Smoothing<C>();
    const C of_label = static_cast<C>(x[label]);  // dx may be x
    for (int64_t i = 0; i < g.classes; ++i) {
      const C p = row.scale * scalar::Exp()(static_cast<C>(x[i]) - row.max);
      dx[i] = T(dloss * (p - spread));
    }
    const C p = row.scale * scalar::Exp()(of_label - row.max);
    dx[label] = T(dloss * (p - spread - keep));
  }
};

// Calls begin(first row, last row) for a run of rows, then row(r, label) for
// each of them whose label is a class.
template <typename L, typename Begin, typename Row>
Status ForEachLabel(const CrossEntropyGeometry& g, const L* labels, Begin begin,
                    Row row) {
  BadRow bad(g.rows);
  ParallelFor(g.rows, g.grain(), [&](int64_t first, int64_t last) {
    begin(first, last);
    for (int64_t r = first; r < last; ++r) {
      const int64_t label = static_cast<int64_t>(labels[r]);
      if (label < 0 || label >= g.classes) {
        bad.Report(r);
      } else {
        row(r, label);
      }
    }
  });
  return bad.ToStatus(labels, g.classes);
}

template <typename T, typename L>
Status SparseRows(const CrossEntropyGeometry& g, Wanted wanted,
                  const KernelContext& k) {
  const CrossEntropyOperands<T> o(wanted, k);
  return ForEachLabel(
      g, k.input<L>(1), [](int64_t, int64_t) {},
      [&](int64_t r, int64_t label) {
        CrossEntropyRow(g, o, r, SparseLabel{label});
      });
}

// float32 by vector code.
template <typename L>
Status FastSparseRows(const CrossEntropyGeometry& g, Wanted wanted,
                      const KernelContext& k) {
  const auto [keep, spread] = g.Smoothing<float>();
  const auto classes = static_cast<float>(g.classes);
  const CrossEntropyOperands<float> o(wanted, k);
  const auto sums_of = [&](int64_t first, int64_t last) {
    if (o.loss_out == nullptr) return;
    // The sums, of which the rows make their scales.
    Simd().sum_exp(o.logits + first * g.classes, o.max_out + first,
                   o.scale_out + first, last - first, g.classes);
  };
  const auto row = [&, keep = keep, spread = spread](int64_t r, int64_t label) {
    const float* x = o.logits + r * g.classes;
    const float max = o.loss_out != nullptr ? o.max_out[r] : o.max[r];
    float scale;
    if (o.loss_out != nullptr) {
      const float log_sum = scalar::Log()(o.scale_out[r]);
      float loss = keep * (log_sum - (x[label] - max));
      if (spread != 0) {
        loss += spread *
                (classes * log_sum - Simd().shifted_sum(x, max, g.classes));
      }
      o.loss_out[r] = loss;
      o.scale_out[r] = scale = 1 / o.scale_out[r];
    } else {
      scale = o.scale[r];
    }
    if (o.dlogits != nullptr) {
      const float dloss = o.dloss[r];
      float* dx = o.dlogits + r * g.classes;
      Simd().shifted_exp(x, max, dloss * scale, dloss * spread, dx, g.classes);
      dx[label] -= dloss * keep;
    }
  };
  return ForEachLabel(g, k.input<L>(1), sums_of, row);
}

// --- The others --------------------------------------------------------------

template <typename T>
void SigmoidCrossEntropy(int64_t n, const KernelContext& k) {
  using C = ComputeType<T>;
  const T* logits = k.input<T>(0);
  const T* labels = k.input<T>(1);
  T* loss = k.output<T>(0);
  ParallelFor(n, 1 << 13, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const C x = static_cast<C>(logits[i]);
      const C tail = scalar::Log1p()(scalar::Exp()(-scalar::Abs()(x)));
      loss[i] = T((x > C(0) ? x : C(0)) - x * static_cast<C>(labels[i]) + tail);
    }
  });
}

// --- Squares -----------------------------------------------------------------

// In double, which holds the squares of all floats, and their last digits.
template <typename T>
double SquaresOf(const T* x, int64_t n) {
  return SumInRuns<double>(n, [&](int64_t i) {
    const double value = static_cast<double>(static_cast<ComputeType<T>>(x[i]));
    return value * value;
  });
}

constexpr int64_t kSumBlock = 1 << 14;

// L2Loss, else SquaredNorm: by blocks, which are then added in order.
template <typename T>
KernelPtr SquaresKernel(const KernelSpec& spec, bool loss,
                        double (*squares_of)(const T* x, int64_t n)) {
  const int64_t n = spec.inputs[0].shape.elements();
  return KernelOf(
      [=](const KernelContext& k) {
        const T* x = k.input<T>(0);
        double* sums = static_cast<double*>(k.workspace());
        ParallelFor(n, kSumBlock, [&](int64_t begin, int64_t end) {
          sums[begin / kSumBlock] = squares_of(x + begin, end - begin);
        });
        double total = 0;
        for (int64_t b = 0; b * kSumBlock < n; ++b) total += sums[b];
        if (loss) {
          *k.output<T>(0) = T(static_cast<ComputeType<T>>(total / 2));
        } else {
          *k.output<double>(0) = total;
        }
      },
      (n / kSumBlock + 1) * sizeof(double));
}

// --- Kernels -----------------------------------------------------------------

auto DenseMaker(Wanted wanted) {
  return [wanted](const KernelSpec& spec) -> Result<KernelPtr> {
    const CrossEntropyGeometry g = GeometryOf(spec);
    return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
      return Result<KernelPtr>(KernelOf(
          [=](const KernelContext& c) { DenseRows<T>(g, wanted, c); }));
    });
  };
}

auto SparseMaker(Wanted wanted) {
  return [wanted](const KernelSpec& spec) -> Result<KernelPtr> {
    const CrossEntropyGeometry g = GeometryOf(spec);
    return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
      return DispatchIndex(spec.inputs[1].dtype, [&]<typename L>(TypeTag<L>) {
        return Result<KernelPtr>(KernelOf([=](const KernelContext& c) {
          return SparseRows<T, L>(g, wanted, c);
        }));
      });
    });
  };
}

auto FastSparseMaker(Wanted wanted) {
  return [wanted](const KernelSpec& spec) -> Result<KernelPtr> {
    const CrossEntropyGeometry g = GeometryOf(spec);
    return DispatchIndex(spec.inputs[1].dtype, [&]<typename L>(TypeTag<L>) {
      return Result<KernelPtr>(KernelOf([=](const KernelContext& c) {
        return FastSparseRows<L>(g, wanted, c);
      }));
    });
  };
}

Result<KernelPtr> MakeSigmoidCrossEntropy(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    return Result<KernelPtr>(KernelOf(
        [n](const KernelContext& c) { SigmoidCrossEntropy<T>(n, c); }));
  });
}

auto SquaresMaker(bool loss) {
  return [loss](const KernelSpec& spec) -> Result<KernelPtr> {
    return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
      return Result<KernelPtr>(SquaresKernel<T>(spec, loss, SquaresOf<T>));
    });
  };
}

auto FastSquaresMaker(bool loss) {
  return [loss](const KernelSpec& spec) -> Result<KernelPtr> {
    return SquaresKernel<float>(spec, loss, Simd().sum_squares);
  };
}

}  // namespace

void RegisterLossKernels(KernelTable& table) {
  auto add = [&](const std::string& op, auto make) {
    table.Register({.op = op, .dtypes = kFloating, .make = make});
  };
  const std::pair<std::string, Wanted> forms[] = {{"", Wanted::kLoss},
                                                  {"Grad", Wanted::kGrad},
                                                  {"WithGrad", Wanted::kBoth}};
  for (const auto& [suffix, wanted] : forms) {
    add("SoftmaxCrossEntropy" + suffix, DenseMaker(wanted));
    add("SparseSoftmaxCrossEntropy" + suffix, SparseMaker(wanted));
    table.Register({.op = "SparseSoftmaxCrossEntropy" + suffix,
                    .priority = 10,
                    .provider = "simd",
                    .supports =
                        [](const KernelSpec& spec) {
                          return spec.inputs[0].shape[-1] > 0;
                        },
                    .dtypes = DType::kFloat32,
                    .make = FastSparseMaker(wanted)});
  }
  add("SigmoidCrossEntropy", MakeSigmoidCrossEntropy);
  for (const auto& [op, loss] :
       {std::pair("L2Loss", true), {"SquaredNorm", false}}) {
    add(op, SquaresMaker(loss));
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .dtypes = DType::kFloat32,
                    .make = FastSquaresMaker(loss)});
  }
}

}  // namespace sluice::cpu
