// Mean pooling. One loop nest per op for all floating types: the innermost
// loops run over the channels, which are contiguous, and become vector code.
#include "kernels/cpu/conv/pool.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "engine/semantics/compensated_sum.h"
#include "engine/semantics/pool_run.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 256;  // channels handled at a time

template <typename T>
void AvgPool(const PoolGeometry& g, const T* x, T* y) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const T* in = x + image * g.x_image();
    T* out = y + (image * g.h.output + oh) * g.y_row();
    const Inside rows = InsideOf(g.h, oh);
    for (int64_t ow = 0; ow < g.w.output; ++ow, out += g.channels) {
      const Inside columns = InsideOf(g.w, ow);
      const C scale = C(1) / static_cast<C>((rows.end - rows.begin) *
                                            (columns.end - columns.begin));
      for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
        const int64_t width = std::min(kBlock, g.channels - c0);
        C sum[kBlock];
        SumsInRuns<C, kBlock, kPoolRun> runs(width, sum);
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const T* p = in + i * g.x_row() + j * g.channels + c0;
            C* const run = runs.Next();
            for (int64_t c = 0; c < width; ++c) run[c] += static_cast<C>(p[c]);
          }
        }
        runs.End();
        for (int64_t c = 0; c < width; ++c) out[c0 + c] = T(sum[c] * scale);
      }
    }
  });
}

// row[x_row()] = what row oh of windows gives to every row of the image that it
// is over: a window gives the same to all its elements.
template <typename T, typename C>
void SumGradRow(const PoolGeometry& g, int64_t oh, const T* __restrict dy,
                C* __restrict row) {
  using Share =
      std::conditional_t<std::is_same_v<C, CompensatedSum>, double, C>;
  const Inside rows = InsideOf(g.h, oh);
  std::fill(row, row + g.x_row(), C(0));
  for (int64_t ow = 0; ow < g.w.output; ++ow, dy += g.channels) {
    const Inside columns = InsideOf(g.w, ow);
    const Share scale =
        Share(1) / static_cast<Share>((rows.end - rows.begin) *
                                      (columns.end - columns.begin));
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      C* p = row + j * g.channels;
      for (int64_t c = 0; c < g.channels; ++c) {
        p[c] +=
            C(scale * static_cast<Share>(static_cast<ComputeType<T>>(dy[c])));
      }
    }
  }
}

// dx of one image, in sums of type S. A row of it that no windows were over
// before is written, not added to.
template <typename T, typename S>
void SumGradImage(const PoolGeometry& g, const T* dy,
                  ComputeType<S>* __restrict row, S* __restrict dx) {
  using C = ComputeType<S>;
  const int64_t n = g.x_row();
  int64_t written = 0;  // rows
  for (int64_t oh = 0; oh < g.h.output; ++oh, dy += g.y_row()) {
    const Inside rows = InsideOf(g.h, oh);
    if (rows.begin > written) {  // no windows are over those between
      std::fill(dx + written * n, dx + rows.begin * n, S(0.0f));
      written = rows.begin;
    }
    SumGradRow(g, oh, dy, row);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      S* const to = dx + i * n;
      if (i < written) {
        for (int64_t k = 0; k < n; ++k) {
          to[k] = S(static_cast<C>(to[k]) + row[k]);
        }
      } else {
        for (int64_t k = 0; k < n; ++k) to[k] = S(row[k]);
      }
    }
    written = std::max(written, rows.end);
  }
  std::fill(dx + written * n, dx + g.h.input * n, S(0.0f));
}

// A row for each image, behind ForSums' sums.
size_t AvgPoolGradBytes(const PoolGeometry& g, DType dtype) {
  if (g.x_image() == 0) return 0;
  const size_t rows =
      static_cast<size_t>(g.images) * static_cast<size_t>(g.x_row());
  const size_t wide = WideSums(g) * WideSumBytes(dtype);
  return wide +
         rows * (wide > 0 ? WideSumBytes(dtype) : SizeOf(ComputeDType(dtype)));
}

template <typename T>
void AvgPoolGrad(const PoolGeometry& g, const T* dy, T* dx, void* workspace) {
  void* const rows = static_cast<SumOfMany<T>*>(workspace) + WideSums(g);
  ForSums(g, workspace, dx, [&]<typename S>(int64_t image, S* sums) {
    SumGradImage(g, dy + image * g.h.output * g.y_row(),
                 static_cast<ComputeType<S>*>(rows) + image * g.x_row(), sums);
  });
}

}  // namespace

void RegisterPoolKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto run, ImagesOf images,
                       PoolBytes workspace) {
    table.Register({.op = op,
                    .dtypes = kFloating,
                    .make = PoolMaker(run, images, workspace)});
  };
  add(
      "AvgPool",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        AvgPool(g, c.input<T>(0), c.output<T>(0));
      },
      &KernelSpec::inputs, nullptr);
  add(
      "AvgPoolGrad",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        AvgPoolGrad(g, c.input<T>(0), c.output<T>(0), c.workspace());
      },
      &KernelSpec::outputs, AvgPoolGradBytes);
}

}  // namespace sluice::cpu
