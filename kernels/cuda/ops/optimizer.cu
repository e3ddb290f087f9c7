// Optimizer steps over a list of variables: each block takes a chunk of one of
// them, which it finds by its number.
#include "kernels/cuda/ops/optimizer.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/array_chunks.h"
#include "kernels/cuda/device/optimizer_step.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kChunk = 1 << 12;  // elements; whole packs
constexpr int kThreads = 256;

// What one step of a rule reads of N elements: G is the gradient's type.
template <typename T, typename G>
struct Elements {
  static constexpr int kN = kPack<T>;
  Pack<T, kN> variable, slots[2];
  Pack<G, kN> gradient;
};

template <typename Rule, typename T, typename G>
__device__ void UpdateChunk(const OptimizerTensor& tensor, int64_t chunk,
                            const optimizer::Update<T>& u, T gradient_scale,
                            T gradient_decay) {
  constexpr int kN = kPack<T>;
  constexpr Rule rule{};
  // Not read again: what is stored might be them, for all the compiler knows.
  T* const p = static_cast<T*>(tensor.variable);
  T* const a = static_cast<T*>(tensor.slots[0]);
  T* const b = static_cast<T*>(tensor.slots[1]);
  const G* const g = static_cast<const G*>(tensor.gradient);
  const bool whole = IsAligned<T>(p) && IsAligned<T>(a) && IsAligned<T>(b) &&
                     IsAligned<G, kN>(g);
  const int64_t first = (chunk - tensor.first_chunk) * kChunk;
  const int64_t end = scalar::Minimum()(first + kChunk, tensor.elements);
  ForPacks<kN, 1>(
      first, end, threadIdx.x, blockDim.x, whole,
      [&](int64_t i, int64_t count, bool at_once) {
        Elements<T, G> in;
        in.variable = LoadPack<T>(p + i, count, at_once);
        in.gradient = LoadPack<G, kN>(g + i, count, at_once);
        if (Rule::kSlots > 0) in.slots[0] = LoadPack<T>(a + i, count, at_once);
        if (Rule::kSlots > 1) in.slots[1] = LoadPack<T>(b + i, count, at_once);
        return in;
      },
      [&](Elements<T, G> in, int64_t i, int64_t count, bool at_once) {
        for (int k = 0; k < kN; ++k) {
          T& value = in.variable.at[k];
          // Nothing times an infinite parameter is no number. To look at the
          // factor instead would make two loops of this one.
          const T decay = gradient_decay * value;
          const T gradient =
              T(static_cast<ComputeOf<G>>(in.gradient.at[k])) * gradient_scale +
              (decay == decay ? decay : T(0));
          rule(u, gradient, value, in.slots[0].at[k], in.slots[1].at[k]);
        }
        StorePack(in.variable, p + i, count, at_once);
        if (Rule::kSlots > 0) StorePack(in.slots[0], a + i, count, at_once);
        if (Rule::kSlots > 1) StorePack(in.slots[1], b + i, count, at_once);
      });
}

template <typename Rule, typename T>
__global__ void __launch_bounds__(kThreads)
    OptimizerKernel(OptimizerList list, OptimizerParams params) {
  if (list.apply != nullptr && !*list.apply) return;
  const auto u = UpdateOfStep<T>(params, list.learning_rate, list.step);
  const T scale = list.gradient_scale == nullptr
                      ? T(1)
                      : static_cast<T>(*list.gradient_scale);
  for (int64_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const int variable = ArrayOf(list.tensors, list.count, chunk);
    const T decay = variable < params.decayed
                        ? static_cast<T>(params.gradient_decay)
                        : T(0);
    const OptimizerTensor& tensor = list.tensors[variable];
    switch (tensor.gradient_dtype) {
      case DType::kFloat16:
        UpdateChunk<Rule, T, Float16>(tensor, chunk, u, scale, decay);
        break;
      case DType::kBFloat16:
        UpdateChunk<Rule, T, BrainFloat16>(tensor, chunk, u, scale, decay);
        break;
      default:
        UpdateChunk<Rule, T, T>(tensor, chunk, u, scale, decay);
    }
  }
}

template <typename Rule, typename T>
Status LaunchOptimizer(const OptimizerList& list, const OptimizerParams& params,
                       cudaStream_t stream) {
  // More blocks than this would not be more at once, but each has a start.
  constexpr int64_t kMostBlocks = 1 << 13;
  return Launch(Rule::kName,
                {std::min(list.chunks, kMostBlocks), kThreads, 2 * sizeof(T)},
                stream, OptimizerKernel<Rule, T>, list, params);
}

template <typename... Rs>
std::span<const OptimizerRule> RulesOf(scalar::OpList<Rs...>) {
  static constexpr OptimizerRule kRules[] = {
      {Rs::kName, Rs::kSlots, Rs::kCountsSteps, LaunchOptimizer<Rs, float>,
       LaunchOptimizer<Rs, double>}...};
  return kRules;
}

}  // namespace

int64_t PlanOptimizer(std::span<OptimizerTensor> tensors) {
  int64_t chunks = 0;
  for (OptimizerTensor& tensor : tensors) {
    tensor.first_chunk = chunks;
    chunks += CeilDiv(tensor.elements, kChunk);
  }
  return chunks;
}

std::span<const OptimizerRule> OptimizerRules() {
  return RulesOf(optimizer::Rules());
}

}  // namespace sluice::cuda
