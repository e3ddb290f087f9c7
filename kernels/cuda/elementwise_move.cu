// Elementwise ops that convert or choose rather than compute: Cast and Select.
#include <type_traits>

#include "kernels/cuda/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

// --- Cast --------------------------------------------------------------------

// Integers of X that a conversion is limited to: 2^digits is beyond them.
template <typename To>
inline constexpr int kDigits = static_cast<int>(sizeof(To)) * 8 -
                               (std::is_signed_v<To> ? 1 : 0);

template <typename To, typename X>
__device__ To Convert(X x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != X(0);
  } else if constexpr (scalar::kIsFloat<X> && std::is_integral_v<To>) {
    // 2^digits, the first value beyond the range, is exact in any float.
    constexpr X kEnd = X(uint64_t{1} << (kDigits<To> - 1)) * X(2);
    constexpr X kLeast = std::is_signed_v<To> ? -kEnd : X(0);
    constexpr To kMost = static_cast<To>(~uint64_t{0} >> (64 - kDigits<To>));
    if (!(x > kLeast)) return x != x ? To(0) : static_cast<To>(kLeast);
    return x < kEnd ? static_cast<To>(x) : kMost;
  } else {
    return To(static_cast<ComputeOf<To>>(x));
  }
}

template <typename From, typename To>
__global__ void CastKernel(const From* x, To* y, int64_t n, bool whole) {
  // 16 bytes of the wider type.
  constexpr int kN = sizeof(From) > sizeof(To) ? kPack<From> : kPack<To>;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    const Pack<From, kN> in = LoadPack<From, kN>(x + i, n - i, whole);
    Pack<To, kN> out;
    for (int k = 0; k < kN; ++k) {
      out.at[k] = Convert<To>(static_cast<ComputeOf<From>>(in.at[k]));
    }
    StorePack(out, y + i, n - i, whole);
  }
}

template <typename From, typename To>
Status LaunchCast(const void* x, void* y, int64_t n, OpParams,
                  cudaStream_t stream) {
  constexpr int kN = sizeof(From) > sizeof(To) ? kPack<From> : kPack<To>;
  const bool whole = IsAligned<From, kN>(x) && IsAligned<To, kN>(y);
  return Launch("Cast", GridFor((n + kN - 1) / kN), stream,
                CastKernel<From, To>, static_cast<const From*>(x),
                static_cast<To*>(y), n, whole);
}

// --- Select ------------------------------------------------------------------

// U is any type of the elements' size.
template <typename U>
__global__ void SelectKernel(const bool* condition, const U* a, const U* b,
                             U* y, Broadcast shape) {
  for (int64_t i = GlobalThread(); i < shape.elements; i += GlobalThreads()) {
    const Offsets<3> from = OffsetsOf<3>(shape, i);
    y[i] =
        scalar::Select()(condition[from.at[0]], a[from.at[1]], b[from.at[2]]);
  }
}

template <typename U>
Status LaunchSelect(const bool* condition, const void* a, const void* b,
                    void* y, const Broadcast& shape, cudaStream_t stream) {
  return Launch("Select", GridFor(shape.elements), stream, SelectKernel<U>,
                condition, static_cast<const U*>(a), static_cast<const U*>(b),
                static_cast<U*>(y), shape);
}

}  // namespace

UnaryLauncher FindCast(DType from, DType to) {
  return DispatchDType(from, [&]<typename From>(TypeTag<From>) {
    return DispatchDType(to, []<typename To>(TypeTag<To>) -> UnaryLauncher {
      return LaunchCast<DeviceTypeOf<From>, DeviceTypeOf<To>>;
    });
  });
}

SelectLauncher FindSelect(DType dtype) {
  switch (SizeOf(dtype)) {
    case 1:
      return LaunchSelect<uint8_t>;
    case 2:
      return LaunchSelect<uint16_t>;
    case 4:
      return LaunchSelect<uint32_t>;
    default:
      return LaunchSelect<uint64_t>;
  }
}

}  // namespace sluice::cuda
