// Dropout. The mask is a function of the step's seed, the node's original name,
// the global step, the replica and the element's index: the same on any number
// of threads and after a resume.
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/random_bits.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements, a multiple of a block's four

Result<KernelPtr> MakeDropout(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  const double rate = spec.attrs.Float("rate");
  const uint32_t threshold = DropThreshold(rate);
  const uint64_t origin = HashName(spec.origin);
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    using C = ComputeType<T>;
    const C scale = static_cast<C>(1 / (1 - rate));
    return Result<KernelPtr>(KernelOf([=](const KernelContext& c) {
      const T* x = c.input<T>(0);
      T* y = c.output<T>(0);
      bool* mask = c.output<bool>(1);
      const RandomStream stream = StreamOf(c.step(), origin);
      ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += 4) {
          const PhiloxBlock bits = stream.Block(i / 4);
          const int64_t lanes = std::min<int64_t>(end - i, 4);
          for (int64_t j = 0; j < lanes; ++j) {
            const bool keep = bits[static_cast<int>(j)] >= threshold;
            mask[i + j] = keep;
            y[i + j] = T(keep ? static_cast<C>(x[i + j]) * scale : C(0));
          }
        }
      });
    }));
  });
}

Result<KernelPtr> MakeFastDropout(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  const double rate = spec.attrs.Float("rate");
  const uint32_t threshold = DropThreshold(rate);
  const auto scale = static_cast<float>(1 / (1 - rate));
  const uint64_t origin = HashName(spec.origin);
  return KernelOf([=](const KernelContext& c) {
    ForRandomBits(StreamOf(c.step(), origin), n,
                  [&](int64_t i, int64_t count, const uint32_t* bits) {
                    Simd().random.dropout(
                        bits, threshold, scale, c.input<float>(0) + i,
                        c.output<float>(0) + i, c.output<bool>(1) + i, count);
                  });
  });
}

Result<KernelPtr> MakeDropoutGrad(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  const double rate = spec.attrs.Float("rate");
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    using C = ComputeType<T>;
    const C scale = static_cast<C>(1 / (1 - rate));
    return Result<KernelPtr>(KernelOf([=](const KernelContext& c) {
      const T* dy = c.input<T>(0);
      const bool* mask = c.input<bool>(1);
      T* dx = c.output<T>(0);
      ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          dx[i] = T(mask[i] ? static_cast<C>(dy[i]) * scale : C(0));
        }
      });
    }));
  });
}

}  // namespace

void RegisterDropoutKernels(KernelTable& table) {
  table.Register({.op = "Dropout", .dtypes = kFloating, .make = MakeDropout});
  table.Register({.op = "Dropout",
                  .priority = 10,
                  .provider = "simd",
                  .dtypes = DType::kFloat32,
                  .make = MakeFastDropout});
  table.Register(
      {.op = "DropoutGrad", .dtypes = kFloating, .make = MakeDropoutGrad});
}

}  // namespace sluice::cpu
