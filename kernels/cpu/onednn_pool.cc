// Mean pooling and its gradient by oneDNN, in slices of the images. Its maximum
// passes NaN over, and the gradient of that wants a workspace which our op does
// not have, so maxima are ours alone.
#if SLUICE_HAVE_ONEDNN
#include <algorithm>
#include <memory>

#include "engine/threads.h"
#include "engine/window.h"
#include "kernels/cpu/onednn.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kSlices = 8;

struct Pool {
  Shape x, y;
  Window2D window;
};

Pool PoolOf(const KernelSpec& spec) {
  const bool backward = spec.op == "AvgPoolGrad";
  const Shape& x = (backward ? spec.outputs : spec.inputs)[0].shape;
  const Shape& y = (backward ? spec.inputs : spec.outputs)[0].shape;
  const std::vector<int64_t>& size = spec.attrs.Ints("window");
  return {x, y, WindowOf(spec.attrs, x, size[0], size[1]).ValueOrThrow()};
}

int64_t PadAfter(const WindowDim& d) {
  return (d.output - 1) * d.stride + d.window - d.input - d.pad_before;
}

// The library's words for a pool of `images`.
struct Problem {
  OnednnDesc x, y;
  dnnl::memory::dims strides, window, before, after;
};
Problem ProblemOf(const Pool& p, int64_t images) {
  const WindowDim &h = p.window.h, &w = p.window.w;
  return {OnednnImages(images, p.x[1], p.x[2], p.x[3]),
          OnednnImages(images, p.y[1], p.y[2], p.y[3]),
          {h.stride, w.stride},
          {h.window, w.window},
          {h.pad_before, w.pad_before},
          {PadAfter(h), PadAfter(w)}};
}

constexpr auto kMean = dnnl::algorithm::pooling_avg_exclude_padding;

struct Forward {
  using Desc = dnnl::pooling_forward::primitive_desc;
  using Primitive = dnnl::pooling_forward;
  static Desc DescOf(const Problem& p) {
    return {{dnnl::prop_kind::forward_training, kMean, p.x, p.y, p.strides,
             p.window, p.before, p.after},
            OnednnAttributes(),
            OnednnEngine()};
  }
  static std::vector<OnednnCall::Argument> Arguments(const Desc& desc) {
    return {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_DST, desc.dst_desc()}};
  }
};

struct Backward {
  using Desc = dnnl::pooling_backward::primitive_desc;
  using Primitive = dnnl::pooling_backward;
  static Desc DescOf(const Problem& p) {
    return {{kMean, p.x, p.y, p.strides, p.window, p.before, p.after},
            OnednnAttributes(),
            OnednnEngine(),
            Forward::DescOf(p)};
  }
  static std::vector<OnednnCall::Argument> Arguments(const Desc& desc) {
    return {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
            {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()}};
  }
};

template <typename Kind>
bool Supports(const KernelSpec& spec) {
  const OnednnOnThisThread scope;
  return !IsOnednnReference(Kind::DescOf(ProblemOf(PoolOf(spec), 1)));
}

template <typename Kind>
KernelPtr Make(const KernelSpec& spec) {
  const OnednnOnThisThread scope;
  const Pool p = PoolOf(spec);
  const OnednnSlices slices = OnednnSlicesOf(p.x[0], kSlices);
  const auto calls = std::make_shared<std::vector<OnednnCall>>();
  size_t scratchpad = 0;
  for (int64_t s = 0; s < slices.count(); ++s) {
    const auto desc = Kind::DescOf(ProblemOf(p, slices.size(s)));
    calls->emplace_back(typename Kind::Primitive(desc), desc,
                        Kind::Arguments(desc));
    scratchpad = std::max(scratchpad, calls->back().scratchpad_bytes());
  }
  const int64_t in = spec.inputs[0].shape.elements(1, 4);
  const int64_t out = spec.outputs[0].shape.elements(1, 4);
  return KernelOf(
      [=, node = spec.node](const KernelContext& c) -> Status {
        OnednnStatus status;
        ParallelFor(slices.count(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s) {
            const int64_t image = slices.begin(s);
            status.Note((*calls)[s].Run(
                {c.input<float>(0) + image * in,
                 c.output<float>(0) + image * out},
                static_cast<char*>(c.workspace()) + s * scratchpad));
          }
        });
        return status.ToStatus(node);
      },
      slices.count() * scratchpad);
}

}  // namespace

void RegisterOnednnPoolKernels(KernelTable& table) {
  RegisterOnednn(table, "AvgPool", Make<Forward>, Supports<Forward>);
  RegisterOnednn(table, "AvgPoolGrad", Make<Backward>, Supports<Backward>);
}

}  // namespace sluice::cpu
#endif  // SLUICE_HAVE_ONEDNN
