// Optimizer steps over a list of variables: each block takes a chunk of one of
// them, which it finds by its number.
#include "kernels/cuda/ops/optimizer.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/array_chunks.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kChunk = 1 << 12;  // elements; whole packs
constexpr int kThreads = 256;

template <typename T, typename G>
__device__ Pack<T, kPack<T>> LoadAs(const void* data, int64_t i, int64_t count,
                                    bool whole) {
  constexpr int kN = kPack<T>;
  const G* g = static_cast<const G*>(data);
  const Pack<G, kN> pack = LoadPack<G, kN>(g + i, count, whole);
  Pack<T, kN> out;
  for (int k = 0; k < kN; ++k) {
    out.at[k] = static_cast<ComputeOf<G>>(pack.at[k]);
  }
  return out;
}

// A pack of the gradient from its element i on.
template <typename T>
__device__ Pack<T, kPack<T>> LoadGradient(const OptimizerTensor& tensor,
                                          int64_t i, int64_t count,
                                          bool whole) {
  switch (tensor.gradient_dtype) {
    case DType::kFloat16:
      return LoadAs<T, Float16>(tensor.gradient, i, count, whole);
    case DType::kBFloat16:
      return LoadAs<T, BrainFloat16>(tensor.gradient, i, count, whole);
    default:
      return LoadAs<T, T>(tensor.gradient, i, count, whole);
  }
}

template <typename Rule, typename T>
__device__ void UpdateChunk(const OptimizerTensor& tensor, int64_t chunk,
                            const optimizer::Update<T>& u, T gradient_scale,
                            T gradient_decay) {
  constexpr int kN = kPack<T>;
  constexpr Rule rule{};
  T* p = static_cast<T*>(tensor.variable);
  T* a = static_cast<T*>(tensor.slots[0]);
  T* b = static_cast<T*>(tensor.slots[1]);
  const bool whole = IsAligned<T>(p) && IsAligned<T>(a) && IsAligned<T>(b) &&
                     IsAligned<T>(tensor.gradient);
  const int64_t first = (chunk - tensor.first_chunk) * kChunk;
  const int64_t end = scalar::Minimum()(first + kChunk, tensor.elements);
  for (int64_t i = first + threadIdx.x * kN; i < end; i += blockDim.x * kN) {
    const int64_t count = end - i;
    Pack<T, kN> ps = LoadPack<T>(p + i, count, whole);
    const Pack<T, kN> gs = LoadGradient<T>(tensor, i, count, whole);
    Pack<T, kN> as = {}, bs = {};
    if (Rule::kSlots > 0) as = LoadPack<T>(a + i, count, whole);
    if (Rule::kSlots > 1) bs = LoadPack<T>(b + i, count, whole);
    for (int k = 0; k < kN; ++k) {
      const T gradient = gs.at[k] * gradient_scale + gradient_decay * ps.at[k];
      rule(u, gradient, ps.at[k], as.at[k], bs.at[k]);
    }
    StorePack(ps, p + i, count, whole);
    if (Rule::kSlots > 0) StorePack(as, a + i, count, whole);
    if (Rule::kSlots > 1) StorePack(bs, b + i, count, whole);
  }
}

template <typename Rule, typename T>
__global__ void __launch_bounds__(kThreads)
    OptimizerKernel(OptimizerList list, OptimizerParams params) {
  if (list.apply != nullptr && !*list.apply) return;
  T correction1 = 1, correction2 = 1;
  if (list.step != nullptr) {
    // Powers in double are long work: one thread's is enough.
    T* corrections = SharedMemory<T>();
    if (threadIdx.x == 0) {
      corrections[0] = optimizer::Correction<T>(params.beta1, *list.step);
      corrections[1] = optimizer::Correction<T>(params.beta2, *list.step);
    }
    Barrier();  // thread 0 has written them
    correction1 = corrections[0];
    correction2 = corrections[1];
  }
  const auto u = optimizer::UpdateOf<T>(
      params, static_cast<T>(*list.learning_rate), correction1, correction2);
  const T scale = list.gradient_scale == nullptr
                      ? T(1)
                      : static_cast<T>(*list.gradient_scale);
  for (int64_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const int variable = ArrayOf(list.tensors, list.count, chunk);
    const T decay = variable < params.decayed
                        ? static_cast<T>(params.gradient_decay)
                        : T(0);
    UpdateChunk<Rule>(list.tensors[variable], chunk, u, scale, decay);
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
