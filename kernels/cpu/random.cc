// Random tensors. Element i is a function of the op's stream and i, so pieces
// of work may be cut anywhere.
#include <algorithm>
#include <cmath>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/random_bits.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements per piece of work

// A kernel whose element i is transform(draw i of the distribution).
template <typename T, typename Distribution, typename Transform>
KernelPtr DrawKernel(const KernelSpec& spec, Distribution distribution,
                     Transform transform) {
  const int64_t n = spec.outputs[0].shape.elements();
  const int64_t first = spec.attrs.Int("first");
  const uint64_t name_hash = HashName(spec.origin);
  return KernelOf([=](const KernelContext& c) {
    const RandomStream stream = StreamOf(c.step(), name_hash);
    T* y = c.output<T>(0);
    ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
      ForEachDraw(
          distribution, stream, first + begin, first + end,
          [&](int64_t i, auto draw) { y[i - first] = transform(draw); });
    });
  });
}

template <typename T>
KernelPtr UniformKernel(const KernelSpec& spec) {
  using C = ComputeType<T>;
  const C lo = static_cast<C>(spec.attrs.NumberOf("lo").real());
  const C hi = static_cast<C>(spec.attrs.NumberOf("hi").real());
  const T greatest = GreatestBelow<T>(hi);
  return DrawKernel<T>(spec, Uniform01<C>(), [=](C u) {
    const T value = T(lo + u * (hi - lo));
    return static_cast<C>(value) < hi ? value : greatest;
  });
}

template <typename T>
KernelPtr UniformIntegerKernel(const KernelSpec& spec) {
  // Unsigned: the range may be beyond int64.
  const auto lo = static_cast<uint64_t>(spec.attrs.NumberOf("lo").integer());
  const auto hi = static_cast<uint64_t>(spec.attrs.NumberOf("hi").integer());
  return DrawKernel<T>(spec, UniformBelow{hi - lo}, [=](uint64_t draw) {
    return static_cast<T>(lo + draw);
  });
}

Result<KernelPtr> MakeFastUniform(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.elements();
  const auto lo = static_cast<float>(spec.attrs.NumberOf("lo").real());
  const auto hi = static_cast<float>(spec.attrs.NumberOf("hi").real());
  const float greatest = GreatestBelow<float>(hi);
  const int64_t first = spec.attrs.Int("first");
  const uint64_t name_hash = HashName(spec.origin);
  return KernelOf([=](const KernelContext& c) {
    ForRandomBits(
        StreamOf(c.step(), name_hash), n,
        [&](int64_t i, int64_t count, const uint32_t* bits) {
          Simd().random.uniform(bits, lo, hi - lo, greatest,
                                c.output<float>(0) + i, count);
        },
        first);
  });
}

Result<KernelPtr> MakeUniform(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  if (!IsFloating(dtype)) {
    return DispatchIndex(dtype, [&]<typename T>(TypeTag<T>) {
      return UniformIntegerKernel<T>(spec);
    });
  }
  return DispatchFloating(
      dtype, [&]<typename T>(TypeTag<T>) { return UniformKernel<T>(spec); });
}

// mean + stddev * draw.
template <template <typename> typename Distribution>
Result<KernelPtr> MakeNormal(const KernelSpec& spec) {
  return DispatchFloating(
      spec.outputs[0].dtype, [&]<typename T>(TypeTag<T>) -> KernelPtr {
        using C = ComputeType<T>;
        const C mean = static_cast<C>(spec.attrs.Float("mean"));
        const C stddev = static_cast<C>(spec.attrs.Float("stddev"));
        return DrawKernel<T>(spec, Distribution<C>(),
                             [=](C z) { return T(mean + stddev * z); });
      });
}

}  // namespace

void RegisterRandomKernels(KernelTable& table) {
  table.Register({.op = "RandomUniform", .make = MakeUniform});
  table.Register({.op = "RandomUniform",
                  .priority = 10,
                  .provider = "simd",
                  .supports =
                      [](const KernelSpec& spec) {
                        return spec.outputs[0].dtype == DType::kFloat32;
                      },
                  .make = MakeFastUniform});
  table.Register({.op = "RandomNormal", .make = MakeNormal<StandardNormal>});
  table.Register(
      {.op = "TruncatedNormal", .make = MakeNormal<StandardTruncatedNormal>});
}

}  // namespace sluice::cpu
