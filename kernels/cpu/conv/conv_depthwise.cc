// Depthwise convolutions of float32 with one filter per channel, and their
// gradients: a result pixel is the sum, over the taps that lie on the image, of
// a source pixel times a row of the filter (kernels/cpu/simd/depthwise.h). The
// fused forms add to each row of pixels while it is in the nearest cache.
#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_epilogue.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

void RegisterDepthwiseKernels(KernelTable& table);

namespace {

// Taps that are summed at a time.
constexpr int64_t kMaxTaps = 64;
// Windows whose gradients are added one to another, of a row or of whole rows:
// in one float sum of very many the last digits of each would be lost.
constexpr int64_t kMaxWindows = 256;
// Multiply-adds of a piece of work.
constexpr int64_t kPieceWork = 1 << 18;

// Gathers taps and sums them whenever there are kMaxTaps. begun: y holds
// something that they are added to.
class PixelSum {
 public:
  PixelSum(int64_t channels, bool begun, float* y)
      : begun_(begun), channels_(channels), y_(y) {}
  void Add(const float* x, const float* filter) {
    if (count_ == kMaxTaps) Flush();
    x_[count_] = x;
    filter_[count_++] = filter;
  }
  void Flush() {
    Simd().depthwise.pixel(x_, filter_, count_, channels_, begun_, y_);
    begun_ = true;
    count_ = 0;
  }

 private:
  const float* x_[kMaxTaps];
  const float* filter_[kMaxTaps];
  int64_t count_ = 0;
  bool begun_;
  int64_t channels_;
  float* y_;
};

// The pixels of every row [n, h] of results: add_taps(image, row, column, its
// PixelSum) adds the taps. They are added to the epilogue's addend, which may
// be the result, and its bias to them.
template <typename AddTaps>
void ForPixels(const ConvGeometry& g, int64_t h, int64_t w,
               const ConvEpilogue& epilogue, float* result,
               const AddTaps& add_taps) {
  if (w == 0) return;  // there may be 2^62 rows of nothing
  const int64_t channels = g.groups;
  const int64_t row_work = std::max<int64_t>(w * channels * g.taps(), 1);
  const float* const addend = epilogue.addend;
  ParallelFor(g.images * h, std::max<int64_t>(kPieceWork / row_work, 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const int64_t first = row * w * channels;
                  float* const pixels = result + first;
                  if (addend != nullptr && addend != result) {
                    std::copy_n(addend + first, w * channels, pixels);
                  }
                  for (int64_t column = 0; column < w; ++column) {
                    PixelSum sum(channels, /*begun=*/addend != nullptr,
                                 pixels + column * channels);
                    add_taps(row / h, row % h, column, sum);
                    sum.Flush();
                  }
                  if (epilogue.bias != nullptr) {
                    Simd().bias_add(pixels, epilogue.bias, pixels, w, channels,
                                    epilogue.relu);
                  }
                }
              });
}

void Forward(const ConvGeometry& g, const float* x, const float* filter,
             const ConvEpilogue& epilogue, float* y) {
  const int64_t channels = g.groups;
  ForPixels(g, g.h.output, g.w.output, epilogue, y,
            [&](int64_t image, int64_t oh, int64_t ow, PixelSum& sum) {
              for (int64_t kh = 0; kh < g.h.window; ++kh) {
                const int64_t ih = g.h.Start(oh) + kh * g.h.dilation;
                if (ih < 0 || ih >= g.h.input) continue;
                const float* line =
                    x + (image * g.h.input + ih) * g.w.input * channels;
                for (int64_t kw = 0; kw < g.w.window; ++kw) {
                  const int64_t iw = g.w.Start(ow) + kw * g.w.dilation;
                  if (iw < 0 || iw >= g.w.input) continue;
                  sum.Add(line + iw * channels,
                          filter + (kh * g.w.window + kw) * channels);
                }
              }
            });
}

void BackpropInput(const ConvGeometry& g, const float* dy, const float* filter,
                   const ConvEpilogue& epilogue, float* dx) {
  const int64_t channels = g.groups;
  ForPixels(g, g.h.input, g.w.input, epilogue, dx,
            [&](int64_t image, int64_t ih, int64_t iw, PixelSum& sum) {
              for (int64_t kh = 0; kh < g.h.window; ++kh) {
                const int64_t oh = WindowOver(g.h, ih, kh);
                if (oh < 0) continue;
                const float* line =
                    dy + (image * g.h.output + oh) * g.w.output * channels;
                for (int64_t kw = 0; kw < g.w.window; ++kw) {
                  const int64_t ow = WindowOver(g.w, iw, kw);
                  if (ow < 0) continue;
                  sum.Add(line + ow * channels,
                          filter + (kh * g.w.window + kw) * channels);
                }
              }
            });
}

// Adds row oh of one image to all taps' gradients.
void AddRow(const ConvGeometry& g, int64_t image, int64_t oh, const float* x,
            const float* dy, float* sum) {
  const int64_t channels = g.groups;
  const float* dy_row = dy + (image * g.h.output + oh) * g.w.output * channels;
  for (int64_t kh = 0; kh < g.h.window; ++kh) {
    const int64_t ih = g.h.Start(oh) + kh * g.h.dilation;
    if (ih < 0 || ih >= g.h.input) continue;
    const float* line = x + (image * g.h.input + ih) * g.w.input * channels;
    for (int64_t kw = 0; kw < g.w.window; ++kw) {
      // Windows [begin, end) have this tap on the image.
      const int64_t first = g.w.Start(0) + kw * g.w.dilation;
      const int64_t begin = first < 0 ? CeilDiv(-first, g.w.stride) : 0;
      const int64_t end =
          first >= g.w.input
              ? 0
              : std::min(g.w.output, (g.w.input - 1 - first) / g.w.stride + 1);
      for (int64_t at = begin; at < end; at += kMaxWindows) {
        Simd().depthwise.tap_grad(
            line + (first + at * g.w.stride) * channels, g.w.stride * channels,
            dy_row + at * channels, channels, std::min(kMaxWindows, end - at),
            channels, sum + (kh * g.w.window + kw) * channels);
      }
    }
  }
}

// sum = that of rows [row, end) of all images: of the first at once, then of
// some at a time in `run`.
void SumRows(const ConvGeometry& g, int64_t row, int64_t end, const float* x,
             const float* dy, float* run, float* sum) {
  const int64_t floats = g.taps() * g.groups;
  const int64_t most = std::max<int64_t>(kMaxWindows / g.w.output, 1);
  std::fill(sum, sum + floats, 0.0f);
  for (float* to = sum; row < end; to = run) {
    if (to == run) std::fill(run, run + floats, 0.0f);
    for (const int64_t last = std::min(row + most, end); row < last; ++row) {
      AddRow(g, row / g.h.output, row % g.h.output, x, dy, to);
    }
    if (to == run) Simd().axpy(1.0f, run, sum, floats);
  }
}

// Rows of all images fall into kConvPieces sums, which are added in order.
void BackpropFilter(const ConvGeometry& g, const float* x, const float* dy,
                    float* dfilter, float* partial) {
  const int64_t floats = g.taps() * g.groups;
  if (g.x_image() == 0 || g.y_image() == 0) {  // there may be 2^62 images
    std::fill(dfilter, dfilter + floats, 0.0f);
    return;
  }
  const int64_t rows = g.images * g.h.output;
  ParallelFor(kConvPieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      float* const sum = partial + piece * Aligned(floats);
      SumRows(g, rows * piece / kConvPieces, rows * (piece + 1) / kConvPieces,
              x, dy, sum + kConvPieces * Aligned(floats), sum);
    }
  });
  std::copy(partial, partial + floats, dfilter);
  for (int64_t piece = 1; piece < kConvPieces; ++piece) {
    Simd().axpy(1.0f, partial + piece * Aligned(floats), dfilter, floats);
  }
}

using RunFn = void (*)(const ConvGeometry& g, const float* a, const float* b,
                       const ConvEpilogue& epilogue, float* result);
template <RunFn run>
Result<KernelPtr> Make(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  return KernelOf([g, epilogue = ConvEpilogueOf(spec)](const KernelContext& c) {
    run(g, c.input<float>(0), c.input<float>(1), epilogue(c),
        c.output<float>(0));
  });
}

Result<KernelPtr> MakeBackpropFilter(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  return KernelOf(
      [g](const KernelContext& c) {
        BackpropFilter(g, c.input<float>(0), c.input<float>(1),
                       c.output<float>(0), static_cast<float*>(c.workspace()));
      },
      2 * kConvPieces * Aligned(g.taps() * g.groups) * sizeof(float));
}

bool OneFilterPerChannel(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  return g.ok() && g->in == 1 && g->out == 1 && g->groups > 1;
}

}  // namespace

void RegisterDepthwiseKernels(KernelTable& table) {
  auto add = [&](const char* op, Result<KernelPtr> (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports = OneFilterPerChannel,
                    .dtypes = DType::kFloat32,
                    .make = make});
  };
  for (const char* op : kConvolutions) add(op, Make<Forward>);
  add("DepthwiseConv2D", Make<Forward>);
  for (const char* op :
       {"Conv2DBackpropInput", "DepthwiseConv2DBackpropInput"}) {
    add(op, Make<BackpropInput>);
  }
  for (const char* op :
       {"Conv2DBackpropFilter", "DepthwiseConv2DBackpropFilter"}) {
    add(op, MakeBackpropFilter);
  }
}

}  // namespace sluice::cpu
