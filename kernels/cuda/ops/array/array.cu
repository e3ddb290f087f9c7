// Sums of tiles: a thread takes an element of the result and adds its places
// in all tiles, in order.
#include "kernels/cuda/ops/array/array.h"

#include <type_traits>

#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

// The dot product of the digits of i, to the base of `sizes`, and strides.
__device__ int64_t PlaceOf(int64_t i, int rank, const int64_t* sizes,
                           const int64_t* strides) {
  int64_t place = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const int64_t rest = d == 0 ? 0 : Quotient(i, sizes[d]);
    place += (i - rest * sizes[d]) * strides[d];
    i = rest;
  }
  return place;
}

template <typename T>
__global__ void TileGradKernel(TileShape s, const T* dy, T* dx) {
  using C = ComputeOf<T>;
  // As the CPU's: very many of one sign would lose their last digits in float,
  // and doubles theirs in one sum.
  using Sum = std::conditional_t<std::is_floating_point_v<C>, double, C>;
  constexpr int64_t kRun = 128;
  for (int64_t i = GlobalThread(); i < s.elements; i += GlobalThreads()) {
    const T* own = dy + PlaceOf(i, s.rank, s.sizes, s.strides);
    Sum sum = Sum(0);
    for (int64_t tile = 0; tile < s.tiles;) {
      const int64_t end = tile + kRun < s.tiles ? tile + kRun : s.tiles;
      Sum run = Sum(0);
      for (; tile < end; ++tile) {
        run = static_cast<Sum>(
            run + static_cast<C>(
                      own[PlaceOf(tile, s.rank, s.multiples, s.tile_strides)]));
      }
      sum = static_cast<Sum>(sum + run);
    }
    dx[i] = T(static_cast<C>(sum));
  }
}

template <typename T>
Status TileGrad(const TileShape& shape, const void* dy, void* dx,
                cudaStream_t stream) {
  return Launch("TileGrad", GridFor(shape.elements), stream, TileGradKernel<T>,
                shape, static_cast<const T*>(dy), static_cast<T*>(dx));
}

}  // namespace

TileGradLauncher FindTileGrad(DType dtype) {
  return DispatchNumeric(dtype, []<typename E>(TypeTag<E>) -> TileGradLauncher {
    return TileGrad<DeviceTypeOf<E>>;
  });
}

}  // namespace sluice::cuda
