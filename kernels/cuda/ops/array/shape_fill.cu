// BroadcastTo moves elements by their size alone.
#include "kernels/cuda/ops/array/shape_fill.h"

#include <type_traits>

#include "engine/ceil_div.h"
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

// U is any type of the elements' size. Packs of N lie within rows.
template <typename U, int N>
__global__ void BroadcastKernel(const U* x, U* y, Broadcast shape, bool whole) {
  const int64_t step = shape.strides[0][shape.rank - 1];
  SLUICE_ROLLED
  for (int64_t i = GlobalThread() * N; i < shape.elements;
       i += GlobalThreads() * N) {
    const int64_t count = shape.elements - i;
    const Offsets<1> from = OffsetsOf<1>(shape, i);
    StorePack(LoadRow<U, N>(x + from.at[0], step, count, whole), y + i, count,
              whole);
  }
}

template <typename U, int N>
Status LaunchPacksOfBroadcast(const void* x, void* y, const Broadcast& shape,
                              cudaStream_t stream) {
  const bool whole = IsAligned<U, N>(x) && IsAligned<U, N>(y);
  return Launch("BroadcastTo", GridFor(CeilDiv(shape.elements, N)), stream,
                BroadcastKernel<U, N>, static_cast<const U*>(x),
                static_cast<U*>(y), shape, whole);
}

template <typename U>
Status LaunchBroadcast(const void* x, void* y, const Broadcast& shape,
                       cudaStream_t stream) {
  const auto launch = RowsOfPacks(shape, 1, kPack<U>)
                          ? LaunchPacksOfBroadcast<U, kPack<U>>
                          : LaunchPacksOfBroadcast<U, 1>;
  return launch(x, y, shape, stream);
}

__global__ void FillKernel(uint8_t* y, uint64_t pattern, int64_t bytes,
                           bool whole) {
  Pack<uint8_t, 16> pack;
  for (int k = 0; k < 16; ++k) {
    pack.at[k] = static_cast<uint8_t>(pattern >> (k % 8 * 8));
  }
  for (int64_t i = GlobalThread() * 16; i < bytes; i += GlobalThreads() * 16) {
    StorePack(pack, y + i, bytes - i, whole);
  }
}

template <typename T>
__global__ void RangeKernel(const T* start, const T* delta, T* y, int64_t n) {
  // Unsigned: a step on the way may be beyond int64.
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  const Wide first = static_cast<Wide>(*start),
             step = static_cast<Wide>(*delta);
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    y[i] = static_cast<T>(first + static_cast<Wide>(i) * step);
  }
}

template <typename T>
Status LaunchRange(const void* start, const void* delta, void* y, int64_t n,
                   cudaStream_t stream) {
  return Launch("Range", GridFor(n), stream, RangeKernel<T>,
                static_cast<const T*>(start), static_cast<const T*>(delta),
                static_cast<T*>(y), n);
}

}  // namespace

BroadcastLauncher FindBroadcastTo(DType dtype) {
  switch (SizeOf(dtype)) {
    case 1:
      return LaunchBroadcast<uint8_t>;
    case 2:
      return LaunchBroadcast<uint16_t>;
    case 4:
      return LaunchBroadcast<uint32_t>;
    default:
      return LaunchBroadcast<uint64_t>;
  }
}

Status FillBytes(void* y, uint64_t pattern, size_t bytes, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes);
  return Launch("Fill", GridFor((count + 15) / 16), stream, FillKernel,
                static_cast<uint8_t*>(y), pattern, count,
                IsAligned<uint8_t>(y));
}

RangeLauncher FindRange(DType dtype) {
  return DispatchAmong<float, double, int32_t, int64_t>(
      dtype,
      []<typename T>(TypeTag<T>) -> RangeLauncher { return LaunchRange<T>; });
}

}  // namespace sluice::cuda
