// Maximum pooling. One loop nest per op for all floating types: the innermost
// loops run over the channels, which are contiguous, and become vector code.
#include <algorithm>

#include "engine/semantics/pool_argmax.h"
#include "kernels/cpu/conv/pool.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 256;  // channels handled at a time

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
    const T* in = x + image * g.x_image();
    T* out = y + (image * g.h.output + oh) * g.y_row();
    ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
      T* largest = out + ow * g.channels;
      const T* first =
          in + part.rows.begin * g.x_row() + part.columns.begin * g.channels;
      std::copy(first, first + g.channels, largest);
      ForElements(g, part, [&](int64_t at, int64_t, int64_t) {
        KeepLarger(in + at, largest, g.channels);
      });
    });
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

// One window of MaxPoolGrad. kAdd: windows overlap, so dx begins as zeros.
template <typename T, bool kAdd>
void GradOfWindow(const PoolGeometry& g, const WindowPart& part, const T* x,
                  const T* y, const T* dy, T* dx) {
  ComputeType<T> open[kBlock];
  for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
    const int64_t width = std::min(kBlock, g.channels - c0);
    for (int64_t c = 0; c < width; ++c) {
      open[c] = static_cast<ComputeType<T>>(dy[c0 + c]);
    }
    ForElements(g, part, [&](int64_t at, int64_t, int64_t) {
      GiveTo<T, kAdd>(x + at + c0, y + c0, dx + at + c0, open, width);
    });
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
    const int64_t in = image * g.x_image();
    const int64_t row = (image * g.h.output + oh) * g.y_row();
    ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
      const int64_t out = row + ow * g.channels;
      GradOfWindow<T, kAdd>(g, part, x + in, y + out, dy + out, dx + in);
    });
  };
  if (tiles) {
    ForOutputRows(g, [&](int64_t image, int64_t oh) {
      run_row(std::false_type(), image, oh);
    });
    return;
  }
  ForImages(g, dx, [&](int64_t image, T*) {
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      run_row(std::true_type(), image, oh);
    }
  });
}

// --- With the place of the largest -------------------------------------------

// The element of window (oh, ow) that is row i, column j of the image.
uint8_t ElementOf(const PoolGeometry& g, int64_t oh, int64_t ow, int64_t i,
                  int64_t j) {
  return static_cast<uint8_t>((i - g.h.Start(oh)) * g.w.window + j -
                              g.w.Start(ow));
}

template <typename T>
void MaxPoolWithArgmax(const PoolGeometry& g, const T* x, T* y,
                       uint8_t* argmax) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const T* in = x + image * g.x_image();
    const int64_t row = (image * g.h.output + oh) * g.y_row();
    ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
      const int64_t out = row + ow * g.channels;
      bool any = false;
      ForElements(g, part, [&](int64_t at, int64_t i, int64_t j) {
        const uint8_t element = ElementOf(g, oh, ow, i, j);
        for (int64_t c = 0; c < g.channels; ++c) {
          const C value = static_cast<C>(in[at + c]);
          const bool nan = value != value;
          if (any && !nan && !(value > static_cast<C>(y[out + c]))) continue;
          y[out + c] = T(value);
          argmax[out + c] = nan ? kNoPoolElement : element;
        }
        any = true;
      });
    });
  });
}

template <typename T>
void MaxPoolGradWithArgmax(const PoolGeometry& g, const T* dy,
                           const uint8_t* argmax, T* dx) {
  using C = ComputeType<T>;
  ForImages(g, dx, [&](int64_t image, T* to) {
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      const int64_t row = (image * g.h.output + oh) * g.y_row();
      ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
        const int64_t from = row + ow * g.channels;
        ForElements(g, part, [&](int64_t at, int64_t i, int64_t j) {
          const uint8_t element = ElementOf(g, oh, ow, i, j);
          for (int64_t c = 0; c < g.channels; ++c) {
            if (argmax[from + c] != element) continue;
            to[at + c] =
                T(static_cast<C>(to[at + c]) + static_cast<C>(dy[from + c]));
          }
        });
      });
    }
  });
}

// y_out[c] = g at the first element of the window that is not below y.
template <typename T>
void MaxPoolGradGrad(const PoolGeometry& g, const T* x, const T* y, const T* in,
                     T* out) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    const int64_t base = image * g.x_image();
    const int64_t row = (image * g.h.output + oh) * g.y_row();
    ForWindows(g, oh, [&](int64_t ow, const WindowPart& part) {
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t to = row + ow * g.channels + c;
        out[to] = T(0.0f);
        bool found = false;
        ForElements(g, part, [&](int64_t at, int64_t, int64_t) {
          if (found) return;
          const int64_t from = base + at + c;
          found = static_cast<C>(x[from]) >= static_cast<C>(y[to]);
          if (found) out[to] = in[from];
        });
      }
    });
  });
}

// --- Kernels -----------------------------------------------------------------

}  // namespace

void RegisterMaxPoolKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto run,
                       ImagesOf images = &KernelSpec::inputs) {
    table.Register(
        {.op = op, .dtypes = kFloating, .make = PoolMaker(run, images)});
  };
  add("MaxPool", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                const KernelContext& c) {
    MaxPool(g, c.input<T>(0), c.output<T>(0));
  });
  add("MaxPoolGrad", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                    const KernelContext& c) {
    MaxPoolGrad(g, c.input<T>(0), c.input<T>(1), c.input<T>(2), c.output<T>(0));
  });
  add("MaxPoolGradGrad", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                        const KernelContext& c) {
    MaxPoolGradGrad(g, c.input<T>(0), c.input<T>(1), c.input<T>(2),
                    c.output<T>(0));
  });
  add("MaxPoolWithArgmax", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                          const KernelContext& c) {
    MaxPoolWithArgmax(g, c.input<T>(0), c.output<T>(0), c.output<uint8_t>(1));
  });
  add(
      "MaxPoolGradWithArgmax",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        MaxPoolGradWithArgmax(g, c.input<T>(0), c.input<uint8_t>(1),
                              c.output<T>(0));
      },
      &KernelSpec::outputs);
}

}  // namespace sluice::cpu
