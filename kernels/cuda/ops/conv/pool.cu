// Pooling: a thread computes 16 bytes along the channels of one pixel of the
// result. Gradients gather from the windows that cover a pixel of x, in their
// order, so that nothing is added to by two threads.
#include "kernels/cuda/ops/conv/pool.h"

#include <cmath>

#include "engine/semantics/pool_argmax.h"
#include "engine/semantics/pool_run.h"
#include "kernels/cuda/device/ahead.h"
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

// Which element of window [oh, ow] the pixel [row, column] is
// (engine/semantics/pool_argmax.h).
__device__ int ElementOf(const PoolShape& s, int64_t oh, int64_t ow,
                         int64_t row, int64_t column) {
  const int64_t down = row + s.h.pad_before - oh * s.h.stride;
  const int64_t across = column + s.w.pad_before - ow * s.w.stride;
  return static_cast<int>(down * s.w.window + across);
}

// fn(pack of x, its place in x, the window's element) for the pixels of a
// window.
template <bool kWhole, typename T, typename Fn>
__device__ void ForWindow(const PoolShape& s, const PixelTask& t, const T* x,
                          Fn fn) {
  const Interval rows = InsideOf(s.h, t.row);
  const Interval columns = InsideOf(s.w, t.column);
  const int64_t count = s.channels - t.channel;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t line = InputPixel(s, t.image, i, 0) + t.channel;
    const int element = ElementOf(s, t.row, t.column, i, 0);
    Ahead<1>(
        columns.begin, columns.end, int64_t{1},
        [&](int64_t j) {
          return LoadPackOf<kWhole>(x + line + j * s.channels, count);
        },
        [&](const auto& pack, int64_t j) {
          fn(pack, line + j * s.channels, element + static_cast<int>(j));
        });
  }
}

// fn(load(place), window's row, its column) for the windows that cover a pixel,
// in their order, where place is that of the pack's first channel in y. Not
// ahead, nor unrolled: what fn does wants the registers.
template <typename LoadFn, typename Fn>
__device__ void ForWindowsOver(const PoolShape& s, const PixelTask& t,
                               LoadFn load, Fn fn) {
  const Interval rows = WindowsOver(s.h, t.row);
  const Interval columns = WindowsOver(s.w, t.column);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    SLUICE_ROLLED
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      fn(load(OutputPixel(s, t.image, i, j) + t.channel), i, j);
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
// Of a window that has several runs, or of windows (pool_run.h).
template <typename C>
struct SumOfRuns {
  C sum = C(0), run = C(0);
  __device__ void Add(C x) { run += x; }
  __device__ void EndRun() {
    sum += run;
    run = C(0);
  }
  __device__ C Result(C share) const { return (sum + run) * share; }
};

// After each of what is added; left: of the run.
template <typename SoFar, int N>
__device__ void CountInRun([[maybe_unused]] SoFar (&so_far)[N],
                           [[maybe_unused]] int* left) {
  if constexpr (requires { so_far[0].EndRun(); }) {
    if (--*left > 0) return;
    *left = kPoolRun;
    for (int k = 0; k < N; ++k) so_far[k].EndRun();
  }
}

template <typename T, template <typename> typename SoFar, bool kWhole>
__global__ void PoolKernel(PoolShape s, int64_t tasks, const T* x, T* y) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, s.channels);
    const int64_t count = s.channels - t.channel;
    SoFar<C> so_far[kN];
    int left = kPoolRun;
    ForWindow<kWhole>(s, t, x, [&](const Pack<T, kN>& in, int64_t, int) {
      for (int k = 0; k < kN; ++k) so_far[k].Add(static_cast<C>(in.at[k]));
      CountInRun(so_far, &left);
    });
    const C share = ShareOf<C>(s, t.row, t.column);
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(so_far[k].Result(share));
    StorePackOf<kWhole>(
        out, y + OutputPixel(s, t.image, t.row, t.column) + t.channel, count);
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
template <typename T, template <typename> typename SoFar, bool kWhole>
__global__ void MaxPoolGradKernel(PoolShape s, int64_t tasks, const T* x,
                                  const T* y, const T* dy, T* dx) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  struct Given {
    Pack<T, kN> best, dy;
  };
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    const int64_t here = InputPixel(s, t.image, t.row, t.column) + t.channel;
    const auto own = LoadPackOf<kWhole>(x + here, count);
    SoFar<C> so_far[kN];
    int left = kPoolRun;
    const auto load = [&](int64_t at) {
      return Given{LoadPackOf<kWhole>(y + at, count),
                   LoadPackOf<kWhole>(dy + at, count)};
    };
    ForWindowsOver(
        s, t, load, [&](const Given& window, int64_t oh, int64_t ow) {
          unsigned mine = NotBelow(own, window.best);
          if (mine == 0) return;
          // Earlier elements of the window come first.
          const int64_t first_row = InsideOf(s.h, oh).begin;
          const Interval across = InsideOf(s.w, ow);
          for (int64_t r = first_row; r <= t.row && mine != 0; ++r) {
            const int64_t end = r < t.row ? across.end : t.column;
            for (int64_t c = across.begin; c < end && mine != 0; ++c) {
              const int64_t other = InputPixel(s, t.image, r, c) + t.channel;
              mine &=
                  ~NotBelow(LoadPackOf<kWhole>(x + other, count), window.best);
            }
          }
          for (int k = 0; k < kN; ++k) {
            if ((mine >> k & 1u) != 0) {
              so_far[k].Add(static_cast<C>(window.dy.at[k]));
            }
          }
          CountInRun(so_far, &left);
        });
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(so_far[k].Result(C(1)));
    StorePackOf<kWhole>(out, dx + here, count);
  }
}

template <typename T, bool kWhole>
__global__ void MaxPoolWithArgmaxKernel(PoolShape s, int64_t tasks, const T* x,
                                        T* y, uint8_t* argmax) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, s.channels);
    const int64_t count = s.channels - t.channel;
    C best[kN];
    int where[kN];
    const int first = ElementOf(s, t.row, t.column, InsideOf(s.h, t.row).begin,
                                InsideOf(s.w, t.column).begin);
    for (int k = 0; k < kN; ++k) {
      best[k] = -C(INFINITY);
      where[k] = first;
    }
    ForWindow<kWhole>(s, t, x,
                      [&](const Pack<T, kN>& in, int64_t, int element) {
                        for (int k = 0; k < kN; ++k) {
                          const C value = static_cast<C>(in.at[k]);
                          const bool larger = value > best[k] || value != value;
                          best[k] = larger ? value : best[k];
                          where[k] = larger ? element : where[k];
                        }
                      });
    Pack<T, kN> out;
    Pack<uint8_t, kN> places;
    for (int k = 0; k < kN; ++k) {
      const bool nan = best[k] != best[k];
      out.at[k] = T(best[k]);
      places.at[k] = nan ? kNoPoolElement : static_cast<uint8_t>(where[k]);
    }
    const int64_t here = OutputPixel(s, t.image, t.row, t.column) + t.channel;
    StorePackOf<kWhole>(out, y + here, count);
    StorePackOf<kWhole>(places, argmax + here, count);
  }
}

// What it takes of a window is small, so that several are loaded ahead.
template <typename T, bool kWhole>
__global__ void MaxPoolGradWithArgmaxKernel(PoolShape s, int64_t tasks,
                                            const T* dy, const uint8_t* argmax,
                                            T* dx) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  struct Given {
    Pack<T, kN> dy;
    Pack<uint8_t, kN> argmax;
    int element;
  };
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    const Interval rows = WindowsOver(s.h, t.row);
    const Interval columns = WindowsOver(s.w, t.column);
    const int down = static_cast<int>(rows.end - rows.begin);
    const int across = static_cast<int>(columns.end - columns.begin);
    C sum[kN] = {};
    // Of the next load: from a window to the one beside it, or below.
    int64_t at = OutputPixel(s, t.image, rows.begin, columns.begin) + t.channel;
    int element = ElementOf(s, rows.begin, columns.begin, t.row, t.column);
    int left = across;
    const int beside = static_cast<int>(s.w.stride);
    const int below = static_cast<int>(s.h.stride * s.w.window);
    Ahead<2>(
        0, down > 0 && across > 0 ? down * across : 0, 1,
        [&](int) {
          const Given given = {
              LoadPackOf<kWhole>(dy + at, count),
              LoadPackOf<kWhole, uint8_t, kN>(argmax + at, count), element};
          at += s.channels;
          element -= beside;
          if (--left == 0) {
            left = across;
            at += (s.w.output - across) * s.channels;
            element += across * beside - below;
          }
          return given;
        },
        [&](const Given& given, int) {
          for (int k = 0; k < kN; ++k) {
            if (given.argmax.at[k] == given.element) {
              sum[k] += static_cast<C>(given.dy.at[k]);
            }
          }
        });
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(sum[k]);
    StorePackOf<kWhole>(
        out, dx + InputPixel(s, t.image, t.row, t.column) + t.channel, count);
  }
}

template <typename T, bool kWhole>
__global__ void MaxPoolGradGradKernel(PoolShape s, int64_t tasks, const T* x,
                                      const T* y, const T* g, T* result) {
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, s.channels);
    const int64_t count = s.channels - t.channel;
    const int64_t here = OutputPixel(s, t.image, t.row, t.column) + t.channel;
    const auto best = LoadPackOf<kWhole>(y + here, count);
    Pack<T, kN> out = {};
    unsigned open = (1u << kN) - 1;
    ForWindow<kWhole>(s, t, x, [&](const Pack<T, kN>& pack, int64_t at, int) {
      const unsigned found = NotBelow(pack, best) & open;
      if (found == 0) return;
      const auto in = LoadPackOf<kWhole>(g + at, count);
      for (int k = 0; k < kN; ++k) {
        if ((found >> k & 1u) != 0) out.at[k] = in.at[k];
      }
      open &= ~found;
    });
    StorePackOf<kWhole>(out, result + here, count);
  }
}

template <typename T, template <typename> typename SoFar, bool kWhole>
__global__ void AvgPoolGradKernel(PoolShape s, int64_t tasks, const T* dy,
                                  T* dx) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    SoFar<C> so_far[kN];
    int left = kPoolRun;
    const auto load = [&](int64_t at) {
      return LoadPackOf<kWhole>(dy + at, count);
    };
    ForWindowsOver(s, t, load,
                   [&](const Pack<T, kN>& given, int64_t oh, int64_t ow) {
                     const C share = ShareOf<C>(s, oh, ow);
                     for (int k = 0; k < kN; ++k) {
                       so_far[k].Add(share * static_cast<C>(given.at[k]));
                     }
                     CountInRun(so_far, &left);
                   });
    Pack<T, kN> out;
    for (int k = 0; k < kN; ++k) out.at[k] = T(so_far[k].Result(C(1)));
    StorePackOf<kWhole>(
        out, dx + InputPixel(s, t.image, t.row, t.column) + t.channel, count);
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

// A kernel of some operands before the result, with a task for each pack of it.
// kernel(whole) is it, for packs that are whole or any.
template <typename T, typename KernelOf, typename... Operands>
Status LaunchPool(const char* name, int64_t tasks, const PoolShape& s,
                  cudaStream_t stream, KernelOf kernel, void* result,
                  Operands... operands) {
  return DispatchBools(
      [&](auto whole) {
        return Launch(name, GridFor(tasks), stream, kernel(whole), s, tasks,
                      static_cast<const T*>(operands)...,
                      static_cast<T*>(result));
      },
      PixelsAreWhole<T>(s.channels, operands..., result));
}

template <typename T, template <typename> typename SoFar>
constexpr auto kPoolKernel =
    [](auto whole) { return PoolKernel<T, SoFar, decltype(whole)::value>; };
template <typename T, template <typename> typename SoFar>
constexpr auto kMaxPoolGradKernel = [](auto whole) {
  return MaxPoolGradKernel<T, SoFar, decltype(whole)::value>;
};
template <typename T, template <typename> typename SoFar>
constexpr auto kAvgPoolGradKernel = [](auto whole) {
  return AvgPoolGradKernel<T, SoFar, decltype(whole)::value>;
};

template <typename T>
Status MaxPool(const PoolShape& s, const void* x, const void*, const void*,
               void* y, cudaStream_t stream) {
  return LaunchPool<T>("MaxPool", OutputTasks<T>(s), s, stream,
                       kPoolKernel<T, LargestSoFar>, y, x);
}
template <typename T>
Status MaxPoolGrad(const PoolShape& s, const void* x, const void* y,
                   const void* dy, void* dx, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    return LaunchPool<T>("MaxPoolGrad", InputTasks<T>(s), s, stream, kernel, dx,
                         x, y, dy);
  };
  return HasGradRuns(s.h, s.w) ? launch(kMaxPoolGradKernel<T, SumOfRuns>)
                               : launch(kMaxPoolGradKernel<T, SumSoFar>);
}
template <typename T>
Status MaxPoolGradGrad(const PoolShape& s, const void* x, const void* y,
                       const void* g, void* result, cudaStream_t stream) {
  const auto kernel = [](auto whole) {
    return MaxPoolGradGradKernel<T, decltype(whole)::value>;
  };
  return LaunchPool<T>("MaxPoolGradGrad", OutputTasks<T>(s), s, stream, kernel,
                       result, x, y, g);
}
template <typename T>
Status MaxPoolWithArgmax(const PoolShape& s, const void* x, void* y,
                         uint8_t* argmax, cudaStream_t stream) {
  return DispatchBools(
      [&](auto whole) {
        return Launch("MaxPoolWithArgmax", GridFor(OutputTasks<T>(s)), stream,
                      MaxPoolWithArgmaxKernel<T, decltype(whole)::value>, s,
                      OutputTasks<T>(s), static_cast<const T*>(x),
                      static_cast<T*>(y), argmax);
      },
      PixelsAreWhole<T>(s.channels, x, y, argmax));
}
template <typename T>
Status MaxPoolGradWithArgmax(const PoolShape& s, const void* dy,
                             const void* argmax, const void*, void* dx,
                             cudaStream_t stream) {
  return DispatchBools(
      [&](auto whole) {
        return Launch("MaxPoolGradWithArgmax", GridFor(InputTasks<T>(s)),
                      stream,
                      MaxPoolGradWithArgmaxKernel<T, decltype(whole)::value>, s,
                      InputTasks<T>(s), static_cast<const T*>(dy),
                      static_cast<const uint8_t*>(argmax), static_cast<T*>(dx));
      },
      PixelsAreWhole<T>(s.channels, dy, argmax, dx));
}
template <typename T>
Status AvgPool(const PoolShape& s, const void* x, const void*, const void*,
               void* y, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    return LaunchPool<T>("AvgPool", OutputTasks<T>(s), s, stream, kernel, y, x);
  };
  return HasPoolRuns(s.h.window, s.w.window) ? launch(kPoolKernel<T, SumOfRuns>)
                                             : launch(kPoolKernel<T, SumSoFar>);
}
template <typename T>
Status AvgPoolGrad(const PoolShape& s, const void* dy, const void*, const void*,
                   void* dx, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    return LaunchPool<T>("AvgPoolGrad", InputTasks<T>(s), s, stream, kernel, dx,
                         dy);
  };
  return HasGradRuns(s.h, s.w) ? launch(kAvgPoolGradKernel<T, SumOfRuns>)
                               : launch(kAvgPoolGradKernel<T, SumSoFar>);
}

template <typename T>
PoolLauncher LauncherOf(std::string_view op) {
  if (op == "MaxPool") return MaxPool<T>;
  if (op == "MaxPoolGrad") return MaxPoolGrad<T>;
  if (op == "MaxPoolGradWithArgmax") return MaxPoolGradWithArgmax<T>;
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

ArgmaxPoolLauncher FindMaxPoolWithArgmax(DType dtype) {
  if (!IsFloating(dtype)) return nullptr;
  return DispatchFloating(dtype,
                          [&]<typename E>(TypeTag<E>) -> ArgmaxPoolLauncher {
                            return MaxPoolWithArgmax<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
