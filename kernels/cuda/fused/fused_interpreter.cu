// Runs any fused program: each thread walks through the steps for one element
// after another, their values in local memory. For where there is no compiler;
// generated kernels keep values in registers.
#include <algorithm>
#include <string_view>

#include "kernels/cuda/fused/fused.h"
#include "kernels/cuda/fused/fused_device.h"

namespace sluice::cuda {
namespace {

// A step's function is a number: Select, then those of these lists in turn.
constexpr int kSelect = 0;
template <typename... A, typename... B, typename... C, typename... D>
constexpr auto Joined(scalar::OpList<A...>, scalar::OpList<B...>,
                      scalar::OpList<C...>, scalar::OpList<D...>) {
  return scalar::OpList<A..., B..., C..., D...>();
}
using Functions =
    decltype(Joined(scalar::UnaryOps(), scalar::UnaryPredicates(),
                    scalar::BinaryOps(), scalar::BinaryPredicates()));

template <typename... Ops>
int NumberOf(std::string_view function, scalar::OpList<Ops...>) {
  int number = kSelect, found = kSelect;
  ((++number, found = function == Ops::kName ? number : found), ...);
  return found;
}

// bool is 0 or 1.
template <typename Op, typename C>
__device__ C Call(const InterpretedStep& step, C x, C y) {
  const Op op = scalar::MakeOp<Op>(step.params[0], step.params[1]);
  if constexpr (requires { op(x); }) {
    return static_cast<C>(op(x));
  } else {
    return static_cast<C>(op(x, y));
  }
}
template <typename C, typename... Ops>
__device__ C CallNumber(const InterpretedStep& step, C x, C y,
                        scalar::OpList<Ops...>) {
  int number = kSelect;
  C result = 0;
  (void)((step.function == ++number &&
          (result = Call<Ops>(step, x, y), true)) ||
         ...);
  return result;
}
// Not inlined: it is all of engine/semantics/scalar.h, and called from several
// places.
template <typename C>
__attribute__((noinline)) __device__ C Apply(const InterpretedStep& step, C x,
                                             C y, C z) {
  if (step.function == kSelect) return x != C(0) ? y : z;
  return CallNumber(step, x, y, Functions());
}

template <typename E>
struct Interpreter {
  using T = E;
  using C = E;
  static constexpr int kN = 1;
  const FusedArguments& a;
  const InterpretedProgram& p;

  __device__ C Load(int input, const Indices& index, int64_t i) const {
    const FusedRead read = p.reads[input];
    const int64_t at = read == FusedRead::kElements ? i
                       : read == FusedRead::kScalar
                           ? 0
                           : OffsetOf(a, input, p.rank, index);
    const void* x = a.inputs[input];
    if (p.dtype == DType::kFloat16) {
      return C(float(static_cast<const Float16*>(x)[at]));
    }
    if (p.dtype == DType::kBFloat16) {
      return C(float(static_cast<const BrainFloat16*>(x)[at]));
    }
    return static_cast<const C*>(x)[at];
  }
  __device__ void Store(void* y, int64_t i, C value) const {
    if (p.dtype == DType::kFloat16) {
      static_cast<Float16*>(y)[i] = Float16(static_cast<float>(value));
    } else if (p.dtype == DType::kBFloat16) {
      static_cast<BrainFloat16*>(y)[i] =
          BrainFloat16(static_cast<float>(value));
    } else {
      static_cast<C*>(y)[i] = value;
    }
  }

  // Values do not stay in registers anyway.
  struct Fetched {};
  __device__ Fetched Fetch(int64_t, int64_t, bool) const { return {}; }

  __device__ Pack<C, 1> operator()(Fetched, int64_t i, int64_t, bool) const {
    C values[kMostFusedInputs + kMostInterpretedSteps];
    const Indices index = IndicesOf(a, p.rank, i);
    for (int k = 0; k < p.inputs; ++k) values[k] = Load(k, index, i);
    for (int s = 0; s < p.steps; ++s) {
      const InterpretedStep& step = p.step[s];
      values[p.inputs + s] =
          Apply(step, values[step.operands[0]], values[step.operands[1]],
                values[step.operands[2]]);
    }
    for (int k = 0; k < p.outputs; ++k) {
      Store(a.outputs[k], i, values[p.stored[k]]);
    }
    return {{values[p.summed]}};
  }
};

template <typename C>
__global__ void __launch_bounds__(kFusedThreads)
    InterpreterKernel(const __grid_constant__ FusedArguments a,
                      const __grid_constant__ InterpretedProgram p) {
  const Interpreter<C> program{a, p};
  switch (p.sum) {
    case FusedSumKind::kNone:
      return ForEachPack(program);
    case FusedSumKind::kTrailing:
      return SumTrailing(program);
    case FusedSumKind::kLeading:
      return SumLeading(program);
  }
}

}  // namespace

Result<InterpretedProgram> InterpretedProgramOf(const FusedForm& form) {
  const std::vector<FusedStep>& steps = form.program.steps;
  if (steps.size() > kMostInterpretedSteps) {
    return Unimplemented("a fused program of " + std::to_string(steps.size()) +
                         " steps; the interpreter takes " +
                         std::to_string(kMostInterpretedSteps));
  }
  InterpretedProgram p = {};
  p.dtype = form.dtype;
  p.sum = form.sum;
  p.inputs = static_cast<uint8_t>(form.reads.size());
  p.steps = static_cast<uint8_t>(steps.size());
  p.outputs = static_cast<uint8_t>(form.stored.size());
  p.rank = static_cast<uint8_t>(form.rank);
  std::copy(form.reads.begin(), form.reads.end(), p.reads);
  for (size_t k = 0; k < form.stored.size(); ++k) {
    p.stored[k] = static_cast<uint8_t>(form.stored[k]);
  }
  p.summed = static_cast<uint8_t>(std::max(form.summed, 0));
  for (size_t s = 0; s < steps.size(); ++s) {
    InterpretedStep& step = p.step[s];
    step.function =
        static_cast<uint8_t>(NumberOf(steps[s].function, Functions()));
    for (size_t k = 0; k < steps[s].operands.size(); ++k) {
      step.operands[k] = static_cast<uint8_t>(steps[s].operands[k]);
    }
    std::copy(steps[s].params.begin(), steps[s].params.end(), step.params);
  }
  return p;
}

Status LaunchInterpreted(const InterpretedProgram& program,
                         const FusedWork& work, const FusedArguments& arguments,
                         cudaStream_t stream) {
  return DispatchFloatDouble(
      ComputeDType(program.dtype), [&]<typename C>(TypeTag<C>) {
        return Launch("Fused", {work.blocks, kFusedThreads, work.shared_bytes},
                      stream, InterpreterKernel<C>, arguments, program);
      });
}

}  // namespace sluice::cuda
