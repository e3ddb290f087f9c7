// Depthwise convolutions: a thread computes 16 bytes along the channels of one
// pixel, tap by tap. There is nothing to multiply as matrices; what counts is
// to read x and dy along their channels.
//
// The filter's gradient is summed over segments of the pixels of y, a thread
// for 16 bytes of a tap in each, and over the segments in a second pass. A
// segment's pixels are summed in runs: in one sum over all of them the last
// digits of each would be lost.
#include "kernels/cuda/ops/conv/conv_depthwise.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/window.h"
#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

// The geometry in numbers alone: it is passed to kernels.
struct DepthwiseShape {
  WindowDim h, w;
  int64_t images;
  int64_t channels;  // of x
  int64_t outputs;   // channels of y for each of x

  explicit DepthwiseShape(const ConvGeometry& g)
      : h(g.h), w(g.w), images(g.images), channels(g.groups), outputs(g.out) {}
};

__device__ int64_t YChannels(const DepthwiseShape& s) {
  return s.channels * s.outputs;
}

// The N channels of x that those of y from `first` on come from, at `pixel`.
template <typename T, int N>
__device__ Pack<T, N> LoadSources(const DepthwiseShape& s, const T* pixel,
                                  int64_t first, int64_t count, bool whole) {
  if (s.outputs == 1) return LoadPack<T, N>(pixel + first, count, whole);
  Pack<T, N> pack = {};
  int64_t channel = Quotient(first, s.outputs);
  int64_t rest = first - channel * s.outputs;
  for (int k = 0; k < N && k < count; ++k) {
    pack.at[k] = pixel[channel];
    if (++rest == s.outputs) {
      rest = 0;
      ++channel;
    }
  }
  return pack;
}

// sum += a * b.
template <typename T, int N>
__device__ void AddProducts(const Pack<T, N>& a, const Pack<T, N>& b,
                            ComputeOf<T> (&sum)[N]) {
  using C = ComputeOf<T>;
  for (int k = 0; k < N; ++k) {
    sum[k] += static_cast<C>(a.at[k]) * static_cast<C>(b.at[k]);
  }
}

template <typename T, int N>
__device__ Pack<T, N> Rounded(const ComputeOf<T> (&sum)[N]) {
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) out.at[k] = T(sum[k]);
  return out;
}

// The input element under tap k of window o; out of [0, input) in the padding.
__device__ int64_t Under(const WindowDim& d, int64_t o, int64_t k) {
  return o * d.stride - d.pad_before + k * d.dilation;
}

template <typename T>
__global__ void ForwardKernel(DepthwiseShape s, int64_t tasks, const T* x,
                              const T* filter, T* y, bool whole) {
  constexpr int kN = kPack<T>;
  const int64_t channels = YChannels(s);
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.output, s.w.output, channels);
    const int64_t count = channels - t.channel;
    ComputeOf<T> sum[kN] = {};
    SLUICE_ROLLED
    for (int64_t kh = 0; kh < s.h.window; ++kh) {
      const int64_t ih = Under(s.h, t.row, kh);
      if (ih < 0 || ih >= s.h.input) continue;
      const T* line = x + (t.image * s.h.input + ih) * s.w.input * s.channels;
      SLUICE_ROLLED
      for (int64_t kw = 0; kw < s.w.window; ++kw) {
        const int64_t iw = Under(s.w, t.column, kw);
        if (iw < 0 || iw >= s.w.input) continue;
        const T* tap = filter + (kh * s.w.window + kw) * channels + t.channel;
        AddProducts(LoadSources<T, kN>(s, line + iw * s.channels, t.channel,
                                       count, whole),
                    LoadPack<T>(tap, count, whole), sum);
      }
    }
    const int64_t pixel =
        (t.image * s.h.output + t.row) * s.w.output + t.column;
    StorePack(Rounded<T, kN>(sum), y + pixel * channels + t.channel, count,
              whole);
  }
}

// The terms of one tap of one window for a pack of x's channels.
template <typename T, int N>
__device__ void AddTap(const DepthwiseShape& s, const T* dy, const T* tap,
                       int64_t count, bool whole, ComputeOf<T> (&sum)[N]) {
  using C = ComputeOf<T>;
  if (s.outputs == 1) {
    AddProducts(LoadPack<T>(dy, count, whole), LoadPack<T>(tap, count, whole),
                sum);
    return;
  }
  for (int k = 0; k < N && k < count; ++k) {
    for (int64_t o = 0; o < s.outputs; ++o) {
      const int64_t at = k * s.outputs + o;
      sum[k] += static_cast<C>(dy[at]) * static_cast<C>(tap[at]);
    }
  }
}

template <typename T>
__global__ void InputKernel(DepthwiseShape s, int64_t tasks, const T* dy,
                            const T* filter, T* dx, bool whole) {
  constexpr int kN = kPack<T>;
  const int64_t channels = YChannels(s);
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const PixelTask t = PixelTaskOf<kN>(i, s.h.input, s.w.input, s.channels);
    const int64_t count = s.channels - t.channel;
    const int64_t first = t.channel * s.outputs;
    ComputeOf<T> sum[kN] = {};
    SLUICE_ROLLED
    for (int64_t kh = 0; kh < s.h.window; ++kh) {
      const int64_t oh = WindowAt(s.h, t.row, kh);
      if (oh < 0) continue;
      const T* line = dy + (t.image * s.h.output + oh) * s.w.output * channels;
      SLUICE_ROLLED
      for (int64_t kw = 0; kw < s.w.window; ++kw) {
        const int64_t ow = WindowAt(s.w, t.column, kw);
        if (ow < 0) continue;
        const T* tap = filter + (kh * s.w.window + kw) * channels + first;
        AddTap<T, kN>(s, line + ow * channels + first, tap, count, whole, sum);
      }
    }
    const int64_t pixel = (t.image * s.h.input + t.row) * s.w.input + t.column;
    StorePack(Rounded<T, kN>(sum), dx + pixel * s.channels + t.channel, count,
              whole);
  }
}

// --- The filter's gradient ---------------------------------------------------

// How the pixels of y are cut: by the shape alone.
struct FilterPlan {
  int64_t pixels;    // of y
  int64_t taps;      // of the filter
  int64_t channels;  // of y
  int64_t packs;     // of a tap
  int64_t segments;
  int64_t segment_pixels;
};

template <typename T>
FilterPlan PlanOf(const ConvGeometry& g) {
  constexpr int64_t kThreads = 1 << 17;  // wanted
  constexpr int64_t kLeastPixels = 32, kMostSegments = 1024;
  FilterPlan p{};
  p.pixels = g.images * g.h.output * g.w.output;
  p.taps = g.taps();
  p.channels = g.y_channels();
  p.packs = CeilDiv(p.channels, kPack<T>);
  const int64_t wanted = kThreads / std::max<int64_t>(p.taps * p.packs, 1) + 1;
  const int64_t most = std::min(p.pixels / kLeastPixels + 1, kMostSegments);
  p.segment_pixels =
      std::max<int64_t>(CeilDiv(p.pixels, std::min(wanted, most)), 1);
  p.segments = CeilDiv(p.pixels, p.segment_pixels);
  return p;
}

constexpr int64_t kPixelRun = 256;

// results[segment][tap][channel of y].
template <typename T>
__global__ void FilterKernel(DepthwiseShape s, FilterPlan p, const T* x,
                             const T* dy, ComputeOf<T>* results, bool whole) {
  constexpr int kN = kPack<T>;
  const int64_t tasks = p.segments * p.taps * p.packs;
  for (int64_t i = GlobalThread(); i < tasks; i += GlobalThreads()) {
    const int64_t rest = Quotient(i, p.packs);
    const int64_t channel = (i - rest * p.packs) * kN;
    const int64_t segment = Quotient(rest, p.taps);
    const int64_t tap = rest - segment * p.taps;
    const int64_t kh = Quotient(tap, s.w.window);
    const int64_t kw = tap - kh * s.w.window;
    const int64_t count = p.channels - channel;
    const int64_t begin = segment * p.segment_pixels;
    const int64_t end = scalar::Minimum()(begin + p.segment_pixels, p.pixels);
    // Where `pixel` is in the images.
    int64_t line = Quotient(begin, s.w.output);
    int64_t ow = begin - line * s.w.output;
    int64_t image = Quotient(line, s.h.output);
    int64_t oh = line - image * s.h.output;
    ComputeOf<T> sum[kN] = {};
    SLUICE_ROLLED
    for (int64_t pixel = begin; pixel < end;) {
      const int64_t run_end = scalar::Minimum()(pixel + kPixelRun, end);
      ComputeOf<T> run[kN] = {};
      SLUICE_ROLLED
      for (; pixel < run_end; ++pixel) {
        const int64_t ih = Under(s.h, oh, kh), iw = Under(s.w, ow, kw);
        if (ih >= 0 && ih < s.h.input && iw >= 0 && iw < s.w.input) {
          const int64_t at = (image * s.h.input + ih) * s.w.input + iw;
          AddProducts(
              LoadSources<T, kN>(s, x + at * s.channels, channel, count, whole),
              LoadPack<T>(dy + pixel * p.channels + channel, count, whole),
              run);
        }
        if (++ow < s.w.output) continue;
        ow = 0;
        if (++oh < s.h.output) continue;
        oh = 0;
        ++image;
      }
      for (int k = 0; k < kN; ++k) sum[k] += run[k];
    }
    ComputeOf<T>* out =
        results + (segment * p.taps + tap) * p.channels + channel;
    for (int k = 0; k < kN && k < count; ++k) out[k] = sum[k];
  }
}

template <typename T>
__global__ void __launch_bounds__(kColumnThreads)
    FilterSumKernel(BatchNormShape columns, int64_t segments,
                    const ComputeOf<T>* results, T* dfilter) {
  using C = ComputeOf<T>;
  SecondPass<C>(
      columns, segments,
      [&](int64_t segment, int64_t column) {
        return results[segment * columns.channels + column];
      },
      [&](C sum, int64_t column) { dfilter[column] = T(sum); });
}

// --- Launchers ---------------------------------------------------------------

// `whole` says that packs of channels may be accessed at once; where y has
// several channels for each of x, only those of the result and what is like it.

template <typename T>
Status Forward(const ConvGeometry& g, const void* x, const void* filter,
               void* y, void*, cudaStream_t stream) {
  const int64_t tasks =
      PixelTasks<kPack<T>>(g.images, g.h.output, g.w.output, g.y_channels());
  const bool whole = PixelsAreWhole<T>(g.y_channels(), filter, y) &&
                     (g.out > 1 || IsAligned<T>(x));
  return Launch("DepthwiseConv2D", GridFor(tasks), stream, ForwardKernel<T>,
                DepthwiseShape(g), tasks, static_cast<const T*>(x),
                static_cast<const T*>(filter), static_cast<T*>(y), whole);
}

template <typename T>
Status Input(const ConvGeometry& g, const void* dy, const void* filter,
             void* dx, void*, cudaStream_t stream) {
  const int64_t tasks =
      PixelTasks<kPack<T>>(g.images, g.h.input, g.w.input, g.groups);
  const bool whole = PixelsAreWhole<T>(g.groups, dx) &&
                     (g.out > 1 || (IsAligned<T>(dy) && IsAligned<T>(filter)));
  return Launch("DepthwiseConv2DBackpropInput", GridFor(tasks), stream,
                InputKernel<T>, DepthwiseShape(g), tasks,
                static_cast<const T*>(dy), static_cast<const T*>(filter),
                static_cast<T*>(dx), whole);
}

template <typename T>
Status Filter(const ConvGeometry& g, const void* x, const void* dy,
              void* dfilter, void* workspace, cudaStream_t stream) {
  const FilterPlan p = PlanOf<T>(g);
  auto* results = static_cast<ComputeOf<T>*>(workspace);
  const bool whole =
      PixelsAreWhole<T>(p.channels, dy) && (g.out > 1 || IsAligned<T>(x));
  SLUICE_RETURN_IF_ERROR(Launch(
      "DepthwiseConv2DBackpropFilter", GridFor(p.segments * p.taps * p.packs),
      stream, FilterKernel<T>, DepthwiseShape(g), p, static_cast<const T*>(x),
      static_cast<const T*>(dy), results, whole));
  const BatchNormShape columns = {p.segments, p.taps * p.channels};
  return Launch("DepthwiseConv2DBackpropFilter sums",
                SecondPassGrid<ComputeOf<T>>(columns), stream,
                FilterSumKernel<T>, columns, p.segments, results,
                static_cast<T*>(dfilter));
}

}  // namespace

size_t DepthwiseWorkspace(const ConvGeometry& geometry, ConvPass pass,
                          DType dtype) {
  if (pass != ConvPass::kFilter) return 0;
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    const FilterPlan p = PlanOf<T>(geometry);
    return static_cast<size_t>(p.segments * p.taps * p.channels) *
           sizeof(ComputeOf<T>);
  });
}

DepthwiseLauncher FindDepthwise(ConvPass pass, DType dtype) {
  return DispatchFloating(
      dtype, [&]<typename E>(TypeTag<E>) -> DepthwiseLauncher {
        using T = DeviceTypeOf<E>;
        if (pass == ConvPass::kForward) return Forward<T>;
        return pass == ConvPass::kInput ? Input<T> : Filter<T>;
      });
}

}  // namespace sluice::cuda
