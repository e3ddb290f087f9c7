// Mean pooling. One loop nest per op for all floating types: the innermost
// loops run over the channels, which are contiguous, and become vector code.
#include "kernels/cpu/conv/pool.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 256;  // channels handled at a time

template <typename T>
void AvgPool(const PoolGeometry& g, const T* x, T* y) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const T* in = x + image * g.x_image();
    T* out = y + (image * g.h.output + oh) * g.y_row();
    ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
      T* mean = out + ow * g.channels;
      const C scale = C(1) / static_cast<C>(part.elements());
      for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
        const int64_t width = std::min(kBlock, g.channels - c0);
        C sum[kBlock] = {};
        ForElements(g, part, [&](int64_t at, int64_t, int64_t) {
          const T* p = in + at + c0;
          for (int64_t c = 0; c < width; ++c) sum[c] += static_cast<C>(p[c]);
        });
        for (int64_t c = 0; c < width; ++c) mean[c0 + c] = T(sum[c] * scale);
      }
    });
  });
}

template <typename T>
void AvgPoolGrad(const PoolGeometry& g, const T* dy, T* dx) {
  using C = ComputeType<T>;
  ForImages(g, dx, [&](int64_t image, T* out) {
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      const T* row = dy + (image * g.h.output + oh) * g.y_row();
      ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
        const T* in = row + ow * g.channels;
        const C scale = C(1) / static_cast<C>(part.elements());
        ForElements(g, part, [&](int64_t at, int64_t, int64_t) {
          T* p = out + at;
          for (int64_t c = 0; c < g.channels; ++c) {
            p[c] = T(static_cast<C>(p[c]) + scale * static_cast<C>(in[c]));
          }
        });
      });
    }
  });
}

}  // namespace

void RegisterPoolKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto run, ImagesOf images) {
    table.Register(
        {.op = op, .dtypes = kFloating, .make = PoolMaker(run, images)});
  };
  add(
      "AvgPool",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        AvgPool(g, c.input<T>(0), c.output<T>(0));
      },
      &KernelSpec::inputs);
  add(
      "AvgPoolGrad",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        AvgPoolGrad(g, c.input<T>(0), c.output<T>(0));
      },
      &KernelSpec::outputs);
}

}  // namespace sluice::cpu
