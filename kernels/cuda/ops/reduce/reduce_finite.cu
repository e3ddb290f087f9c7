// All blocks that write write the same, so their order does not matter.
#include "kernels/cuda/ops/reduce/reduce_finite.h"

#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/array_chunks.h"

namespace sluice::cuda {
namespace {

// Whether the elements [begin, end) that this thread looks at are finite.
template <typename T>
__device__ bool IsFinitePart(const void* data, int64_t begin, int64_t end,
                             const float* scale) {
  constexpr int kN = kPack<T>;
  using Compute = ComputeOf<T>;
  const Compute factor =
      scale == nullptr ? Compute(1) : static_cast<Compute>(Load(scale));
  const T* x = static_cast<const T*>(data);
  const bool whole = IsAligned<T>(x);
  bool finite = true;
  ForPacks<kN, 2>(
      begin, end, threadIdx.x, blockDim.x, whole,
      [&](int64_t i, int64_t count, bool at_once) {
        return LoadPack<T>(x + i, count, at_once);
      },
      [&](const Pack<T, kN>& pack, int64_t, int64_t, bool) {
        for (int j = 0; j < kN; ++j) {
          finite &=
              scalar::IsFinite()(static_cast<Compute>(pack.at[j]) * factor);
        }
      });
  return finite;
}

__device__ bool IsFinitePart(const ArrayList::Array& array, int64_t begin,
                             int64_t end, const float* scale) {
  switch (array.dtype) {
    case DType::kFloat64:
      return IsFinitePart<double>(array.from, begin, end, scale);
    case DType::kFloat16:
      return IsFinitePart<Float16>(array.from, begin, end, scale);
    case DType::kBFloat16:
      return IsFinitePart<BrainFloat16>(array.from, begin, end, scale);
    default:
      return IsFinitePart<float>(array.from, begin, end, scale);
  }
}

__global__ void AllFiniteKernel(ArrayList arrays, const float* scale, bool* y) {
  ForChunks(arrays,
            [&](const ArrayList::Array& array, int64_t begin, int64_t end) {
              if (!IsFinitePart(array, begin, end, scale)) *y = false;
            });
}

}  // namespace

Status LaunchAllFinite(const ArrayList& arrays, const float* scale, bool* y,
                       cudaStream_t stream) {
  return Launch("AllFinite", GridFor(arrays), stream, AllFiniteKernel, arrays,
                scale, y);
}

}  // namespace sluice::cuda
