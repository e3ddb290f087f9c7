// Reductions over any dimensions, the reference for every dtype.
//
// A reduction is a list of stages over [outer, n, inner], innermost dimensions
// first. A long n is cut into segments, whose partial results the next stage
// combines; the cuts and the order depend on shapes alone, so the bits do not
// depend on the number of threads. Partial results are a reducer's State, wide
// enough that sums of 10^7 float32 elements stay accurate; those of doubles are
// added up in runs.
#include "kernels/cpu/reduce/reduce.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "engine/ceil_div.h"
#include "engine/convert.h"
#include "engine/runtime/finite_check.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/reduce/reducers.h"
#include "kernels/cpu/sum_in_runs.h"
#include "kernels/cpu/tensor_list.h"

namespace sluice::cpu {

namespace {

// [outer, n, inner] to [outer, segments, inner].
struct Stage {
  AxisForm form;
  int64_t rows;  // of n in one segment
  int64_t segments;

  int64_t results() const { return form.outer * segments * form.inner; }
};

// Stages that reduce n altogether.
void AddStages(AxisForm form, std::vector<Stage>* stages) {
  const int64_t columns = std::min(form.inner, kColumnBlock);
  const int64_t rows =
      std::max<int64_t>(256, kReduceGrain / std::max<int64_t>(1, columns));
  int64_t segments;
  do {
    segments = std::max<int64_t>(1, CeilDiv(form.n, rows));
    stages->push_back({form, rows, segments});
    form.n = segments;
  } while (segments > 1);
}

std::vector<Stage> PlanStages(const std::vector<DimGroup>& groups) {
  std::vector<Stage> stages;
  for (const AxisForm& step : ReductionSteps(groups)) {
    AddStages(step, &stages);
  }
  return stages;
}

// y[columns] = x[rows, inner]'s first columns, at most kColumnBlock, each
// combined over the rows. In one sum of thousands of doubles, which `from`
// leaves as they are, the last digits of each would be lost; those of narrower
// elements are far from the last of a double.
template <typename Monoid, typename In, typename From>
void CombineRows(const In* x, int64_t rows, int64_t inner, int64_t columns,
                 From from, typename Monoid::State* y) {
  using State = typename Monoid::State;
  constexpr bool kInRuns =
      std::is_same_v<Monoid, Sums<double>> && std::is_same_v<In, double>;
  if (inner == 1) {
    if constexpr (kInRuns) {
      *y = SumInRuns<double>(rows, [&](int64_t i) { return from(x[i]); });
    } else {
      State s = Monoid::Start();
      for (int64_t i = 0; i < rows; ++i) Monoid::Merge(s, from(x[i]));
      *y = s;
    }
  } else if constexpr (kInRuns) {
    SumRowsInRuns(x, rows, inner, columns, y);
  } else {
    State block[kColumnBlock];
    std::fill_n(block, columns, Monoid::Start());
    for (int64_t i = 0; i < rows; ++i, x += inner) {
      for (int64_t j = 0; j < columns; ++j) {
        Monoid::Merge(block[j], from(x[j]));
      }
    }
    std::copy_n(block, columns, y);
  }
}

// One stage; `from` makes a state of what the input holds.
template <typename Monoid, typename In, typename From>
void RunStage(const Stage& stage, const In* in, typename Monoid::State* out,
              From from) {
  const auto [outer, n, inner] = stage.form;
  const int64_t blocks = CeilDiv(inner, kColumnBlock);
  const int64_t cost = std::max<int64_t>(
      1, std::min(n, stage.rows) * (inner / std::max<int64_t>(1, blocks)));
  ParallelFor(outer * stage.segments * blocks,
              std::max<int64_t>(1, kReduceGrain / cost),
              [&, n = n, inner = inner](int64_t begin, int64_t end) {
                for (int64_t task = begin; task < end; ++task) {
                  const int64_t result_row = task / blocks;
                  const int64_t segment = result_row % stage.segments;
                  const int64_t first = segment * stage.rows;
                  const int64_t rows = std::min(stage.rows, n - first);
                  const int64_t column = task % blocks * kColumnBlock;
                  const In* x =
                      in + (result_row / stage.segments * n + first) * inner +
                      column;
                  CombineRows<Monoid>(x, rows, inner,
                                      std::min(kColumnBlock, inner - column),
                                      from, out + result_row * inner + column);
                }
              });
}

// The stages' results follow each other in the workspace.
template <typename R>
Result<KernelPtr> MakeReduce(const KernelSpec& spec) {
  using State = typename R::State;
  const std::vector<DimGroup> groups = GroupDims(spec);
  const int64_t count = ReducedCount(groups);
  const int64_t results = spec.outputs[0].shape.elements();
  const std::vector<Stage> stages = PlanStages(groups);
  size_t states = 0;
  for (const Stage& s : stages) states += s.results();
  return KernelOf(
      [stages, count, results](const KernelContext& c) {
        using Element = typename R::Element;
        using Monoid = typename R::Monoid;
        State* state = static_cast<State*>(c.workspace());
        RunStage<Monoid>(stages[0], c.input<Element>(0), state,
                         [](Element x) { return R::From(x); });
        for (size_t i = 1; i < stages.size(); ++i) {
          State* next = state + stages[i - 1].results();
          RunStage<Monoid>(stages[i], state, next, [](State s) { return s; });
          state = next;
        }
        ParallelFor(results, kReduceGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            c.output<Element>(0)[i] = R::Finish(state[i], count);
          }
        });
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

// Whether finite(operand, its first element, number) holds for all pieces of
// the operands from `first` on.
template <typename Finite>
KernelPtr AllPieces(const KernelSpec& spec, int first, Finite finite) {
  return KernelOf([tensors = TensorList(std::span(spec.inputs).subspan(first)),
                   first, finite](const KernelContext& c) {
    std::atomic<bool> all = true;
    ParallelFor(
        tensors.elements(), kReduceGrain, [&](int64_t begin, int64_t end) {
          tensors.ForEach(begin, end, [&](int k, int64_t at, int64_t n) {
            if (!finite(c, first + k, at, n)) {
              all.store(false, std::memory_order_relaxed);
            }
          });
        });
    *c.output<bool>(0) = all;
  });
}

Result<KernelPtr> MakeAllFinite(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  return AllPieces(
      spec, 0, [dtype](const KernelContext& c, int k, int64_t at, int64_t n) {
        return AllFinite(dtype, c.input<char>(k) + at * SizeOf(dtype), n);
      });
}

Result<KernelPtr> MakeAllFiniteScaled(const KernelSpec& spec) {
  std::vector<DType> dtypes;
  for (const TensorType& input : spec.inputs) dtypes.push_back(input.dtype);
  return AllPieces(
      spec, 1, [dtypes](const KernelContext& c, int k, int64_t at, int64_t n) {
        const float scale = *c.input<float>(0);
        return DispatchFloating(dtypes[k], [&]<typename T>(TypeTag<T>) {
          const T* x = c.input<T>(k) + at;
          bool finite = true;
          for (int64_t i = 0; i < n; ++i) {
            finite &= std::isfinite(Convert<float>(x[i]) * scale);
          }
          return finite;
        });
      });
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
  table.Register(
      {.op = "Any", .dtypes = DType::kBool, .make = MakeReduce<AnyReducer>});
  table.Register(
      {.op = "All", .dtypes = DType::kBool, .make = MakeReduce<AllReducer>});
  table.Register(
      {.op = "AllFinite", .dtypes = kFloating, .make = MakeAllFinite});
  table.Register({.op = "AllFiniteScaled",
                  .dtypes = DType::kFloat32,
                  .make = MakeAllFiniteScaled});
  RegisterReduceSimdKernels(table);
  RegisterReduceScanKernels(table);
}

}  // namespace sluice::cpu
