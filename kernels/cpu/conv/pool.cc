// Mean pooling. One loop nest per op for all floating types: the innermost
// loops run over the channels, which are contiguous, and become vector code.
#include "kernels/cpu/conv/pool.h"

#include <algorithm>

#include "engine/semantics/pool_run.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 256;  // channels handled at a time

template <typename T>
void AvgPool(const PoolGeometry& g, const T* x, T* y) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const T* in = x + image * g.h.input * g.x_row();
    T* out = y + (image * g.h.output + oh) * g.y_row();
    const Inside rows = InsideOf(g.h, oh);
    for (int64_t ow = 0; ow < g.w.output; ++ow, out += g.channels) {
      const Inside columns = InsideOf(g.w, ow);
      const C scale = C(1) / static_cast<C>((rows.end - rows.begin) *
                                            (columns.end - columns.begin));
      for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
        const int64_t width = std::min(kBlock, g.channels - c0);
        C sum[kBlock], run[kBlock];
        std::fill(sum, sum + width, C(0));
        std::fill(run, run + width, C(0));
        int left = kPoolRun;  // of the run
        const auto end_run = [&] {
          for (int64_t c = 0; c < width; ++c) {
            sum[c] += run[c];
            run[c] = 0;
          }
          left = kPoolRun;
        };
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const T* p = in + i * g.x_row() + j * g.channels + c0;
            for (int64_t c = 0; c < width; ++c) run[c] += static_cast<C>(p[c]);
            if (--left == 0) end_run();
          }
        }
        end_run();
        for (int64_t c = 0; c < width; ++c) out[c0 + c] = T(sum[c] * scale);
      }
    }
  });
}

template <typename T>
void AvgPoolGrad(const PoolGeometry& g, const T* dy, T* dx) {
  using C = ComputeType<T>;
  ParallelFor(g.images, 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      T* out = dx + image * g.h.input * g.x_row();
      std::fill(out, out + g.h.input * g.x_row(), T(0.0f));
      const T* in = dy + image * g.h.output * g.y_row();
      for (int64_t oh = 0; oh < g.h.output; ++oh) {
        const Inside rows = InsideOf(g.h, oh);
        for (int64_t ow = 0; ow < g.w.output; ++ow, in += g.channels) {
          const Inside columns = InsideOf(g.w, ow);
          const C scale = C(1) / static_cast<C>((rows.end - rows.begin) *
                                                (columns.end - columns.begin));
          for (int64_t i = rows.begin; i < rows.end; ++i) {
            for (int64_t j = columns.begin; j < columns.end; ++j) {
              T* p = out + i * g.x_row() + j * g.channels;
              for (int64_t c = 0; c < g.channels; ++c) {
                p[c] = T(static_cast<C>(p[c]) + scale * static_cast<C>(in[c]));
              }
            }
          }
        }
      }
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
