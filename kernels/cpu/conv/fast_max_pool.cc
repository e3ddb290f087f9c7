// Maximum pooling of float32, row by row of windows with the channels in
// vectors (kernels/cpu/simd/pool.h).
#include <algorithm>

#include "engine/semantics/pool_run.h"
#include "kernels/cpu/conv/pool.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

simd::PoolRow RowOf(const PoolGeometry& g, int64_t oh) {
  const Inside rows = InsideOf(g.h, oh);
  return {.width = g.w.input,
          .channels = g.channels,
          .first_row = rows.begin,
          .end_row = rows.end,
          .cut = rows.begin - g.h.Start(oh),
          .windows = g.w.output,
          .stride = g.w.stride,
          .pad = g.w.pad_before,
          .window = g.w.window};
}

void FastMaxPool(const PoolGeometry& g, const float* x, float* y) {
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    Simd().pool.max(RowOf(g, oh), x + image * g.x_image(),
                    y + (image * g.h.output + oh) * g.y_row());
  });
}

void FastMaxPoolWithArgmax(const PoolGeometry& g, const float* x, float* y,
                           uint8_t* argmax) {
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const int64_t out = (image * g.h.output + oh) * g.y_row();
    Simd().pool.max_argmax(RowOf(g, oh), x + image * g.x_image(), y + out,
                           argmax + out);
  });
}

constexpr int64_t kPieces = 16;  // of images, for machines with more cores

// give(row of windows, begin, end, the image's place in x, the row's in y) adds
// to the rows [begin, end) of dx: of a piece, which is some rows of one image.
// Windows that reach into two pieces are looked at by both. Rows are zeroed
// just before they are added to, while they stay in the L2 cache.
template <typename Give>
void ForGradRows(const PoolGeometry& g, float* dx, Give give) {
  if (g.x_image() == 0) return;  // there may be 2^62 images of nothing
  const int64_t blocks =
      std::clamp<int64_t>(kPieces / std::max<int64_t>(g.images, 1), 1,
                          std::max<int64_t>(g.h.input, 1));
  ParallelFor(g.images * blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t image = piece / blocks, block = piece % blocks;
      const int64_t begin = g.h.input * block / blocks;
      const int64_t end = g.h.input * (block + 1) / blocks;
      const int64_t in = image * g.x_image();
      int64_t zeroed = begin;
      const auto zero_until = [&](int64_t row) {
        row = std::min(row, end);
        if (row <= zeroed) return;
        std::fill(dx + in + zeroed * g.x_row(), dx + in + row * g.x_row(),
                  0.0f);
        zeroed = row;
      };
      for (int64_t oh = 0; oh < g.h.output; ++oh) {
        const simd::PoolRow row = RowOf(g, oh);
        if (row.end_row <= begin || row.first_row >= end) continue;
        zero_until(row.end_row);
        give(row, begin, end, in, (image * g.h.output + oh) * g.y_row());
      }
      zero_until(end);
    }
  });
}

void FastMaxPoolGrad(const PoolGeometry& g, const float* x, const float* y,
                     const float* dy, float* dx) {
  ForGradRows(g, dx,
              [&](const simd::PoolRow& row, int64_t begin, int64_t end,
                  int64_t in, int64_t out) {
                Simd().pool.max_grad(row, begin, end, x + in, y + out, dy + out,
                                     dx + in);
              });
}

void FastMaxPoolGradWithArgmax(const PoolGeometry& g, const float* dy,
                               const uint8_t* argmax, float* dx) {
  ForGradRows(g, dx,
              [&](const simd::PoolRow& row, int64_t begin, int64_t end,
                  int64_t in, int64_t out) {
                Simd().pool.argmax_grad(row, begin, end, dy + out, argmax + out,
                                        dx + in);
              });
}

// Where very many windows may be over one element, what they give to it is not
// to be summed in float.
bool SumsFewWindows(const KernelSpec& spec) {
  const Result<PoolGeometry> g = PoolGeometryOf(spec, spec.inputs[0].shape);
  return g.ok() && !HasGradRuns(g->h, g->w);
}

}  // namespace

void RegisterFastMaxPoolKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto run,
                       ImagesOf images = &KernelSpec::inputs,
                       bool (*supports)(const KernelSpec&) = nullptr) {
    table.Register(
        {.op = op,
         .priority = 10,
         .provider = "simd",
         .supports = supports,
         .dtypes = DType::kFloat32,
         .make = [=](const KernelSpec& s) -> Result<KernelPtr> {
           SLUICE_ASSIGN_OR_RETURN(const PoolGeometry g,
                                   PoolGeometryOf(s, (s.*images)[0].shape));
           return KernelOf([=](const KernelContext& c) { run(g, c); });
         }});
  };
  add("MaxPool", [](const PoolGeometry& g, const KernelContext& c) {
    FastMaxPool(g, c.input<float>(0), c.output<float>(0));
  });
  add(
      "MaxPoolGrad",
      [](const PoolGeometry& g, const KernelContext& c) {
        FastMaxPoolGrad(g, c.input<float>(0), c.input<float>(1),
                        c.input<float>(2), c.output<float>(0));
      },
      &KernelSpec::inputs, SumsFewWindows);
  add("MaxPoolWithArgmax", [](const PoolGeometry& g, const KernelContext& c) {
    FastMaxPoolWithArgmax(g, c.input<float>(0), c.output<float>(0),
                          c.output<uint8_t>(1));
  });
  add(
      "MaxPoolGradWithArgmax",
      [](const PoolGeometry& g, const KernelContext& c) {
        FastMaxPoolGradWithArgmax(g, c.input<float>(0), c.input<uint8_t>(1),
                                  c.output<float>(0));
      },
      &KernelSpec::outputs);
}

}  // namespace sluice::cpu
