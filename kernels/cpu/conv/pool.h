// The common parts of the pooling kernels.
#ifndef SLUICE_KERNELS_CPU_CONV_POOL_H_
#define SLUICE_KERNELS_CPU_CONV_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/kernel.h"
#include "engine/semantics/compensated_sum.h"
#include "engine/semantics/pool_run.h"
#include "engine/semantics/window.h"
#include "engine/threads.h"

namespace sluice::cpu {

struct PoolGeometry {
  int64_t images = 0, channels = 0;
  WindowDim h, w;

  int64_t x_row() const { return w.input * channels; }
  int64_t x_image() const { return h.input * x_row(); }
  int64_t y_row() const { return w.output * channels; }
};

inline Result<PoolGeometry> PoolGeometryOf(const KernelSpec& spec,
                                           const Shape& x) {
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  SLUICE_ASSIGN_OR_RETURN(const Window2D w,
                          WindowOf(spec.attrs, x, window[0], window[1]));
  return PoolGeometry{x[0], x[3], w.h, w.w};
}

// The part of a window that lies inside the image: input elements begin,
// begin + 1, ... before end.
struct Inside {
  int64_t begin, end;
};
inline Inside InsideOf(const WindowDim& d, int64_t o) {
  const int64_t start = d.Start(o);
  return {std::max<int64_t>(start, 0), std::min(start + d.window, d.input)};
}

// Calls fn(image, oh) for all output rows, about 2^15 elements of x a piece.
template <typename Fn>
void ForOutputRows(const PoolGeometry& g, Fn fn) {
  if (g.y_row() == 0) return;  // there may be 2^62 rows of nothing
  const int64_t row = std::max<int64_t>(g.x_row() * g.h.window, 1);
  ParallelFor(g.images * g.h.output, std::max<int64_t>((1 << 15) / row, 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  fn(r / g.h.output, r % g.h.output);
                }
              });
}

// --- Gradients ---------------------------------------------------------------

// Calls fn(image) for all images: a piece of work each, since windows of one
// overlap.
template <typename Fn>
void ForImages(const PoolGeometry& g, Fn fn) {
  if (g.x_image() == 0) return;  // there may be 2^62 images of nothing
  ParallelFor(g.images, 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) fn(image);
  });
}

// The size of the `wide` that ForSums wants: elements for all images.
inline size_t WideSums(const PoolGeometry& g) {
  return HasGradRuns(g.h, g.w)
             ? static_cast<size_t>(g.images) * static_cast<size_t>(g.x_image())
             : 0;
}
// Of one of them.
inline size_t WideSumBytes(DType dtype) {
  return DispatchFloating(
      dtype, []<typename T>(TypeTag<T>) { return sizeof(SumOfMany<T>); });
}

// Calls add(image, sums) for all images, which writes there what windows give
// to the image: to its place in dx, or, where very many windows may be over one
// element, as SumOfMany<T> that become dx, in wide[WideSums(g)].
template <typename T, typename Add>
void ForSums(const PoolGeometry& g, void* wide, T* dx, Add add) {
  const bool in_wide = HasGradRuns(g.h, g.w);
  ForImages(g, [&](int64_t image) {
    const int64_t n = g.x_image();
    T* const out = dx + image * n;
    if (!in_wide) {
      add(image, out);
      return;
    }
    auto* const sums = static_cast<SumOfMany<T>*>(wide) + image * n;
    add(image, sums);
    for (int64_t i = 0; i < n; ++i) {
      out[i] = T(static_cast<ComputeType<T>>(sums[i]));
    }
  });
}

// --- Kernels -----------------------------------------------------------------

// Where a spec has the shape of the images: in input 0, or output 0 where an op
// is given no x.
using ImagesOf = const std::vector<TensorType> KernelSpec::*;

// The bytes of workspace that a kernel for such images wants; null: none.
using PoolBytes = size_t (*)(const PoolGeometry& g, DType dtype);

// Makes kernels from run(TypeTag, geometry, context), of any floating type.
template <typename Run>
auto PoolMaker(Run run, ImagesOf images, PoolBytes workspace = nullptr) {
  return [=](const KernelSpec& spec) -> Result<KernelPtr> {
    SLUICE_ASSIGN_OR_RETURN(const PoolGeometry g,
                            PoolGeometryOf(spec, (spec.*images)[0].shape));
    const DType dtype = spec.inputs[0].dtype;
    const size_t bytes = workspace == nullptr ? 0 : workspace(g, dtype);
    return DispatchFloating(dtype, [&]<typename T>(TypeTag<T> tag) {
      return Result<KernelPtr>(
          KernelOf([=](const KernelContext& c) { run(tag, g, c); }, bytes));
    });
  };
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_POOL_H_
