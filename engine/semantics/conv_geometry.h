// The sizes of a convolution, from any of its ops. The kernels of all devices
// share it.
#ifndef SLUICE_ENGINE_SEMANTICS_CONV_GEOMETRY_H_
#define SLUICE_ENGINE_SEMANTICS_CONV_GEOMETRY_H_

#include "engine/kernel.h"
#include "engine/semantics/filter_layout.h"
#include "engine/semantics/window.h"

namespace sluice {

// x [images, h.input, w.input, groups * in], filter [kh, kw, in,
// groups * out], y [images, h.output, w.output, groups * out]. A depthwise
// filter [kh, kw, c, m] has the layout of one of c groups, [kh, kw, 1, c * m];
// those of some ops are OHWI (filter_layout.h).
struct ConvGeometry {
  int64_t images = 0;
  WindowDim h, w;
  int64_t groups = 1;
  int64_t in = 0;   // channels per group
  int64_t out = 0;  // channels per group

  int64_t x_channels() const { return groups * in; }
  int64_t y_channels() const { return groups * out; }
  // Elements of one image.
  int64_t x_image() const { return h.input * w.input * x_channels(); }
  int64_t y_image() const { return h.output * w.output * y_channels(); }
  // Rows of the filter as a matrix [taps() * in, groups * out].
  int64_t taps() const { return h.window * w.window; }
};

// Whether the convolution with these attributes is depthwise: every channel is
// a group of its own, so the op has no attribute that says how many there are.
inline bool IsDepthwise(const Attributes& attrs) {
  return !attrs.Has("groups");
}

inline Result<ConvGeometry> ConvGeometryOf(const KernelSpec& spec) {
  const bool depthwise = IsDepthwise(spec.attrs);
  const ConvPass pass = spec.conv.pass;
  const Shape& x =
      (pass == ConvPass::kInput ? spec.outputs[0] : spec.inputs[0]).shape;
  Shape filter =
      (pass == ConvPass::kFilter ? spec.outputs[0] : spec.inputs[1]).shape;
  if (spec.conv.ohwi) filter = HwioOf(filter);
  SLUICE_ASSIGN_OR_RETURN(const Window2D window,
                          WindowOf(spec.attrs, x, filter[0], filter[1]));
  ConvGeometry g;
  g.images = x[0];
  g.h = window.h;
  g.w = window.w;
  g.groups = depthwise ? filter[2] : spec.attrs.Int("groups");
  g.in = depthwise ? 1 : filter[2];
  g.out = depthwise ? filter[3] : filter[3] / g.groups;
  return g;
}

// The filter of an op, or its gradient, among what it reads and makes.
inline TensorType& FilterOf(KernelSpec& spec) {
  return spec.conv.pass == ConvPass::kFilter ? spec.outputs[0] : spec.inputs[1];
}

// The spec of the same convolution with an HWIO filter, by `op`, from the spec
// of an op with an OHWI filter.
inline KernelSpec WithHwioFilter(KernelSpec spec, const char* op) {
  spec.op = op;
  spec.conv.ohwi = false;
  spec.constants.clear();  // a filter's shape
  TensorType& filter = FilterOf(spec);
  filter.shape = HwioOf(filter.shape);
  return spec;
}

// The spec of the same convolution that yields y alone, from the spec of one
// that also yields sums of y (graph/ops/conv_ohwi.cc).
inline KernelSpec WithoutSums(KernelSpec spec) {
  spec.op = "OhwiConv2D";
  spec.outputs.resize(1);
  return spec;
}

// The window whose tap k lies on input element i, or -1.
inline int64_t WindowOver(const WindowDim& d, int64_t i, int64_t k) {
  const int64_t start = i + d.pad_before - k * d.dilation;
  if (start < 0 || start % d.stride != 0) return -1;
  return start / d.stride < d.output ? start / d.stride : -1;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_CONV_GEOMETRY_H_
