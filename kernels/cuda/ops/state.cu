// Whether a write happens is read on the device, so that a captured step asks
// anew each time.
#include "kernels/cuda/ops/state.h"

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/array_chunks.h"

namespace sluice::cuda {
namespace {

__global__ void AssignKernel(const bool* apply, const uint8_t* value,
                             uint8_t* variable, int64_t bytes, bool whole) {
  if (apply != nullptr && !*apply) return;
  constexpr int kN = kPack<uint8_t>;
  for (int64_t i = GlobalThread() * kN; i < bytes; i += GlobalThreads() * kN) {
    StorePack(LoadPack<uint8_t>(value + i, bytes - i, whole), variable + i,
              bytes - i, whole);
  }
}

__global__ void AssignListKernel(const bool* apply, ArrayList list) {
  if (!*apply) return;
  constexpr int kN = kPack<uint8_t>;
  ForChunks(list, [](const ArrayList::Array& array, int64_t begin,
                     int64_t end) {
    const auto* value = static_cast<const uint8_t*>(array.from);
    auto* variable = static_cast<uint8_t*>(array.to);
    const bool whole =
        IsAligned<uint8_t>(value) && IsAligned<uint8_t>(variable);
    for (int64_t i = begin + threadIdx.x * kN; i < end; i += blockDim.x * kN) {
      StorePack(LoadPack<uint8_t>(value + i, end - i, whole), variable + i,
                end - i, whole);
    }
  });
}

template <typename T>
__global__ void AccumulateKernel(const bool* apply, bool subtract,
                                 const T* value, T* variable, int64_t n,
                                 bool whole) {
  using C = ComputeOf<T>;
  if (apply != nullptr && !*apply) return;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    const Pack<T, kN> change = LoadPack<T>(value + i, n - i, whole);
    Pack<T, kN> sum = LoadPack<T>(variable + i, n - i, whole);
    for (int k = 0; k < kN; ++k) {
      const C a = static_cast<C>(sum.at[k]), b = static_cast<C>(change.at[k]);
      sum.at[k] = T(subtract ? scalar::Sub()(a, b) : scalar::Add()(a, b));
    }
    StorePack(sum, variable + i, n - i, whole);
  }
}

template <typename T>
Status LaunchAccumulate(const bool* apply, int sign, const void* value,
                        void* variable, int64_t n, cudaStream_t stream) {
  constexpr int kN = kPack<T>;
  return Launch(sign > 0 ? "AssignAdd" : "AssignSub", GridFor(CeilDiv(n, kN)),
                stream, AccumulateKernel<T>, apply, sign < 0,
                static_cast<const T*>(value), static_cast<T*>(variable), n,
                IsAligned<T>(value) && IsAligned<T>(variable));
}

}  // namespace

Status AssignBytes(const bool* apply, const void* value, void* variable,
                   size_t bytes, cudaStream_t stream) {
  if (value == variable) return {};
  constexpr int kN = kPack<uint8_t>;
  const auto count = static_cast<int64_t>(bytes);
  return Launch("Assign", GridFor(CeilDiv(count, kN)), stream, AssignKernel,
                apply, static_cast<const uint8_t*>(value),
                static_cast<uint8_t*>(variable), count,
                IsAligned<uint8_t>(value) && IsAligned<uint8_t>(variable));
}

Status AssignListed(const bool* apply, const ArrayList& list,
                    cudaStream_t stream) {
  return Launch("AssignList", GridFor(list), stream, AssignListKernel, apply,
                list);
}

AccumulateLauncher FindAccumulate(DType dtype) {
  return DispatchNumeric(dtype,
                         []<typename E>(TypeTag<E>) -> AccumulateLauncher {
                           return LaunchAccumulate<DeviceTypeOf<E>>;
                         });
}

}  // namespace sluice::cuda
