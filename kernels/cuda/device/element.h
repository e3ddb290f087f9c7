// Element types on the device, and 16-byte accesses to them. Half types are
// storage: arithmetic on them goes through float, as on the CPU. NVRTC takes
// this file as text: what is the host's is out of its sight.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ELEMENT_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ELEMENT_H_

#ifndef __CUDACC_RTC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "engine/dtype.h"
#endif

#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

#ifdef __CUDACC_RTC__

// NVRTC has no half types of its own.
struct Float16 {
  unsigned short bits;
  Float16() = default;
  __device__ explicit Float16(float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  }
  __device__ explicit operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
struct BrainFloat16 {
  unsigned short bits;
  BrainFloat16() = default;
  __device__ explicit BrainFloat16(float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  }
  __device__ explicit operator float() const {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
};

#else

using Float16 = __half;
using BrainFloat16 = __nv_bfloat16;

// The device's type for what the engine calls T.
template <typename T>
using DeviceTypeOf = std::conditional_t<
    std::is_same_v<T, Half>, Float16,
    std::conditional_t<std::is_same_v<T, BFloat16>, BrainFloat16, T>>;

// Calls fn as DispatchFloating does, for all numeric types.
template <typename Fn>
decltype(auto) DispatchNumeric(DType dtype, Fn&& fn) {
  return DispatchAmong<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                       int64_t>(dtype, fn);
}

#endif  // __CUDACC_RTC__

// The type arithmetic on a device type is done in.
template <typename T>
struct ComputeTypeOf {
  using Type = T;
};
template <>
struct ComputeTypeOf<Float16> {
  using Type = float;
};
template <>
struct ComputeTypeOf<BrainFloat16> {
  using Type = float;
};
template <typename T>
using ComputeOf = typename ComputeTypeOf<T>::Type;

// How many T a thread takes at once: 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

#ifndef __CUDACC_RTC__
// May packs be loaded and stored here at once? Then `whole` is true below.
template <typename T, int N = kPack<T>>
__host__ __device__ bool IsAligned(const void* p) {
  return reinterpret_cast<size_t>(p) % alignof(Pack<T, N>) == 0;
}
#endif

// How kernels read and write global memory. A pack is moved as words of its
// alignment: copied as elements, halves would be stored one by one. The
// emulation counts the bytes.
#ifdef __CUDACC__
template <typename T, int kAlignment>
struct WordOf {
  using Type = T;
};
template <typename T>
struct WordOf<T, 4> {
  using Type = unsigned;
};
template <typename T>
struct WordOf<T, 8> {
  using Type = uint2;
};
template <typename T>
struct WordOf<T, 16> {
  using Type = uint4;
};
#endif
template <typename T>
__device__ T Load(const T* p) {
#ifdef __CUDACC__
  using Word = typename WordOf<T, alignof(T)>::Type;
  constexpr int kWords = sizeof(T) / sizeof(Word);
  Word words[kWords];
  SLUICE_UNROLLED
  for (int k = 0; k < kWords; ++k) {
    words[k] = reinterpret_cast<const Word*>(p)[k];
  }
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
#else
  emulation::CountLoad(p, sizeof(T));
  return *p;
#endif
}
template <typename T>
__device__ void Store(const T& value, T* p) {
#ifdef __CUDACC__
  using Word = typename WordOf<T, alignof(T)>::Type;
  constexpr int kWords = sizeof(T) / sizeof(Word);
  Word words[kWords];
  memcpy(words, &value, sizeof(T));
  SLUICE_UNROLLED
  for (int k = 0; k < kWords; ++k) {
    reinterpret_cast<Word*>(p)[k] = words[k];
  }
#else
  emulation::CountStore(p, sizeof(T));
  *p = value;
#endif
}

// The first N of `count` elements at p, zeros beyond.
template <typename T, int N = kPack<T>>
__device__ Pack<T, N> LoadPack(const T* p, int64_t count, bool whole) {
  if (whole && count >= N) {
    return Load(reinterpret_cast<const Pack<T, N>*>(p));
  }
  Pack<T, N> pack = {};
  for (int i = 0; i < N; ++i) {
    if (i < count) pack.at[i] = Load(p + i);
  }
  return pack;
}
template <typename T, int N>
__device__ void StorePack(const Pack<T, N>& pack, T* p, int64_t count,
                          bool whole) {
  if (whole && count >= N) {
    Store(pack, reinterpret_cast<Pack<T, N>*>(p));
    return;
  }
  for (int i = 0; i < N; ++i) {
    if (i < count) Store(pack.at[i], p + i);
  }
}

// LoadPack where it is known when a kernel is compiled that all packs are whole
// (kWhole), of N elements that exist: then no branch holds loads up.
template <bool kWhole, typename T, int N = kPack<T>>
__device__ Pack<T, N> LoadPackOf(const T* p, int64_t count) {
  return LoadPack<T, N>(p, kWhole ? N : count, kWhole);
}
template <bool kWhole, typename T, int N>
__device__ void StorePackOf(const Pack<T, N>& pack, T* p, int64_t count) {
  StorePack(pack, p, kWhole ? N : count, kWhole);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ELEMENT_H_
