// Reductions over any dimensions, the reference for every dtype.
//
// A reduction is a list of stages over [outer, n, inner], innermost dimensions
// first. A long n is cut into segments, whose partial results the next stage
// combines; the cuts and the order depend on shapes alone, so the bits do not
// depend on the number of threads. Partial results are a reducer's State, wide
// enough that sums of 10^7 float32 elements stay accurate.
#include "kernels/cpu/reduce.h"

#include <cmath>
#include <limits>

#include "engine/scalar.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {

std::vector<DimGroup> GroupDims(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  std::vector<bool> reduced(x.rank(), false);
  if (spec.attrs.Has("axes")) {
    const std::vector<int64_t>& axes = spec.attrs.Ints("axes");
    if (axes.empty()) reduced.assign(x.rank(), true);
    for (int64_t a : axes) reduced[a < 0 ? a + x.rank() : a] = true;
  } else {
    const Shape& y = spec.outputs[0].shape;
    for (int d = 1; d <= x.rank(); ++d) {
      reduced[x.rank() - d] = d > y.rank() || y[-d] == 1;
    }
  }
  std::vector<DimGroup> groups;
  for (int d = 0; d < x.rank(); ++d) {
    if (x[d] == 1) continue;
    if (!groups.empty() && groups.back().reduced == reduced[d]) {
      groups.back().size *= x[d];
    } else {
      groups.push_back({x[d], reduced[d]});
    }
  }
  return groups;
}

AxisForm FormOf(const KernelSpec& spec, int operand) {
  const Shape& x = spec.inputs[operand].shape;
  int axis = static_cast<int>(spec.attrs.Int("axis"));
  if (axis < 0) axis += x.rank();
  return {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank())};
}

int64_t ReducedCount(const std::vector<DimGroup>& groups) {
  int64_t count = 1;
  for (const DimGroup& group : groups) {
    if (group.reduced) count *= group.size;
  }
  return count;
}

namespace {

// --- Reducers ----------------------------------------------------------------
// Start() is the result of nothing, Step takes in an element, Merge another
// state; Finish gives the result, `count` being the number of elements.

template <typename T>
struct SumReducer {
  using Element = T;
  using State = Wide<T>;
  static State Start() { return 0; }
  static void Step(State& s, ComputeType<T> x) { s += static_cast<State>(x); }
  static void Merge(State& s, State other) { s += other; }
  static T Finish(State s, int64_t) {
    return T(static_cast<ComputeType<T>>(s));
  }
};

template <typename T>
struct MeanReducer : SumReducer<T> {
  static T Finish(double s, int64_t count) {
    return T(static_cast<ComputeType<T>>(s / static_cast<double>(count)));
  }
};

template <typename T>
struct ProdReducer : SumReducer<T> {
  using State = Wide<T>;
  static State Start() { return 1; }
  static void Step(State& s, ComputeType<T> x) { s *= static_cast<State>(x); }
  static void Merge(State& s, State other) { s *= other; }
};

// Choose is scalar::Maximum or Minimum.
template <typename T, typename Choose>
struct ExtremeReducer {
  using Element = T;
  using State = ComputeType<T>;
  static State Start() {
    using Limits = std::numeric_limits<State>;
    constexpr bool kMax = std::is_same_v<Choose, scalar::Maximum>;
    if (Limits::has_infinity) {
      return kMax ? static_cast<State>(-Limits::infinity())
                  : Limits::infinity();
    }
    return kMax ? Limits::lowest() : Limits::max();
  }
  static void Step(State& s, State x) { s = Choose()(s, x); }
  static void Merge(State& s, State other) { s = Choose()(s, other); }
  static T Finish(State s, int64_t) { return T(s); }
};
template <typename T>
using MaxReducer = ExtremeReducer<T, scalar::Maximum>;
template <typename T>
using MinReducer = ExtremeReducer<T, scalar::Minimum>;

// exp(max) * sum, max being the largest so far.
struct ScaledSum {
  double max;
  double sum;
};
template <typename T>
struct LogSumExpReducer {
  using Element = T;
  using State = ScaledSum;
  static State Start() { return {-std::numeric_limits<double>::infinity(), 0}; }
  static void Step(State& s, ComputeType<T> x) {
    Merge(s, {static_cast<double>(x), 1});
  }
  // Equal maxima apart, or infinities would make NaN.
  static void Merge(State& s, State other) {
    if (other.max > s.max) std::swap(s, other);
    s.sum += other.max == s.max ? other.sum
                                : other.sum * std::exp(other.max - s.max);
  }
  static T Finish(State s, int64_t) {
    return T(static_cast<ComputeType<T>>(s.max + std::log(s.sum)));
  }
};

template <bool kAll>
struct LogicalReducer {
  using Element = bool;
  using State = bool;
  static bool Start() { return kAll; }
  static void Step(bool& s, bool x) { s = kAll ? s && x : s || x; }
  static void Merge(bool& s, bool other) { Step(s, other); }
  static bool Finish(bool s, int64_t) { return s; }
};

// --- Stages ------------------------------------------------------------------

// [outer, n, inner] to [outer, segments, inner].
struct Stage {
  AxisForm form;
  int64_t rows;  // of n in one segment
  int64_t segments;
};

// Stages that reduce n altogether.
void AddStages(AxisForm form, std::vector<Stage>* stages) {
  const int64_t columns = std::min(form.inner, kColumnBlock);
  const int64_t rows =
      std::max<int64_t>(256, kReduceGrain / std::max<int64_t>(1, columns));
  int64_t segments;
  do {
    segments = std::max<int64_t>(1, (form.n + rows - 1) / rows);
    stages->push_back({form, rows, segments});
    form.n = segments;
  } while (segments > 1);
}

std::vector<Stage> PlanStages(std::vector<DimGroup> groups) {
  std::vector<Stage> stages;
  auto product = [&](size_t from, size_t to) {
    int64_t size = 1;
    for (size_t i = from; i < to; ++i) size *= groups[i].size;
    return size;
  };
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].reduced) continue;
    AddStages({product(0, i), groups[i].size, product(i + 1, groups.size())},
              &stages);
    groups.erase(groups.begin() + static_cast<ptrdiff_t>(i));
  }
  if (stages.empty()) AddStages({product(0, groups.size()), 1, 1}, &stages);
  return stages;
}

// Of one stage: the first reads elements, the last writes them.
template <typename R, bool kFirst, bool kLast>
void RunStage(const Stage& stage, const void* in_data, void* out_data,
              int64_t count) {
  using State = typename R::State;
  using Element = typename R::Element;
  using In = std::conditional_t<kFirst, Element, State>;
  using Out = std::conditional_t<kLast, Element, State>;
  const In* in = static_cast<const In*>(in_data);
  Out* out = static_cast<Out*>(out_data);
  auto take = [](State& s, In x) {
    if constexpr (kFirst) {
      R::Step(s, static_cast<ComputeType<Element>>(x));
    } else {
      R::Merge(s, x);
    }
  };
  auto put = [count](State s) {
    if constexpr (kLast) {
      return R::Finish(s, count);
    } else {
      (void)count;
      return s;
    }
  };
  const auto [outer, n, inner] = stage.form;
  const int64_t blocks = (inner + kColumnBlock - 1) / kColumnBlock;
  const int64_t cost = std::max<int64_t>(
      1, std::min(n, stage.rows) * (inner / std::max<int64_t>(1, blocks)));
  ParallelFor(
      outer * stage.segments * blocks,
      std::max<int64_t>(1, kReduceGrain / cost),
      [&, n = n, inner = inner](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t result_row = task / blocks;
          const int64_t segment = result_row % stage.segments;
          const int64_t first = segment * stage.rows;
          const int64_t rows = std::min(stage.rows, n - first);
          const int64_t column = task % blocks * kColumnBlock;
          const In* x =
              in + (result_row / stage.segments * n + first) * inner + column;
          Out* y = out + result_row * inner + column;
          if (inner == 1) {
            State s = R::Start();
            for (int64_t i = 0; i < rows; ++i) take(s, x[i]);
            *y = put(s);
            continue;
          }
          const int64_t columns = std::min(kColumnBlock, inner - column);
          State block[kColumnBlock];
          std::fill_n(block, columns, R::Start());
          for (int64_t i = 0; i < rows; ++i, x += inner) {
            for (int64_t j = 0; j < columns; ++j) take(block[j], x[j]);
          }
          for (int64_t j = 0; j < columns; ++j) y[j] = put(block[j]);
        }
      });
}

template <typename R>
Result<KernelPtr> MakeReduce(const KernelSpec& spec) {
  using State = typename R::State;
  const std::vector<DimGroup> groups = GroupDims(spec);
  const int64_t count = ReducedCount(groups);
  const std::vector<Stage> stages = PlanStages(groups);
  size_t states = 0;
  for (const Stage& s : stages) {
    states += s.form.outer * s.segments * s.form.inner;
  }
  states -= spec.outputs[0].shape.elements();  // what the last stage writes
  return KernelOf(
      [stages, count](const KernelContext& c) {
        const void* in = c.input<void>(0);
        State* next = static_cast<State*>(c.workspace());
        for (size_t i = 0; i < stages.size(); ++i) {
          const Stage& s = stages[i];
          if (i + 1 == stages.size()) {
            (i == 0
                 ? RunStage<R, true, true>
                 : RunStage<R, false, true>)(s, in, c.output<void>(0), count);
            return;
          }
          (i == 0 ? RunStage<R, true, false>
                  : RunStage<R, false, false>)(s, in, next, count);
          in = next;
          next += s.form.outer * s.segments * s.form.inner;
        }
      },
      states * sizeof(State));
}

template <template <typename> typename R, typename... Ts>
void Register(KernelTable& table, const char* op) {
  (table.Register(
       {.op = op, .dtypes = DTypeOf<Ts>::value, .make = MakeReduce<R<Ts>>}),
   ...);
}
template <template <typename> typename R>
void RegisterFloating(KernelTable& table, const char* op) {
  Register<R, float, double, Half, BFloat16>(table, op);
}
template <template <typename> typename R>
void RegisterNumeric(KernelTable& table, const char* op) {
  RegisterFloating<R>(table, op);
  Register<R, int8_t, uint8_t, int32_t, int64_t>(table, op);
}

}  // namespace

void RegisterReduceKernels(KernelTable& table) {
  RegisterNumeric<SumReducer>(table, "Sum");
  RegisterNumeric<SumReducer>(table, "SumTo");
  RegisterNumeric<ProdReducer>(table, "Prod");
  RegisterNumeric<MaxReducer>(table, "Max");
  RegisterNumeric<MinReducer>(table, "Min");
  RegisterFloating<MeanReducer>(table, "Mean");
  RegisterFloating<LogSumExpReducer>(table, "LogSumExp");
  table.Register({.op = "Any",
                  .dtypes = DType::kBool,
                  .make = MakeReduce<LogicalReducer<false>>});
  table.Register({.op = "All",
                  .dtypes = DType::kBool,
                  .make = MakeReduce<LogicalReducer<true>>});
  RegisterReduceSimdKernels(table);
  RegisterReduceScanKernels(table);
}

}  // namespace sluice::cpu
