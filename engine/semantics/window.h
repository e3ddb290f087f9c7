// The geometry of windows that slide over images: convolution and pooling.
// Shape functions and the kernels of all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_WINDOW_H_
#define SLUICE_ENGINE_SEMANTICS_WINDOW_H_

#include <cstdint>

#include "engine/attributes.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// One direction. Element k of window o lies on input element
// o * stride - pad_before + k * dilation, which is padding when that is outside
// [0, input). Sizes may be kUnknown while a graph is built.
struct WindowDim {
  int64_t input = 0;
  int64_t output = 0;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_before = 0;
  int64_t pad_after = 0;

  int64_t extent() const { return (window - 1) * dilation + 1; }
  // The input element under element 0 of window o.
  int64_t Start(int64_t o) const { return o * stride - pad_before; }
};

struct Window2D {
  WindowDim h;
  WindowDim w;
};

// The geometry for images of shape `image`, NHWC, under windows of
// window_h x window_w, from the attributes
//   strides, dilations (optional): pairs, vertical first;
//   padding: "SAME", "VALID" or "EXPLICIT";
//   explicit_padding: top, bottom, left, right, for "EXPLICIT".
// SAME is TensorFlow's: output = ceil(input / stride), the odd row or column of
// padding at the end. InvalidArgument for what cannot be, such as a window
// larger than the padded image, or a stride, dilation, padding or extent beyond
// 2^31 - 1.
Result<Window2D> WindowOf(const Attributes& attrs, const Shape& image,
                          int64_t window_h, int64_t window_w);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_WINDOW_H_
