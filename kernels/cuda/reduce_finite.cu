// A block takes a chunk of one array, which it finds by its number. All that
// write write the same, so their order does not matter.
#include "kernels/cuda/reduce_finite.h"

#include <algorithm>

#include "engine/scalar.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kChunk = 1 << 13;  // elements; whole packs
constexpr int kThreads = 256;

template <typename T>
__global__ void AllFiniteKernel(FiniteArrays arrays, bool* y) {
  constexpr int kN = kPack<T>;
  using Compute = ComputeOf<T>;
  const Compute scale = arrays.scale == nullptr
                            ? Compute(1)
                            : static_cast<Compute>(*arrays.scale);
  for (int64_t chunk = blockIdx.x; chunk < arrays.chunks; chunk += gridDim.x) {
    int k = 0;  // the last that begins at or before the chunk
    while (k + 1 < arrays.count && arrays.first_chunk[k + 1] <= chunk) ++k;
    const T* x = static_cast<const T*>(arrays.at[k]);
    const bool whole = reinterpret_cast<uintptr_t>(x) % 16 == 0;
    const int64_t first = (chunk - arrays.first_chunk[k]) * kChunk;
    const int64_t end = scalar::Minimum()(first + kChunk, arrays.elements[k]);
    bool finite = true;
    for (int64_t i = first + threadIdx.x * kN; i < end; i += blockDim.x * kN) {
      const Pack<T, kN> pack = LoadPack<T>(x + i, end - i, whole);
      for (int j = 0; j < kN; ++j) {
        finite &= scalar::IsFinite()(static_cast<Compute>(pack.at[j]) * scale);
      }
    }
    if (!finite) *y = false;
  }
}

template <typename T>
Status LaunchAllFinite(const FiniteArrays& arrays, bool* y,
                       cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1 << 12;
  return Launch("AllFinite", {std::min(arrays.chunks, kMostBlocks), kThreads},
                stream, AllFiniteKernel<T>, arrays, y);
}

}  // namespace

FiniteArrays PlanAllFinite(std::span<const int64_t> elements) {
  FiniteArrays arrays;
  for (int64_t n : elements) {
    arrays.elements[arrays.count] = n;
    arrays.first_chunk[arrays.count++] = arrays.chunks;
    arrays.chunks += (n + kChunk - 1) / kChunk;
  }
  return arrays;
}

AllFiniteLauncher FindAllFinite(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> AllFiniteLauncher {
                            return LaunchAllFinite<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
