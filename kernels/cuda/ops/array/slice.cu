// CastPad: each element of y is written once, 16 bytes at a time, and each of x
// read once. Of images [n, h, w, 3] in float that become half with a channel
// more, two pixels are a pack.
#include "kernels/cuda/ops/array/slice.h"

#include "engine/ceil_div.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

template <typename X, typename Y>
__global__ void CastPadKernel(const X* x, Y* y, RowPadding rows, bool whole) {
  constexpr int kN = kPack<Y>;
  const int64_t n = rows.rows * rows.to;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    int64_t row = Quotient(i, rows.to);
    int64_t column = i - row * rows.to;
    Pack<Y, kN> pack = {};
    for (int k = 0; k < kN && i + k < n; ++k) {
      if (column < rows.from) {
        const auto value =
            static_cast<ComputeOf<X>>(x[row * rows.from + column]);
        pack.at[k] = Y(static_cast<ComputeOf<Y>>(value));
      }
      if (++column == rows.to) {
        column = 0;
        ++row;
      }
    }
    StorePack(pack, y + i, n - i, whole);
  }
}

template <typename X, typename Y>
Status CastPad(const void* x, void* y, const RowPadding& rows,
               cudaStream_t stream) {
  constexpr int kN = kPack<Y>;
  return Launch("CastPad", GridFor(CeilDiv(rows.rows * rows.to, kN)), stream,
                CastPadKernel<X, Y>, static_cast<const X*>(x),
                static_cast<Y*>(y), rows, IsAligned<Y, kN>(y));
}

}  // namespace

CastPadLauncher FindCastPad(DType from, DType to) {
  return DispatchFloating(from, [&]<typename X>(TypeTag<X>) {
    return DispatchFloating(to, []<typename Y>(TypeTag<Y>) -> CastPadLauncher {
      return CastPad<DeviceTypeOf<X>, DeviceTypeOf<Y>>;
    });
  });
}

}  // namespace sluice::cuda
