// Pooling: a thread computes 16 bytes along the channels of one pixel of the
// result. Gradients gather from the windows that cover a pixel of x, in their
// order, so that nothing is added to by two threads.
#include "kernels/cuda/ops/conv/pool.h"

#include "kernels/cuda/device/window.h"

namespace sluice::cuda {
namespace {

// Where pixel [image, row, column] of x and of y has its first channel.
__device__ int64_t InputPixel(const PoolShape& s, int64_t image, int64_t row,
                              int64_t column) {
  return ((image * s.h.input + row) * s.w.input + column) * s.channels;
}
__device__ int64_t OutputPixel(const PoolShape& s, int64_t image, int64_t row,
                               int64_t column) {
  return ((image * s.h.output + row) * s.w.output + column) * s.channels;
}

// fn(place in x of the pack's first channel) for the pixels of a window.
template <typename Fn>
__device__ void ForWindow(const PoolShape& s, const PixelTask& t, Fn fn) {
  const Interval rows = InsideOf(s.h, t.row);
  const Interval columns = InsideOf(s.w, t.column);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      fn(InputPixel(s, t.image, i, j) + t.channel);
    }
  }
}

// fn(window's row, its column, place in y of the pack's first channel) for the
// windows that cover a pixel, in their order.
template <typename Fn>
__device__ void ForWindowsOver(const PoolShape& s, const PixelTask& t, Fn fn) {
  const Interval rows = WindowsOver(s.h, t.row);
  const Interval columns = WindowsOver(s.w, t.column);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      fn(i, j, OutputPixel(s, t.image, i, j) + t.channel);
    }
  }
}

// One over the number of elements of a window that are no padding.
template <typename C>
__device__ C ShareOf(const PoolShape& s, int64_t oh, int64_t ow) {
  const Interval rows = InsideOf(s.h, oh), columns = InsideOf(s.w, ow);
  return C(1) / static_cast<C>((rows.end - rows.begin) *
                               (columns.end - columns.begin));
}

// What one element of a window's results is found from, over the window's
// elements in order. share: one over their number.
template <typename C>
struct LargestSoFar {
  C best = C(0);
  bool any = false;
  // NaN, once met, stays.
  __device__ void Add(C x) {
    if (!any || x > best || x != x) best = x;
    any = true;
  }
  __device__ C Result(C /*share*/) const { return best; }
};
template <typename C>
struct SumSoFar {
  C sum = C(0);
  __device__ void Add(C x) { sum += x; }
  __device__ C Result(C share) const { return sum * share; }
};

template <typename T, template <typename> typename SoFar>
__global__ void PoolKernel(PoolShape s, int64_t tasks, const T* x, T* y,
                           bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, s.channels);
    const int64_t count = s.channels - t.channel;
    SoFar<C> so_far[kN];
    ForWindow(s, t, [&](int64_t at) {
      const auto in = LoadPack<T>(x + at, count, whole);
      for (int k = 0; k < kN; ++k) so_far[k].Add(static_cast<C>(in.at[k]));
    });
    const C share = ShareOf<C>(s, t.row, t.column);
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(so_far[k].Result(share));
    StorePack(out, y + OutputPixel(s, t.image, t.row, t.column) + t.channel,
              count, whole);
  }
}

// Which of a pack's channels have x not below y, a bit each.
template <typename T, int N>
__device__ unsigned NotBelow(const Pack<T, N>& x, const Pack<T, N>& y) {
  using C = ComputeOf<T>;
  unsigned bits = 0;
  for (int k = 0; k < N; ++k) {
    if (static_cast<C>(x.at[k]) >= static_cast<C>(y.at[k])) bits |= 1u << k;
  }
  return bits;
}

// A window gives its dy to the first of its elements that is not below y.
template <typename T>
__global__ void MaxPoolGradKernel(PoolShape s, int64_t tasks, const T* x,
                                  const T* y, const T* dy, T* dx, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    const int64_t here = InputPixel(s, t.image, t.row, t.column) + t.channel;
    const auto own = LoadPack<T>(x + here, count, whole);
    C sum[kN] = {};
    ForWindowsOver(s, t, [&](int64_t oh, int64_t ow, int64_t at) {
      const auto best = LoadPack<T>(y + at, count, whole);
      unsigned mine = NotBelow(own, best);
      if (mine == 0) return;
      // Earlier elements of the window come first.
      const int64_t first_row = InsideOf(s.h, oh).begin;
      const Interval across = InsideOf(s.w, ow);
      for (int64_t r = first_row; r <= t.row && mine != 0; ++r) {
        const int64_t end = r < t.row ? across.end : t.column;
        for (int64_t c = across.begin; c < end && mine != 0; ++c) {
          const int64_t other = InputPixel(s, t.image, r, c) + t.channel;
          mine &= ~NotBelow(LoadPack<T>(x + other, count, whole), best);
        }
      }
      if (mine == 0) return;
      const auto given = LoadPack<T>(dy + at, count, whole);
      for (int k = 0; k < kN; ++k) {
        if ((mine >> k & 1u) != 0) sum[k] += static_cast<C>(given.at[k]);
      }
    });
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(sum[k]);
    StorePack(out, dx + here, count, whole);
  }
}

template <typename T>
__global__ void MaxPoolGradGradKernel(PoolShape s, int64_t tasks, const T* x,
                                      const T* y, const T* g, T* result,
                                      bool whole) {
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, s.channels);
    const int64_t count = s.channels - t.channel;
    const int64_t here = OutputPixel(s, t.image, t.row, t.column) + t.channel;
    const auto best = LoadPack<T>(y + here, count, whole);
    Pack<T, kN> out = {};
    unsigned open = (1u << kN) - 1;
    ForWindow(s, t, [&](int64_t at) {
      const unsigned found =
          NotBelow(LoadPack<T>(x + at, count, whole), best) & open;
      if (found == 0) return;
      const auto in = LoadPack<T>(g + at, count, whole);
      for (int k = 0; k < kN; ++k) {
        if ((found >> k & 1u) != 0) out.at[k] = in.at[k];
      }
      open &= ~found;
    });
    StorePack(out, result + here, count, whole);
  }
}

template <typename T>
__global__ void AvgPoolGradKernel(PoolShape s, int64_t tasks, const T* dy,
                                  T* dx, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    C sum[kN] = {};
    ForWindowsOver(s, t, [&](int64_t oh, int64_t ow, int64_t at) {
      const C share = ShareOf<C>(s, oh, ow);
      const auto given = LoadPack<T>(dy + at, count, whole);
      for (int k = 0; k < kN; ++k) {
        sum[k] += share * static_cast<C>(given.at[k]);
      }
    });
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(sum[k]);
    StorePack(out, dx + InputPixel(s, t.image, t.row, t.column) + t.channel,
              count, whole);
  }
}

// --- Launchers ---------------------------------------------------------------

template <typename T>
int64_t InputTasks(const PoolShape& s) {
  return PixelTasks<kPack<T>>(s.images, s.h.input, s.w.input, s.channels);
}
template <typename T>
int64_t OutputTasks(const PoolShape& s) {
  return PixelTasks<kPack<T>>(s.images, s.h.output, s.w.output, s.channels);
}

// Of one operand, with a task for each pack of the result.
template <typename T>
Status LaunchOne(const char* name, int64_t tasks, const PoolShape& s,
                 const void* a, void* result, cudaStream_t stream,
                 void (*kernel)(PoolShape, int64_t, const T*, T*, bool)) {
  return Launch(name, GridFor(tasks), stream, kernel, s, tasks,
                static_cast<const T*>(a), static_cast<T*>(result),
                PixelsAreWhole<T>(s.channels, a, result));
}
template <typename T>
Status LaunchThree(const char* name, int64_t tasks, const PoolShape& s,
                   const void* a, const void* b, const void* c, void* result,
                   cudaStream_t stream,
                   void (*kernel)(PoolShape, int64_t, const T*, const T*,
                                  const T*, T*, bool)) {
  return Launch(name, GridFor(tasks), stream, kernel, s, tasks,
                static_cast<const T*>(a), static_cast<const T*>(b),
                static_cast<const T*>(c), static_cast<T*>(result),
                PixelsAreWhole<T>(s.channels, a, b, c, result));
}

template <typename T>
Status MaxPool(const PoolShape& s, const void* x, const void*, const void*,
               void* y, cudaStream_t stream) {
  return LaunchOne<T>("MaxPool", OutputTasks<T>(s), s, x, y, stream,
                      PoolKernel<T, LargestSoFar>);
}
template <typename T>
Status MaxPoolGrad(const PoolShape& s, const void* x, const void* y,
                   const void* dy, void* dx, cudaStream_t stream) {
  return LaunchThree<T>("MaxPoolGrad", InputTasks<T>(s), s, x, y, dy, dx,
                        stream, MaxPoolGradKernel<T>);
}
template <typename T>
Status MaxPoolGradGrad(const PoolShape& s, const void* x, const void* y,
                       const void* g, void* result, cudaStream_t stream) {
  return LaunchThree<T>("MaxPoolGradGrad", OutputTasks<T>(s), s, x, y, g,
                        result, stream, MaxPoolGradGradKernel<T>);
}
template <typename T>
Status AvgPool(const PoolShape& s, const void* x, const void*, const void*,
               void* y, cudaStream_t stream) {
  return LaunchOne<T>("AvgPool", OutputTasks<T>(s), s, x, y, stream,
                      PoolKernel<T, SumSoFar>);
}
template <typename T>
Status AvgPoolGrad(const PoolShape& s, const void* dy, const void*, const void*,
                   void* dx, cudaStream_t stream) {
  return LaunchOne<T>("AvgPoolGrad", InputTasks<T>(s), s, dy, dx, stream,
                      AvgPoolGradKernel<T>);
}

template <typename T>
PoolLauncher LauncherOf(std::string_view op) {
  if (op == "MaxPool") return MaxPool<T>;
  if (op == "MaxPoolGrad") return MaxPoolGrad<T>;
  if (op == "MaxPoolGradGrad") return MaxPoolGradGrad<T>;
  if (op == "AvgPool") return AvgPool<T>;
  return op == "AvgPoolGrad" ? AvgPoolGrad<T> : nullptr;
}

}  // namespace

PoolLauncher FindPool(std::string_view op, DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    return LauncherOf<DeviceTypeOf<E>>(op);
  });
}

}  // namespace sluice::cuda
