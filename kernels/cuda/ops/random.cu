// Random tensors and dropout: a thread computes the Philox blocks of the 16
// bytes it writes. This file is compiled without contracting products and sums
// (-fmad=false): rounded as on the CPU, the float distributions have its bits.
#include "kernels/cuda/ops/random.h"

#include <bit>

#include "engine/ceil_div.h"
#include "engine/semantics/random.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

// The step's stream for an op. Two blocks of Philox for the first thread
// alone; every thread must come here.
__device__ RandomStream StreamOf(const StepKey* key, uint64_t name_hash) {
  auto* shared = SharedMemory<RandomStream>();
  if (threadIdx.x == 0) {
    *shared = RandomStream(key->seed, name_hash, key->step, key->replica);
  }
  Barrier();  // the stream is there
  return *shared;
}

// A grid for kernels that call StreamOf.
Grid DrawGrid(int64_t items) {
  Grid grid = GridFor(items);
  grid.shared_bytes = sizeof(RandomStream);
  return grid;
}

// --- Distributions -----------------------------------------------------------

// From [0, 1) to [lo, lo + range), rounded to T.
template <typename T>
struct OnInterval {
  using C = ComputeOf<T>;
  C lo, hi, range;
  T greatest;  // below hi

  __device__ T operator()(C u) const {
    const T value = T(lo + u * range);
    return static_cast<C>(value) < hi ? value : greatest;
  }
};

template <typename T>
struct AroundMean {
  using C = ComputeOf<T>;
  C mean, stddev;

  __device__ T operator()(C z) const { return T(mean + stddev * z); }
};

template <typename T>
struct FromInteger {
  int64_t lo;

  __device__ T operator()(uint64_t draw) const {
    return static_cast<T>(static_cast<uint64_t>(lo) + draw);
  }
};

// y[i] = transform(draw first + i of the distribution).
template <typename T, typename Distribution, typename Transform>
__global__ void DrawKernel(Distribution distribution, Transform transform,
                           const StepKey* key, uint64_t name_hash,
                           int64_t first, T* y, int64_t n, bool whole) {
  constexpr int kN = kPack<T>, kLanes = Distribution::kLanes;
  static_assert(kN % kLanes == 0);
  const RandomStream stream = StreamOf(key, name_hash);
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    Pack<T, kN> out;
    for (int k = 0; k < kN; k += kLanes) {
      const auto lanes = distribution.Lanes(
          stream, static_cast<uint64_t>((first + i + k) / kLanes));
      for (int j = 0; j < kLanes; ++j) out.at[k + j] = transform(lanes[j]);
    }
    StorePack(out, y + i, n - i, whole);
  }
}

template <typename T, typename Distribution, typename Transform>
Status LaunchDraw(const char* name, const Distribution& distribution,
                  const Transform& transform, const DrawParams& p,
                  const StepKey* key, void* y, int64_t n, cudaStream_t stream) {
  constexpr int kN = kPack<T>;
  return Launch(name, DrawGrid(CeilDiv(n, kN)), stream,
                DrawKernel<T, Distribution, Transform>, distribution, transform,
                key, p.name_hash, p.first, static_cast<T*>(y), n,
                IsAligned<T>(y));
}

template <typename E>
Status Uniform(const DrawParams& p, const StepKey* key, void* y, int64_t n,
               cudaStream_t stream) {
  using T = DeviceTypeOf<E>;
  using C = ComputeType<E>;
  const C lo = static_cast<C>(p.a), hi = static_cast<C>(p.b);
  return LaunchDraw<T>(
      "RandomUniform", Uniform01<C>(),
      OnInterval<T>{lo, hi, hi - lo, std::bit_cast<T>(GreatestBelow<E>(hi))}, p,
      key, y, n, stream);
}

template <typename T>
Status UniformInteger(const DrawParams& p, const StepKey* key, void* y,
                      int64_t n, cudaStream_t stream) {
  // Unsigned: the range may be beyond int64.
  const uint64_t range =
      static_cast<uint64_t>(p.hi) - static_cast<uint64_t>(p.lo);
  return LaunchDraw<T>("RandomUniform", UniformBelow{range},
                       FromInteger<T>{p.lo}, p, key, y, n, stream);
}

template <typename T, template <typename> typename Distribution>
Status Normal(const DrawParams& p, const StepKey* key, void* y, int64_t n,
              cudaStream_t stream) {
  using C = ComputeOf<T>;
  return LaunchDraw<T>("RandomNormal", Distribution<C>(),
                       AroundMean<T>{static_cast<C>(p.a), static_cast<C>(p.b)},
                       p, key, y, n, stream);
}

// --- Dropout -----------------------------------------------------------------

// A block has the bits of four elements.
template <typename T>
inline constexpr int kDropPack = kPack<T> < 4 ? 4 : kPack<T>;

template <typename T>
__global__ void DropoutKernel(uint32_t threshold, ComputeOf<T> scale,
                              const StepKey* key, uint64_t name_hash,
                              const T* x, T* y, bool* mask, int64_t n,
                              bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kDropPack<T>;
  const RandomStream stream = StreamOf(key, name_hash);
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    const auto in = LoadPack<T, kN>(x + i, n - i, whole);
    Pack<T, kN> out;
    Pack<bool, kN> kept;
    for (int k = 0; k < kN; k += 4) {
      const PhiloxBlock bits = stream.Block(static_cast<uint64_t>((i + k) / 4));
      for (int j = 0; j < 4; ++j) {
        const bool keep = bits[j] >= threshold;
        kept.at[k + j] = keep;
        out.at[k + j] = T(keep ? static_cast<C>(in.at[k + j]) * scale : C(0));
      }
    }
    StorePack(out, y + i, n - i, whole);
    StorePack(kept, mask + i, n - i, whole);
  }
}

template <typename T>
__global__ void DropoutGradKernel(ComputeOf<T> scale, const T* dy,
                                  const bool* mask, T* dx, int64_t n,
                                  bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kDropPack<T>;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    const auto in = LoadPack<T, kN>(dy + i, n - i, whole);
    const auto kept = LoadPack<bool, kN>(mask + i, n - i, whole);
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) {
      out.at[k] = T(kept.at[k] ? static_cast<C>(in.at[k]) * scale : C(0));
    }
    StorePack(out, dx + i, n - i, whole);
  }
}

template <typename T>
bool DropsWholePacks(const void* x, const void* y, const bool* mask) {
  constexpr int kN = kDropPack<T>;
  return IsAligned<T, kN>(x) && IsAligned<T, kN>(y) &&
         IsAligned<bool, kN>(mask);
}

template <typename T>
Status Dropout(const DropoutParams& p, const StepKey* key, const void* x,
               void* y, bool* mask, int64_t n, cudaStream_t stream) {
  constexpr int kN = kDropPack<T>;
  return Launch("Dropout", DrawGrid(CeilDiv(n, kN)), stream, DropoutKernel<T>,
                DropThreshold(p.rate),
                static_cast<ComputeOf<T>>(1 / (1 - p.rate)), key, p.name_hash,
                static_cast<const T*>(x), static_cast<T*>(y), mask, n,
                DropsWholePacks<T>(x, y, mask));
}

template <typename T>
Status DropoutGrad(double rate, const void* dy, const bool* mask, void* dx,
                   int64_t n, cudaStream_t stream) {
  constexpr int kN = kDropPack<T>;
  return Launch("DropoutGrad", GridFor(CeilDiv(n, kN)), stream,
                DropoutGradKernel<T>, static_cast<ComputeOf<T>>(1 / (1 - rate)),
                static_cast<const T*>(dy), mask, static_cast<T*>(dx), n,
                DropsWholePacks<T>(dy, dx, mask));
}

}  // namespace

DrawLauncher FindDraw(std::string_view op, DType dtype) {
  if (op == "RandomUniform") {
    if (dtype == DType::kInt32) return UniformInteger<int32_t>;
    if (dtype == DType::kInt64) return UniformInteger<int64_t>;
  }
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) -> DrawLauncher {
    using T = DeviceTypeOf<E>;
    if (op == "RandomUniform") return Uniform<E>;
    if (op == "RandomNormal") return Normal<T, StandardNormal>;
    return op == "TruncatedNormal" ? Normal<T, StandardTruncatedNormal>
                                   : nullptr;
  });
}

DropoutLauncher FindDropout(DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype, []<typename E>(TypeTag<E>) -> DropoutLauncher {
    return Dropout<DeviceTypeOf<E>>;
  });
}

DropoutGradLauncher FindDropoutGrad(DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> DropoutGradLauncher {
                            return DropoutGrad<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
