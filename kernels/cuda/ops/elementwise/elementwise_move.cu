// Elementwise ops that convert, choose or add up rather than compute a
// function: Cast, CastList, Select and AddN.
#include <span>
#include <type_traits>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/array_chunks.h"
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

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
  ForPacks<kN, kPacksAtOnce>(
      0, n, GlobalThread(), GlobalThreads(), whole,
      [&](int64_t i, int64_t count, bool at_once) {
        return LoadPack<From, kN>(x + i, count, at_once);
      },
      [&](const Pack<From, kN>& in, int64_t i, int64_t count, bool at_once) {
        Pack<To, kN> out;
        for (int k = 0; k < kN; ++k) {
          out.at[k] = Convert<To>(static_cast<ComputeOf<From>>(in.at[k]));
        }
        StorePack(out, y + i, count, at_once);
      });
}

template <typename From, typename To>
Status LaunchCast(const void* x, void* y, int64_t n, OpParams,
                  cudaStream_t stream) {
  constexpr int kN = sizeof(From) > sizeof(To) ? kPack<From> : kPack<To>;
  const bool whole = IsAligned<From, kN>(x) && IsAligned<To, kN>(y);
  return Launch("Cast", GridFor(CeilDiv(n, kN)), stream, CastKernel<From, To>,
                static_cast<const From*>(x), static_cast<To*>(y), n, whole);
}

template <typename To>
__global__ void CastListKernel(ArrayList list) {
  constexpr int kN = kPack<To>;
  ForChunks(list, [&](const ArrayList::Array& array, int64_t begin,
                      int64_t end) {
    const auto* x = static_cast<const float*>(array.from);
    auto* y = static_cast<To*>(array.to);
    const bool whole = IsAligned<float, kN>(x) && IsAligned<To, kN>(y);
    ForPacks<kN, 1>(
        begin, end, threadIdx.x, blockDim.x, whole,
        [&](int64_t i, int64_t count, bool at_once) {
          return LoadPack<float, kN>(x + i, count, at_once);
        },
        [&](const Pack<float, kN>& in, int64_t i, int64_t count, bool at_once) {
          Pack<To, kN> out;
          for (int k = 0; k < kN; ++k) out.at[k] = To(in.at[k]);
          StorePack(out, y + i, count, at_once);
        });
  });
}

template <typename To>
Status LaunchCastList(const ArrayList& list, cudaStream_t stream) {
  return Launch("CastList", GridFor(list), stream, CastListKernel<To>, list);
}

// --- Select ------------------------------------------------------------------

// U is any type of the elements' size. Packs of N lie within rows.
template <typename U, int N>
__global__ void SelectKernel(const bool* condition, const U* a, const U* b,
                             U* y, Broadcast shape, bool whole) {
  const int last = shape.rank - 1;
  for (int64_t i = GlobalThread() * N; i < shape.elements;
       i += GlobalThreads() * N) {
    const int64_t count = shape.elements - i;
    const Offsets<3> from = OffsetsOf<3>(shape, i);
    const auto chosen = LoadRow<bool, N>(condition + from.at[0],
                                         shape.strides[0][last], count, whole);
    const auto left =
        LoadRow<U, N>(a + from.at[1], shape.strides[1][last], count, whole);
    const auto right =
        LoadRow<U, N>(b + from.at[2], shape.strides[2][last], count, whole);
    Pack<U, N> out;
    for (int k = 0; k < N; ++k) {
      out.at[k] = scalar::Select()(chosen.at[k], left.at[k], right.at[k]);
    }
    StorePack(out, y + i, count, whole);
  }
}

template <typename U, int N>
Status LaunchPacksOfSelect(const bool* condition, const void* a, const void* b,
                           void* y, const Broadcast& shape,
                           cudaStream_t stream) {
  const bool whole = IsAligned<bool, N>(condition) && IsAligned<U, N>(a) &&
                     IsAligned<U, N>(b) && IsAligned<U, N>(y);
  return Launch("Select", GridFor(CeilDiv(shape.elements, N)), stream,
                SelectKernel<U, N>, condition, static_cast<const U*>(a),
                static_cast<const U*>(b), static_cast<U*>(y), shape, whole);
}

template <typename U>
Status LaunchSelect(const bool* condition, const void* a, const void* b,
                    void* y, const Broadcast& shape, cudaStream_t stream) {
  const auto launch = RowsOfPacks(shape, 3, kPack<U>)
                          ? LaunchPacksOfSelect<U, kPack<U>>
                          : LaunchPacksOfSelect<U, 1>;
  return launch(condition, a, b, y, shape, stream);
}

// --- AddN --------------------------------------------------------------------

// Plain data: a kernel's parameter.
struct Terms {
  const void* at[kMostTerms] = {};
};

// The first term is of another type where it is the sum of an earlier launch,
// and y where it is to be a later one's: what is computed in.
template <typename T, typename First, typename Y>
__global__ void AddNKernel(Terms terms, int count, Y* y, int64_t n,
                           bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kTaken<T>;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    C sum[kN];
    const auto add = [&]<typename U>(const U* term, int t) {
      const Pack<U, kN> pack = LoadPack<U, kN>(term + i, n - i, whole);
      for (int k = 0; k < kN; ++k) {
        const C value = static_cast<C>(pack.at[k]);
        sum[k] = t == 0 ? value : scalar::Add()(sum[k], value);
      }
    };
    int t = 0;
    if constexpr (!std::is_same_v<First, T>) {
      add(static_cast<const First*>(terms.at[t]), t);
      ++t;
    }
    for (; t < count; ++t) add(static_cast<const T*>(terms.at[t]), t);
    Pack<Y, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = Y(sum[k]);
    StorePack(out, y + i, n - i, whole);
  }
}

template <typename T, typename First, typename Y>
Status LaunchTerms(const Terms& terms, int count, void* y, int64_t n,
                   cudaStream_t stream) {
  constexpr int kN = kTaken<T>;
  bool whole = IsAligned<First, kN>(terms.at[0]) && IsAligned<Y, kN>(y);
  for (int t = 1; t < count; ++t) whole &= IsAligned<T, kN>(terms.at[t]);
  return Launch("AddN", GridFor(CeilDiv(n, kN)), stream,
                AddNKernel<T, First, Y>, terms, count, static_cast<Y*>(y), n,
                whole);
}

template <typename T>
Status LaunchAddN(std::span<const void* const> terms, void* y, int64_t n,
                  void* sums, cudaStream_t stream) {
  using C = ComputeOf<T>;
  if constexpr (std::is_same_v<C, T>) sums = y;
  for (size_t done = 0; done < terms.size();) {
    Terms some;
    int count = 0;
    const bool begins = done == 0;
    if (!begins) some.at[count++] = sums;
    while (count < kMostTerms && done < terms.size()) {
      some.at[count++] = terms[done++];
    }
    const bool ends = done == terms.size();
    const auto launch =
        begins ? (ends ? LaunchTerms<T, T, T> : LaunchTerms<T, T, C>)
               : (ends ? LaunchTerms<T, C, T> : LaunchTerms<T, C, C>);
    SLUICE_RETURN_IF_ERROR(launch(some, count, ends ? y : sums, n, stream));
  }
  return {};
}

}  // namespace

UnaryLauncher FindCast(DType from, DType to) {
  return DispatchDType(from, [&]<typename From>(TypeTag<From>) {
    return DispatchDType(to, []<typename To>(TypeTag<To>) -> UnaryLauncher {
      return LaunchCast<DeviceTypeOf<From>, DeviceTypeOf<To>>;
    });
  });
}

CastListLauncher FindCastList(DType to) {
  return to == DType::kFloat16 ? LaunchCastList<Float16>
                               : LaunchCastList<BrainFloat16>;
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

AddNLauncher FindAddN(DType dtype) {
  return DispatchNumeric(dtype, []<typename E>(TypeTag<E>) -> AddNLauncher {
    return LaunchAddN<DeviceTypeOf<E>>;
  });
}

size_t AddNWorkspace(DType dtype, size_t terms, int64_t n) {
  const DType wide = ComputeDType(dtype);
  return terms <= kMostTerms || wide == dtype
             ? 0
             : static_cast<size_t>(n) * SizeOf(wide);
}

}  // namespace sluice::cuda
