// Pooling. One loop nest per op for all floating types: the innermost loops run
// over the channels, which are contiguous, and become vector code.
#include <algorithm>
#include <limits>

#include "engine/semantics/window.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

struct PoolGeometry {
  int64_t images = 0, channels = 0;
  WindowDim h, w;

  int64_t x_row() const { return w.input * channels; }
  int64_t y_row() const { return w.output * channels; }
};

Result<PoolGeometry> GeometryOf(const KernelSpec& spec, const Shape& x) {
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  SLUICE_ASSIGN_OR_RETURN(const Window2D w,
                          WindowOf(spec.attrs, x, window[0], window[1]));
  return PoolGeometry{x[0], x[3], w.h, w.w};
}

// The part of a window that lies inside the image: input elements begin,
// begin + dilation (1 for pools), ... before end.
struct Inside {
  int64_t begin, end;
};
Inside InsideOf(const WindowDim& d, int64_t o) {
  const int64_t start = d.Start(o);
  return {std::max<int64_t>(start, 0), std::min(start + d.window, d.input)};
}

// Calls fn(image, oh) for all output rows, about 2^15 elements of x a piece.
template <typename Fn>
void ForOutputRows(const PoolGeometry& g, Fn fn) {
  const int64_t row = std::max<int64_t>(g.x_row() * g.h.window, 1);
  ParallelFor(g.images * g.h.output, std::max<int64_t>((1 << 15) / row, 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  fn(r / g.h.output, r % g.h.output);
                }
              });
}

// --- Maximum -----------------------------------------------------------------

// y = max(y, x), NaN if either is.
template <typename T>
void KeepLarger(const T* __restrict x, T* __restrict y, int64_t channels) {
  using C = ComputeType<T>;
  for (int64_t c = 0; c < channels; ++c) {
    const C value = static_cast<C>(x[c]);
    const C best = static_cast<C>(y[c]);
    y[c] = T(value > best || value != value ? value : best);
  }
}

template <typename T>
void MaxPool(const PoolGeometry& g, const T* x, T* y) {
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const T* in = x + image * g.h.input * g.x_row();
    T* out = y + (image * g.h.output + oh) * g.y_row();
    const Inside rows = InsideOf(g.h, oh);
    for (int64_t ow = 0; ow < g.w.output; ++ow, out += g.channels) {
      const Inside columns = InsideOf(g.w, ow);
      const T* first = in + rows.begin * g.x_row() + columns.begin * g.channels;
      std::copy(first, first + g.channels, out);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          KeepLarger(in + i * g.x_row() + j * g.channels, out, g.channels);
        }
      }
    }
  });
}

// Gives `open[c]`, what dy has not yet been given away, to dx[c] where x is not
// below y.
template <typename T, bool kAdd>
void GiveTo(const T* __restrict x, const T* __restrict y, T* __restrict dx,
            ComputeType<T>* __restrict open, int64_t channels) {
  using C = ComputeType<T>;
  for (int64_t c = 0; c < channels; ++c) {
    const bool here = static_cast<C>(x[c]) >= static_cast<C>(y[c]);
    const C given = here ? open[c] : C(0);
    dx[c] = T(kAdd ? static_cast<C>(dx[c]) + given : given);
    open[c] = here ? C(0) : open[c];
  }
}

constexpr int64_t kBlock = 256;  // channels handled at a time

// One window of MaxPoolGrad. kAdd: windows overlap, so dx begins as zeros.
template <typename T, bool kAdd>
void GradOfWindow(const PoolGeometry& g, const Inside& rows,
                  const Inside& columns, const T* x, const T* y, const T* dy,
                  T* dx) {
  ComputeType<T> open[kBlock];
  for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
    const int64_t width = std::min(kBlock, g.channels - c0);
    for (int64_t c = 0; c < width; ++c) {
      open[c] = static_cast<ComputeType<T>>(dy[c0 + c]);
    }
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const int64_t at = i * g.x_row() + j * g.channels + c0;
        GiveTo<T, kAdd>(x + at, y + c0, dx + at, open, width);
      }
    }
  }
}

// Windows that tile the image without gaps or overlaps write every element of
// dx once, and need no zeros first.
bool Tiles(const WindowDim& d) {
  return d.stride == d.window && d.pad_before == 0 &&
         d.output * d.stride >= d.input;
}

template <typename T>
void MaxPoolGrad(const PoolGeometry& g, const T* x, const T* y, const T* dy,
                 T* dx) {
  const bool tiles = Tiles(g.h) && Tiles(g.w);
  auto run_row = [&]<bool kAdd>(std::bool_constant<kAdd>, int64_t image,
                                int64_t oh) {
    const int64_t in = image * g.h.input * g.x_row();
    int64_t out = (image * g.h.output + oh) * g.y_row();
    const Inside rows = InsideOf(g.h, oh);
    for (int64_t ow = 0; ow < g.w.output; ++ow, out += g.channels) {
      GradOfWindow<T, kAdd>(g, rows, InsideOf(g.w, ow), x + in, y + out,
                            dy + out, dx + in);
    }
  };
  if (tiles) {
    ForOutputRows(g, [&](int64_t image, int64_t oh) {
      run_row(std::false_type(), image, oh);
    });
    return;
  }
  // Windows of one image overlap, so an image is one piece of work.
  ParallelFor(g.images, 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      T* out = dx + image * g.h.input * g.x_row();
      std::fill(out, out + g.h.input * g.x_row(), T(0.0f));
      for (int64_t oh = 0; oh < g.h.output; ++oh) {
        run_row(std::true_type(), image, oh);
      }
    }
  });
}

simd::PoolRow RowOf(const PoolGeometry& g, int64_t oh) {
  const Inside rows = InsideOf(g.h, oh);
  return {.width = g.w.input,
          .channels = g.channels,
          .first_row = rows.begin,
          .end_row = rows.end,
          .windows = g.w.output,
          .stride = g.w.stride,
          .pad = g.w.pad_before,
          .window = g.w.window};
}

void FastMaxPool(const PoolGeometry& g, const float* x, float* y) {
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    Simd().pool.max(RowOf(g, oh), x + image * g.h.input * g.x_row(),
                    y + (image * g.h.output + oh) * g.y_row());
  });
}

constexpr int64_t kPieces = 16;  // of images, for machines with more cores

// A piece is some rows of dx of one image. Windows that reach into two pieces
// are looked at by both. Rows are zeroed just before they are added to, while
// they stay in the L2 cache.
void FastMaxPoolGrad(const PoolGeometry& g, const float* x, const float* y,
                     const float* dy, float* dx) {
  const int64_t blocks =
      std::clamp<int64_t>(kPieces / std::max<int64_t>(g.images, 1), 1,
                          std::max<int64_t>(g.h.input, 1));
  ParallelFor(g.images * blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t image = piece / blocks, block = piece % blocks;
      const int64_t begin = g.h.input * block / blocks;
      const int64_t end = g.h.input * (block + 1) / blocks;
      const int64_t in = image * g.h.input * g.x_row();
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
        const int64_t out = (image * g.h.output + oh) * g.y_row();
        Simd().pool.max_grad(row, begin, end, x + in, y + out, dy + out,
                             dx + in);
      }
      zero_until(end);
    }
  });
}

// y_out[c] = g at the first element of the window that is not below y.
template <typename T>
void MaxPoolGradGrad(const PoolGeometry& g, const T* x, const T* y, const T* in,
                     T* out) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const Inside rows = InsideOf(g.h, oh);
    const int64_t base = image * g.h.input * g.x_row();
    int64_t at = (image * g.h.output + oh) * g.y_row();
    for (int64_t ow = 0; ow < g.w.output; ++ow) {
      const Inside columns = InsideOf(g.w, ow);
      for (int64_t c = 0; c < g.channels; ++c, ++at) {
        out[at] = T(0.0f);
        bool found = false;
        for (int64_t i = rows.begin; i < rows.end && !found; ++i) {
          for (int64_t j = columns.begin; j < columns.end && !found; ++j) {
            const int64_t p = base + i * g.x_row() + j * g.channels + c;
            found = static_cast<C>(x[p]) >= static_cast<C>(y[at]);
            if (found) out[at] = in[p];
          }
        }
      }
    }
  });
}

// --- Mean --------------------------------------------------------------------

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
        C sum[kBlock] = {};
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const T* p = in + i * g.x_row() + j * g.channels + c0;
            for (int64_t c = 0; c < width; ++c) sum[c] += static_cast<C>(p[c]);
          }
        }
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

// --- Kernels -----------------------------------------------------------------

// What has the shape of the images: input 0, or output 0 where an op is given
// no x, but its shape.
using ImagesOf = const std::vector<TensorType> KernelSpec::*;

// run(TypeTag, geometry, context).
template <typename Run>
auto Maker(Run run, ImagesOf images) {
  return [run, images](const KernelSpec& spec) -> Result<KernelPtr> {
    SLUICE_ASSIGN_OR_RETURN(const PoolGeometry g,
                            GeometryOf(spec, (spec.*images)[0].shape));
    return DispatchFloating(
        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T> tag) {
          return Result<KernelPtr>(
              KernelOf([=](const KernelContext& c) { run(tag, g, c); }));
        });
  };
}

}  // namespace

void RegisterPoolKernels(KernelTable& table) {
  auto add = [&](const char* op, auto run,
                 ImagesOf images = &KernelSpec::inputs) {
    table.Register({.op = op, .dtypes = kFloating, .make = Maker(run, images)});
  };
  add("MaxPool", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                const KernelContext& c) {
    MaxPool(g, c.input<T>(0), c.output<T>(0));
  });
  add("MaxPoolGrad", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                    const KernelContext& c) {
    MaxPoolGrad(g, c.input<T>(0), c.input<T>(1), c.input<T>(2), c.output<T>(0));
  });
  auto add_fast = [&](const char* op, auto run) {
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .dtypes = DType::kFloat32,
                    .make = [run](const KernelSpec& s) -> Result<KernelPtr> {
                      SLUICE_ASSIGN_OR_RETURN(const PoolGeometry g,
                                              GeometryOf(s, s.inputs[0].shape));
                      return KernelOf(
                          [=](const KernelContext& c) { run(g, c); });
                    }});
  };
  add_fast("MaxPool", [](const PoolGeometry& g, const KernelContext& c) {
    FastMaxPool(g, c.input<float>(0), c.output<float>(0));
  });
  add_fast("MaxPoolGrad", [](const PoolGeometry& g, const KernelContext& c) {
    FastMaxPoolGrad(g, c.input<float>(0), c.input<float>(1), c.input<float>(2),
                    c.output<float>(0));
  });
  add("MaxPoolGradGrad", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                        const KernelContext& c) {
    MaxPoolGradGrad(g, c.input<T>(0), c.input<T>(1), c.input<T>(2),
                    c.output<T>(0));
  });
  add("AvgPool", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                const KernelContext& c) {
    AvgPool(g, c.input<T>(0), c.output<T>(0));
  });
  add(
      "AvgPoolGrad",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        AvgPoolGrad(g, c.input<T>(0), c.output<T>(0));
      },
      &KernelSpec::outputs);
}

}  // namespace sluice::cpu
