// Convolutions as plain loops, for all floating types: the reference. The
// innermost loops run over blocks of channels, accumulated on the stack.
#include <algorithm>
#include <array>

#include "engine/semantics/conv_geometry.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_ohwi.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {

void RegisterFastConvKernels(KernelTable& table);   // conv_fast.cc
void RegisterDepthwiseKernels(KernelTable& table);  // conv_depthwise.cc
void RegisterWinogradKernels(KernelTable& table);   // conv_winograd.cc

namespace {

constexpr int64_t kBlock = 64;   // channels accumulated at a time
constexpr int64_t kTerms = 256;  // that are added one to another

// Pieces of about 2^20 multiplications.
int64_t Grain(int64_t multiplications) {
  return std::max<int64_t>(
      (int64_t{1} << 20) / std::max<int64_t>(multiplications, 1), 1);
}

// The sums of a block of channels.
template <typename C>
using Runs = SumsInRuns<C, kBlock, kTerms>;

template <typename T>
struct Operands {
  const T* x = nullptr;
  const T* filter = nullptr;
  const T* y = nullptr;
};

// Calls add(a, b, c, group, first, width, sum) for each block of the channels
// of result[rows a, b and c, groups of channels], which adds up its `width`
// elements from channel `first` of the group on. cost: multiplications for a
// row.
template <typename T, typename Add>
void ForEachBlock(const std::array<int64_t, 3>& rows, int64_t groups,
                  int64_t channels, int64_t cost, T* result, Add add) {
  if (channels == 0) return;  // there may be 2^62 rows of nothing
  ParallelFor(rows[0] * rows[1] * rows[2], Grain(cost),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const int64_t c = row % rows[2];
                  const int64_t b = row / rows[2] % rows[1];
                  const int64_t a = row / rows[2] / rows[1];
                  for (int64_t group = 0; group < groups; ++group) {
                    for (int64_t first = 0; first < channels; first += kBlock) {
                      const int64_t width = std::min(kBlock, channels - first);
                      ComputeType<T> sum[kBlock] = {};
                      add(a, b, c, group, first, width, sum);
                      T* to =
                          result + (row * groups + group) * channels + first;
                      for (int64_t k = 0; k < width; ++k) to[k] = T(sum[k]);
                    }
                  }
                }
              });
}

// y[image, oh, ow, channels from o0 to o0 + width].
template <typename T>
void ForwardBlock(const ConvGeometry& g, const Operands<T>& in, int64_t image,
                  int64_t oh, int64_t ow, int64_t group, int64_t o0,
                  int64_t width, ComputeType<T>* sum) {
  if (g.in == 0) return;  // there is no filter to point into
  using C = ComputeType<T>;
  Runs<C> runs{width, sum};
  for (int64_t kh = 0; kh < g.h.window; ++kh) {
    const int64_t ih = g.h.Start(oh) + kh * g.h.dilation;
    if (ih < 0 || ih >= g.h.input) continue;
    for (int64_t kw = 0; kw < g.w.window; ++kw) {
      const int64_t iw = g.w.Start(ow) + kw * g.w.dilation;
      if (iw < 0 || iw >= g.w.input) continue;
      const T* x = in.x + image * g.x_image() +
                   (ih * g.w.input + iw) * g.x_channels() + group * g.in;
      const T* filter = in.filter +
                        (kh * g.w.window + kw) * g.in * g.y_channels() +
                        group * g.out + o0;
      for (int64_t i = 0; i < g.in; ++i) {
        C* const run = runs.Next();
        const C value = static_cast<C>(x[i]);
        for (int64_t o = 0; o < width; ++o) {
          run[o] += value * static_cast<C>(filter[i * g.y_channels() + o]);
        }
      }
    }
  }
  runs.End();
}

template <typename T>
void Forward(const ConvGeometry& g, const Operands<T>& in, T* y) {
  ForEachBlock({g.images, g.h.output, g.w.output}, g.groups, g.out,
               g.taps() * g.in * g.y_channels(), y,
               [&](auto... block) { ForwardBlock(g, in, block...); });
}

// dx[image, ih, iw, channels from i0 to i0 + width].
template <typename T>
void BackpropInputBlock(const ConvGeometry& g, const Operands<T>& in,
                        int64_t image, int64_t ih, int64_t iw, int64_t group,
                        int64_t i0, int64_t width, ComputeType<T>* sum) {
  using C = ComputeType<T>;
  Runs<C> runs{width, sum};
  for (int64_t kh = 0; kh < g.h.window; ++kh) {
    const int64_t oh = WindowOver(g.h, ih, kh);
    if (oh < 0) continue;
    for (int64_t kw = 0; kw < g.w.window; ++kw) {
      const int64_t ow = WindowOver(g.w, iw, kw);
      if (ow < 0) continue;
      const T* dy = in.y + image * g.y_image() +
                    (oh * g.w.output + ow) * g.y_channels() + group * g.out;
      const T* filter = in.filter +
                        ((kh * g.w.window + kw) * g.in + i0) * g.y_channels() +
                        group * g.out;
      for (int64_t o = 0; o < g.out; o += kTerms) {
        C* const run = runs.Next();
        const int64_t end = std::min(o + kTerms, g.out);
        for (int64_t i = 0; i < width; ++i) {
          C dot = 0;
          for (int64_t p = o; p < end; ++p) {
            dot += static_cast<C>(dy[p]) *
                   static_cast<C>(filter[i * g.y_channels() + p]);
          }
          run[i] += dot;
        }
      }
    }
  }
  runs.End();
}

template <typename T>
void BackpropInput(const ConvGeometry& g, const Operands<T>& in, T* dx) {
  ForEachBlock({g.images, g.h.input, g.w.input}, g.groups, g.in,
               g.taps() * g.in * g.y_channels(), dx,
               [&](auto... block) { BackpropInputBlock(g, in, block...); });
}

// dfilter[kh, kw, i, channels from o0 to o0 + width of the group's].
template <typename T>
void BackpropFilterBlock(const ConvGeometry& g, const Operands<T>& in,
                         int64_t kh, int64_t kw, int64_t i, int64_t group,
                         int64_t o0, int64_t width, ComputeType<T>* sum) {
  if (g.y_image() == 0) return;  // there may be 2^62 images of nothing
  using C = ComputeType<T>;
  Runs<C> runs{width, sum};
  for (int64_t image = 0; image < g.images; ++image) {
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      const int64_t ih = g.h.Start(oh) + kh * g.h.dilation;
      if (ih < 0 || ih >= g.h.input) continue;
      for (int64_t ow = 0; ow < g.w.output; ++ow) {
        const int64_t iw = g.w.Start(ow) + kw * g.w.dilation;
        if (iw < 0 || iw >= g.w.input) continue;
        const C x = static_cast<C>(
            in.x[image * g.x_image() + (ih * g.w.input + iw) * g.x_channels() +
                 group * g.in + i]);
        const T* dy = in.y + image * g.y_image() +
                      (oh * g.w.output + ow) * g.y_channels() + group * g.out +
                      o0;
        C* const run = runs.Next();
        for (int64_t o = 0; o < width; ++o) run[o] += x * static_cast<C>(dy[o]);
      }
    }
  }
  runs.End();
}

template <typename T>
void BackpropFilter(const ConvGeometry& g, const Operands<T>& in, T* dfilter) {
  ForEachBlock({g.h.window, g.w.window, g.in}, g.groups, g.out,
               g.images * g.h.output * g.w.output * g.y_channels(), dfilter,
               [&](auto... block) { BackpropFilterBlock(g, in, block...); });
}

// A kernel that calls run(tag of the dtype, geometry, context).
template <typename Run>
Result<KernelPtr> KernelOfLoops(const KernelSpec& spec, Run run) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  return DispatchFloating(
      spec.inputs[0].dtype,
      [&]<typename T>(TypeTag<T> type) -> Result<KernelPtr> {
        return KernelOf([=](const KernelContext& c) { run(type, g, c); });
      });
}

Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  return KernelOfLoops(spec, []<typename T>(TypeTag<T>, const ConvGeometry& g,
                                            const KernelContext& c) {
    Forward<T>(g, {.x = c.input<T>(0), .filter = c.input<T>(1)},
               c.output<T>(0));
  });
}

// Of the fused ops. The sums go to scratch memory first, since y may be the
// addend.
Result<KernelPtr> MakeForwardSum(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        const int64_t elements = g.images * g.y_image();
        return KernelOf(
            [g, elements, added = spec.inputs.size() > 3,
             relu = spec.attrs.Bool("relu")](const KernelContext& c) {
              using C = ComputeType<T>;
              T* sums = static_cast<T*>(c.workspace());
              Forward<T>(g, {.x = c.input<T>(0), .filter = c.input<T>(1)},
                         sums);
              for (int64_t i = 0; i < elements; ++i) {
                C y = C(sums[i]) + C(c.input<T>(2)[i % g.y_channels()]);
                if (added) y += C(c.input<T>(3)[i]);
                c.output<T>(0)[i] = T(relu && C(0) > y ? C(0) : y);
              }
            },
            elements * sizeof(T));
      });
}

Result<KernelPtr> MakeBackpropInput(const KernelSpec& spec) {
  return KernelOfLoops(spec, []<typename T>(TypeTag<T>, const ConvGeometry& g,
                                            const KernelContext& c) {
    BackpropInput<T>(g, {.filter = c.input<T>(1), .y = c.input<T>(0)},
                     c.output<T>(0));
  });
}

Result<KernelPtr> MakeBackpropFilter(const KernelSpec& spec) {
  return KernelOfLoops(spec, []<typename T>(TypeTag<T>, const ConvGeometry& g,
                                            const KernelContext& c) {
    BackpropFilter<T>(g, {.x = c.input<T>(0), .y = c.input<T>(1)},
                      c.output<T>(0));
  });
}

}  // namespace

void RegisterConvKernels(KernelTable& table) {
  RegisterConvOhwiKernels(table);
  const auto add = [&](const char* op,
                       Result<KernelPtr> (*make)(const KernelSpec&)) {
    table.Register({.op = op, .dtypes = kFloating, .make = make});
  };
  for (const char* op : {"Conv2D", "DepthwiseConv2D"}) add(op, MakeForward);
  for (const char* op :
       {"Conv2DBackpropInput", "DepthwiseConv2DBackpropInput"}) {
    add(op, MakeBackpropInput);
  }
  for (const char* op :
       {"Conv2DBackpropFilter", "DepthwiseConv2DBackpropFilter"}) {
    add(op, MakeBackpropFilter);
  }
  for (const char* op : {"Conv2DBias", "Conv2DBiasAdd"}) {
    add(op, MakeForwardSum);
  }
  RegisterFastConvKernels(table);
  RegisterDepthwiseKernels(table);
  RegisterWinogradKernels(table);
}

}  // namespace sluice::cpu
