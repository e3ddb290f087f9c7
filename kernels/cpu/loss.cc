// Losses. The inner loops are branch-free, so that they become vector code.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "engine/scalar.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

struct CrossEntropyGeometry {
  int64_t rows = 0, classes = 0;
  double smoothing = 0;

  int64_t grain() const {
    return std::max<int64_t>((1 << 13) / std::max<int64_t>(classes, 1), 1);
  }
};

CrossEntropyGeometry GeometryOf(const KernelSpec& spec) {
  const Shape& logits = spec.inputs[0].shape;
  return {logits.elements(0, logits.rank() - 1), logits[-1],
          spec.attrs.Float("label_smoothing")};
}

// log(sum(exp(x))), the largest element taken out first.
template <typename T>
ComputeType<T> LogSumExp(const T* x, int64_t n) {
  using C = ComputeType<T>;
  C max = static_cast<C>(x[0]);
  for (int64_t i = 1; i < n; ++i) max = std::max(max, static_cast<C>(x[i]));
  constexpr int kLanes = 8;
  C sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sum[lane] += scalar::Exp()(static_cast<C>(x[i + lane]) - max);
    }
  }
  for (; i < n; ++i) sum[0] += scalar::Exp()(static_cast<C>(x[i]) - max);
  C total = 0;
  for (C partial : sum) total += partial;
  return max + scalar::Log()(total);
}

// --- Dense labels ------------------------------------------------------------

template <typename T>
void DenseRows(const CrossEntropyGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const C keep = static_cast<C>(1 - g.smoothing);
  const C spread = static_cast<C>(g.smoothing / static_cast<double>(g.classes));
  ParallelFor(g.rows, g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = k.input<T>(0) + r * g.classes;
      const T* labels = k.input<T>(1) + r * g.classes;
      const C log_sum_exp = LogSumExp(x, g.classes);
      C loss = 0;
      for (int64_t i = 0; i < g.classes; ++i) {
        loss += (keep * static_cast<C>(labels[i]) + spread) *
                (log_sum_exp - static_cast<C>(x[i]));
      }
      k.output<T>(0)[r] = T(loss);
      k.output<T>(1)[r] = T(log_sum_exp);
    }
  });
}

template <typename T>
void DenseGradRows(const CrossEntropyGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const C keep = static_cast<C>(1 - g.smoothing);
  const C spread = static_cast<C>(g.smoothing / static_cast<double>(g.classes));
  ParallelFor(g.rows, g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = k.input<T>(0) + r * g.classes;
      const T* labels = k.input<T>(1) + r * g.classes;
      T* dx = k.output<T>(0) + r * g.classes;
      const C log_sum_exp = static_cast<C>(k.input<T>(2)[r]);
      const C dloss = static_cast<C>(k.input<T>(3)[r]);
      C total = static_cast<C>(g.smoothing);
      for (int64_t i = 0; i < g.classes; ++i) {
        total += keep * static_cast<C>(labels[i]);
      }
      for (int64_t i = 0; i < g.classes; ++i) {
        const C p = scalar::Exp()(static_cast<C>(x[i]) - log_sum_exp);
        const C label = keep * static_cast<C>(labels[i]) + spread;
        dx[i] = T(dloss * (p * total - label));
      }
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
    return OutOfRange(
        fmt::format("label {} in row {} is not a class: the logits have {} "
                    "classes, counted from 0",
                    labels[row], row, classes));
  }

 private:
  std::atomic<int64_t> row_;
  int64_t rows_;
};

template <typename T, typename L>
Status SparseRows(const CrossEntropyGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const C keep = static_cast<C>(1 - g.smoothing);
  const C spread = static_cast<C>(g.smoothing / static_cast<double>(g.classes));
  const L* labels = k.input<L>(1);
  BadRow bad(g.rows);
  ParallelFor(g.rows, g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t label = static_cast<int64_t>(labels[r]);
      if (label < 0 || label >= g.classes) {
        bad.Report(r);
        continue;
      }
      const T* x = k.input<T>(0) + r * g.classes;
      const C log_sum_exp = LogSumExp(x, g.classes);
      C loss = keep * (log_sum_exp - static_cast<C>(x[label]));
      if (spread != 0) {
        for (int64_t i = 0; i < g.classes; ++i) {
          loss += spread * (log_sum_exp - static_cast<C>(x[i]));
        }
      }
      k.output<T>(0)[r] = T(loss);
      k.output<T>(1)[r] = T(log_sum_exp);
    }
  });
  return bad.ToStatus(labels, g.classes);
}

template <typename T, typename L>
Status SparseGradRows(const CrossEntropyGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const C keep = static_cast<C>(1 - g.smoothing);
  const C spread = static_cast<C>(g.smoothing / static_cast<double>(g.classes));
  const L* labels = k.input<L>(1);
  BadRow bad(g.rows);
  ParallelFor(g.rows, g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t label = static_cast<int64_t>(labels[r]);
      if (label < 0 || label >= g.classes) {
        bad.Report(r);
        continue;
      }
      const T* x = k.input<T>(0) + r * g.classes;
      T* dx = k.output<T>(0) + r * g.classes;
      const C log_sum_exp = static_cast<C>(k.input<T>(2)[r]);
      const C dloss = static_cast<C>(k.input<T>(3)[r]);
      const C of_label = static_cast<C>(x[label]);  // dx may be x
      for (int64_t i = 0; i < g.classes; ++i) {
        const C p = scalar::Exp()(static_cast<C>(x[i]) - log_sum_exp);
        dx[i] = T(dloss * (p - spread));
      }
      dx[label] =
          T(dloss * (scalar::Exp()(of_label - log_sum_exp) - spread - keep));
    }
  });
  return bad.ToStatus(labels, g.classes);
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

constexpr int64_t kSumBlock = 1 << 14;

// Half the sum of squares: by blocks, which are then added in order.
template <typename T>
void L2Loss(int64_t n, const KernelContext& k) {
  using C = ComputeType<T>;
  const T* x = k.input<T>(0);
  C* sums = static_cast<C*>(k.workspace());
  ParallelFor(n, kSumBlock, [&](int64_t begin, int64_t end) {
    constexpr int kLanes = 8;
    C sum[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const C value = static_cast<C>(x[i + lane]);
        sum[lane] += value * value;
      }
    }
    for (; i < end; ++i) {
      sum[0] += static_cast<C>(x[i]) * static_cast<C>(x[i]);
    }
    C total = 0;
    for (C partial : sum) total += partial;
    sums[begin / kSumBlock] = total;
  });
  C total = 0;
  for (int64_t b = 0; b * kSumBlock < n; ++b) total += sums[b];
  *k.output<T>(0) = T(total / 2);
}

// --- Kernels -----------------------------------------------------------------

// run(TypeTag of the logits, geometry, context).
template <typename Run>
auto DenseMaker(Run run) {
  return [run](const KernelSpec& spec) -> Result<KernelPtr> {
    const CrossEntropyGeometry g = GeometryOf(spec);
    return DispatchFloating(
        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T> tag) {
          return Result<KernelPtr>(
              KernelOf([=](const KernelContext& c) { run(tag, g, c); }));
        });
  };
}

// run(TypeTag of the logits, TypeTag of the labels, geometry, context).
template <typename Run>
auto SparseMaker(Run run) {
  return [run](const KernelSpec& spec) -> Result<KernelPtr> {
    const CrossEntropyGeometry g = GeometryOf(spec);
    return DispatchFloating(
        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T> tag) {
          return DispatchIndex(
              spec.inputs[1].dtype, [&]<typename L>(TypeTag<L> label_tag) {
                return Result<KernelPtr>(KernelOf([=](const KernelContext& c) {
                  return run(tag, label_tag, g, c);
                }));
              });
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

Result<KernelPtr> MakeL2Loss(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    return Result<KernelPtr>(
        KernelOf([n](const KernelContext& c) { L2Loss<T>(n, c); },
                 (n / kSumBlock + 1) * sizeof(ComputeType<T>)));
  });
}

}  // namespace

void RegisterLossKernels(KernelTable& table) {
  auto add = [&](const char* op, auto make) {
    table.Register({.op = op, .dtypes = kFloating, .make = make});
  };
  add("SoftmaxCrossEntropy",
      DenseMaker(
          []<typename T>(TypeTag<T>, const CrossEntropyGeometry& g,
                         const KernelContext& c) { DenseRows<T>(g, c); }));
  add("SoftmaxCrossEntropyGrad",
      DenseMaker(
          []<typename T>(TypeTag<T>, const CrossEntropyGeometry& g,
                         const KernelContext& c) { DenseGradRows<T>(g, c); }));
  add("SparseSoftmaxCrossEntropy",
      SparseMaker([]<typename T, typename L>(TypeTag<T>, TypeTag<L>,
                                             const CrossEntropyGeometry& g,
                                             const KernelContext& c) {
        return SparseRows<T, L>(g, c);
      }));
  add("SparseSoftmaxCrossEntropyGrad",
      SparseMaker([]<typename T, typename L>(TypeTag<T>, TypeTag<L>,
                                             const CrossEntropyGeometry& g,
                                             const KernelContext& c) {
        return SparseGradRows<T, L>(g, c);
      }));
  add("SigmoidCrossEntropy", MakeSigmoidCrossEntropy);
  add("L2Loss", MakeL2Loss);
}

}  // namespace sluice::cpu
