// What the kernels of pooling share.
#ifndef SLUICE_KERNELS_CPU_CONV_POOL_H_
#define SLUICE_KERNELS_CPU_CONV_POOL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/kernel.h"
#include "engine/semantics/window.h"
#include "engine/threads.h"

namespace sluice::cpu {

struct PoolGeometry {
  int64_t images = 0, channels = 0;
  WindowDim h, w;

  int64_t x_row() const { return w.input * channels; }
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
  const int64_t row = std::max<int64_t>(g.x_row() * g.h.window, 1);
  ParallelFor(g.images * g.h.output, std::max<int64_t>((1 << 15) / row, 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  fn(r / g.h.output, r % g.h.output);
                }
              });
}

// What has the shape of the images: input 0, or output 0 where an op is given
// no x.
using ImagesOf = const std::vector<TensorType> KernelSpec::*;

// Makes kernels from run(TypeTag, geometry, context), of any floating type.
template <typename Run>
auto PoolMaker(Run run, ImagesOf images) {
  return [run, images](const KernelSpec& spec) -> Result<KernelPtr> {
    SLUICE_ASSIGN_OR_RETURN(const PoolGeometry g,
                            PoolGeometryOf(spec, (spec.*images)[0].shape));
    return DispatchFloating(
        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T> tag) {
          return Result<KernelPtr>(
              KernelOf([=](const KernelContext& c) { run(tag, g, c); }));
        });
  };
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_POOL_H_
