// Elementwise ops that convert, choose or add up rather than compute a
// function: Cast, CastList, Select and AddN.
#include <optional>
#include <type_traits>

#include "engine/convert.h"
#include "engine/threads.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/tensor_list.h"

namespace sluice::cpu {
namespace {

// --- Cast --------------------------------------------------------------------

// Whether flushing subnormal numbers would change a conversion: where the
// processor converts or compares. The half types go through float32 by their
// bits, and float32's subnormals are 0 to float16.
template <typename To, typename From>
constexpr bool FlushingMatters() {
  using X = ComputeType<From>;
  using Y = ComputeType<To>;
  return std::is_floating_point_v<X> &&
         (std::is_same_v<To, bool> ||
          (std::is_floating_point_v<Y> && !std::is_same_v<X, Y>));
}

template <typename To, typename From>
void CastLoop(const void* x_data, void* y_data, int64_t n, simd::OpParams) {
  const From* x = static_cast<const From*>(x_data);
  To* y = static_cast<To*>(y_data);
  std::optional<ScopedKeepDenormals> keep;
  if constexpr (FlushingMatters<To, From>()) keep.emplace();
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<To>(x[i]);
}

Result<KernelPtr> MakeCast(const KernelSpec& spec) {
  return DispatchDType(spec.inputs[0].dtype, [&]<typename From>(TypeTag<From>) {
    return DispatchDType(spec.outputs[0].dtype,
                         [&]<typename To>(TypeTag<To>) -> Result<KernelPtr> {
                           return MakeUnary(spec, CastLoop<To, From>);
                         });
  });
}

// A list is cut by size over all of it.
Result<KernelPtr> MakeCastList(const KernelSpec& spec) {
  return DispatchAmong<Half, BFloat16>(
      spec.outputs[0].dtype,
      [&]<typename To>(TypeTag<To>) -> Result<KernelPtr> {
        return KernelOf(
            [list = TensorList(spec.inputs)](const KernelContext& c) {
              ParallelFor(
                  list.elements(), kElementwiseGrain,
                  [&](int64_t begin, int64_t end) {
                    list.ForEach(begin, end, [&](int i, int64_t at, int64_t n) {
                      CastLoop<To, float>(c.input<float>(i) + at,
                                          c.output<To>(i) + at, n, {});
                    });
                  });
            });
      });
}

// --- Select ------------------------------------------------------------------

// T is any type of the elements' size. The steps are 0 or 1.
template <typename T>
void SelectRun(const bool* condition, int64_t c_step, const T* a,
               int64_t a_step, const T* b, int64_t b_step, T* y, int64_t n) {
  if (c_step == 0) {
    const T* from = *condition ? a : b;
    const int64_t step = *condition ? a_step : b_step;
    for (int64_t i = 0; i < n; ++i) y[i] = from[i * step];
  } else if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
  } else if (a_step == 1) {
    const T other = *b;
    for (int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : other;
  } else {
    const T first = *a;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = condition[i] ? first : b[i * b_step];
    }
  }
}

template <typename T>
KernelPtr MakeSelectOf(const KernelSpec& spec) {
  const Broadcast broadcast(spec.outputs[0].shape, spec.inputs);
  return KernelOf([broadcast](const KernelContext& c) {
    ParallelFor(broadcast.elements(), kElementwiseGrain,
                [&](int64_t begin, int64_t end) {
                  broadcast.ForEachRun(
                      begin, end,
                      [&](const Broadcast::Offsets& at, int64_t y, int64_t n) {
                        SelectRun(c.input<bool>(0) + at[0], broadcast.step(0),
                                  c.input<T>(1) + at[1], broadcast.step(1),
                                  c.input<T>(2) + at[2], broadcast.step(2),
                                  c.output<T>(0) + y, n);
                      });
                });
  });
}

Result<KernelPtr> MakeSelect(const KernelSpec& spec) {
  switch (SizeOf(spec.outputs[0].dtype)) {
    case 1:
      return MakeSelectOf<uint8_t>(spec);
    case 2:
      return MakeSelectOf<uint16_t>(spec);
    case 4:
      return MakeSelectOf<uint32_t>(spec);
    default:
      return MakeSelectOf<uint64_t>(spec);
  }
}

// --- AddN --------------------------------------------------------------------

// Blocks are summed aside: the output may be any of the terms.
Result<KernelPtr> MakeAddN(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.elements();
  const int terms = static_cast<int>(spec.inputs.size());
  return DispatchDType(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        using C = ComputeType<T>;
        return KernelOf([n, terms](const KernelContext& c) {
          ParallelFor(n, kElementwiseGrain, [&](int64_t begin, int64_t end) {
            constexpr int64_t kBlock = 512;
            C sum[kBlock];
            for (int64_t at = begin; at < end; at += kBlock) {
              const int64_t count = std::min(kBlock, end - at);
              const T* first = c.input<T>(0) + at;
              for (int64_t i = 0; i < count; ++i) sum[i] = C(first[i]);
              for (int k = 1; k < terms; ++k) {
                const T* term = c.input<T>(k) + at;
                for (int64_t i = 0; i < count; ++i) {
                  sum[i] = scalar::Add()(sum[i], C(term[i]));
                }
              }
              T* y = c.output<T>(0) + at;
              for (int64_t i = 0; i < count; ++i) y[i] = T(sum[i]);
            }
          });
        });
      });
}

}  // namespace

void RegisterElementwiseMoveKernels(KernelTable& table) {
  table.Register({.op = "Cast", .make = MakeCast});
  table.Register(
      {.op = "CastList", .dtypes = DType::kFloat32, .make = MakeCastList});
  table.Register({.op = "Select", .dtypes = DType::kBool, .make = MakeSelect});
  table.Register({.op = "AddN", .dtypes = kNumeric, .make = MakeAddN});
}

}  // namespace sluice::cpu
