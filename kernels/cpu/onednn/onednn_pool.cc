// Mean pooling by oneDNN, in slices of the images. The library's maximum passes
// NaN over, its gradient wants a workspace that our op does not have, and the
// mean's gradient was slower than our plain loops: those are ours alone.
#if SLUICE_HAVE_ONEDNN
#include <algorithm>
#include <memory>

#include "engine/semantics/pool_run.h"
#include "engine/semantics/window.h"
#include "engine/threads.h"
#include "kernels/cpu/onednn/onednn.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kSlices = 8;

int64_t PadAfter(const WindowDim& d) {
  return (d.output - 1) * d.stride + d.window - d.input - d.pad_before;
}

Window2D WindowsOf(const KernelSpec& spec) {
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  return WindowOf(spec.attrs, spec.inputs[0].shape, window[0], window[1])
      .ValueOrThrow();
}

// A pool of `images`.
dnnl::pooling_forward::primitive_desc DescOf(const KernelSpec& spec,
                                             int64_t images) {
  const Shape& x = spec.inputs[0].shape;
  const Shape& y = spec.outputs[0].shape;
  const Window2D w = WindowsOf(spec);
  return {{dnnl::prop_kind::forward_inference,
           dnnl::algorithm::pooling_avg_exclude_padding,
           OnednnImages(images, x[1], x[2], x[3]),
           OnednnImages(images, y[1], y[2], y[3]),
           {w.h.stride, w.w.stride},
           {w.h.window, w.w.window},
           {w.h.pad_before, w.w.pad_before},
           {PadAfter(w.h), PadAfter(w.w)}},
          OnednnAttributes(),
          OnednnEngine()};
}

bool Supports(const KernelSpec& spec) {
  const Window2D w = WindowsOf(spec);
  // The library adds a whole window in one sum.
  if (HasPoolRuns(w.h.window, w.w.window) || !OnednnTakes(w)) return false;
  const OnednnOnThisThread scope;
  return !IsOnednnReference(DescOf(spec, 1));
}

KernelPtr Make(const KernelSpec& spec) {
  const OnednnOnThisThread scope;
  const OnednnSlices slices = OnednnSlicesOf(spec.inputs[0].shape[0], kSlices);
  std::vector<OnednnCall> calls;
  for (int64_t s = 0; s < slices.count(); ++s) {
    const auto desc = DescOf(spec, slices.size(s));
    calls.emplace_back(
        dnnl::pooling_forward(desc), desc,
        std::vector<OnednnCall::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                          {DNNL_ARG_DST, desc.dst_desc()}});
  }
  const int64_t in = spec.inputs[0].shape.elements(1, 4);
  const int64_t out = spec.outputs[0].shape.elements(1, 4);
  return OnednnSlicedKernel(
      spec, slices, std::move(calls),
      [in, out](OnednnCall& call, const KernelContext& c, int64_t image,
                void* scratchpad) {
        return call.Run(
            {c.input<float>(0) + image * in, c.output<float>(0) + image * out},
            scratchpad);
      });
}

}  // namespace

void RegisterOnednnPoolKernels(KernelTable& table) {
  RegisterOnednn(table, "AvgPool", Make, Supports);
}

}  // namespace sluice::cpu
#endif  // SLUICE_HAVE_ONEDNN
