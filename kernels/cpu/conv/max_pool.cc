// Maximum pooling. One loop nest per op for all floating types: the innermost
// loops run over the channels, which are contiguous, and become vector code.
#include <algorithm>
#include <cstddef>

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
// below y. S: what dx is summed in.
template <bool kAdd, typename T, typename S>
void GiveTo(const T* __restrict x, const T* __restrict y, S* __restrict dx,
            ComputeType<T>* __restrict open, int64_t channels) {
  using C = ComputeType<T>;
  using Sum = ComputeType<S>;
  for (int64_t c = 0; c < channels; ++c) {
    const bool here = static_cast<C>(x[c]) >= static_cast<C>(y[c]);
    const Sum given = static_cast<Sum>(here ? open[c] : C(0));
    dx[c] = S(kAdd ? static_cast<Sum>(dx[c]) + given : given);
    open[c] = here ? C(0) : open[c];
  }
}

// One window of MaxPoolGrad. kAdd: windows overlap, so dx begins as zeros.
template <bool kAdd, typename T, typename S>
void GradOfWindow(const PoolGeometry& g, const Inside& rows,
                  const Inside& columns, const T* x, const T* y, const T* dy,
                  S* dx) {
  ComputeType<T> open[kBlock];
  for (int64_t c0 = 0; c0 < g.channels; c0 += kBlock) {
    const int64_t width = std::min(kBlock, g.channels - c0);
    for (int64_t c = 0; c < width; ++c) {
      open[c] = static_cast<ComputeType<T>>(dy[c0 + c]);
    }
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const int64_t at = i * g.x_row() + j * g.channels + c0;
        GiveTo<kAdd>(x + at, y + c0, dx + at, open, width);
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
                 T* dx, void* workspace) {
  // to: the image's in dx, or its sums.
  const auto run_row = [&]<bool kAdd>(std::bool_constant<kAdd>, int64_t image,
                                      int64_t oh, auto* to) {
    const T* in = x + image * g.x_image();
    int64_t out = (image * g.h.output + oh) * g.y_row();
    const Inside rows = InsideOf(g.h, oh);
    for (int64_t ow = 0; ow < g.w.output; ++ow, out += g.channels) {
      GradOfWindow<kAdd>(g, rows, InsideOf(g.w, ow), in, y + out, dy + out, to);
    }
  };
  if (Tiles(g.h) && Tiles(g.w)) {
    ForOutputRows(g, [&](int64_t image, int64_t oh) {
      run_row(std::false_type(), image, oh, dx + image * g.x_image());
    });
    return;
  }
  ForSums(g, workspace, dx, [&]<typename S>(int64_t image, S* sums) {
    std::fill(sums, sums + g.x_image(), S(0.0f));
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      run_row(std::true_type(), image, oh, sums);
    }
  });
}

size_t MaxPoolGradBytes(const PoolGeometry& g, DType dtype) {
  return WideSums(g) * WideSumBytes(dtype);
}

// --- With the place of the largest -------------------------------------------

// fn(the place in x, the element of the window) for a window's elements.
template <typename Fn>
void ForElements(const PoolGeometry& g, int64_t image, int64_t oh, int64_t ow,
                 Fn fn) {
  const Inside rows = InsideOf(g.h, oh), columns = InsideOf(g.w, ow);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      fn((image * g.h.input + i) * g.x_row() + j * g.channels,
         (i - g.h.Start(oh)) * g.w.window + j - g.w.Start(ow));
    }
  }
}

template <typename T>
void MaxPoolWithArgmax(const PoolGeometry& g, const T* x, T* y,
                       uint8_t* argmax) {
  using C = ComputeType<T>;
  ForOutputRows(g, [&](int64_t image, int64_t oh) {
    int64_t at = (image * g.h.output + oh) * g.y_row();
    for (int64_t ow = 0; ow < g.w.output; ++ow, at += g.channels) {
      bool any = false;
      ForElements(g, image, oh, ow, [&](int64_t from, int64_t element) {
        for (int64_t c = 0; c < g.channels; ++c) {
          const C value = static_cast<C>(x[from + c]);
          const bool nan = value != value;
          if (any && !nan && !(value > static_cast<C>(y[at + c]))) continue;
          y[at + c] = T(value);
          argmax[at + c] = nan ? kNoPoolElement : static_cast<uint8_t>(element);
        }
        any = true;
      });
    }
  });
}

template <typename T>
void MaxPoolGradWithArgmax(const PoolGeometry& g, const T* dy,
                           const uint8_t* argmax, T* dx) {
  using C = ComputeType<T>;
  ForImages(g, [&](int64_t image) {
    T* const first = dx + image * g.x_image();
    std::fill(first, first + g.x_image(), T(0.0f));
    for (int64_t oh = 0; oh < g.h.output; ++oh) {
      int64_t at = (image * g.h.output + oh) * g.y_row();
      for (int64_t ow = 0; ow < g.w.output; ++ow, at += g.channels) {
        ForElements(g, image, oh, ow, [&](int64_t to, int64_t element) {
          for (int64_t c = 0; c < g.channels; ++c) {
            if (argmax[at + c] != element) continue;
            dx[to + c] =
                T(static_cast<C>(dx[to + c]) + static_cast<C>(dy[at + c]));
          }
        });
      }
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
    const int64_t base = image * g.x_image();
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

// --- Kernels -----------------------------------------------------------------

}  // namespace

void RegisterMaxPoolKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto run,
                       ImagesOf images = &KernelSpec::inputs,
                       PoolBytes workspace = nullptr) {
    table.Register({.op = op,
                    .dtypes = kFloating,
                    .make = PoolMaker(run, images, workspace)});
  };
  add("MaxPool", []<typename T>(TypeTag<T>, const PoolGeometry& g,
                                const KernelContext& c) {
    MaxPool(g, c.input<T>(0), c.output<T>(0));
  });
  add(
      "MaxPoolGrad",
      []<typename T>(TypeTag<T>, const PoolGeometry& g,
                     const KernelContext& c) {
        MaxPoolGrad(g, c.input<T>(0), c.input<T>(1), c.input<T>(2),
                    c.output<T>(0), c.workspace());
      },
      &KernelSpec::inputs, MaxPoolGradBytes);
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
