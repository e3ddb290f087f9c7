// Convolutions by oneDNN, in slices of the images. Images stay NHWC; filters
// are brought into the primitive's layout at each run.
#if SLUICE_HAVE_ONEDNN
#include <algorithm>
#include <memory>

#include "engine/ceil_div.h"
#include "engine/semantics/conv_geometry.h"
#include "engine/threads.h"
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

// Of images. Enough for some cores; more of them would read the filter more
// often, or for its gradient keep more sums.
constexpr int64_t kSlices = 8;
constexpr int64_t kFilterSlices = 4;

using Dims = dnnl::memory::dims;

// What oneDNN is asked for: `images` of a convolution, any filter layout.
struct Problem {
  OnednnDesc x, filter, y;
  Dims strides, dilations, before, after;
};

// The last window may leave some of the image out: then this is negative.
int64_t PadAfter(const WindowDim& d) {
  return (d.output - 1) * d.stride + d.extent() - d.input - d.pad_before;
}

Problem ProblemOf(const ConvGeometry& g, int64_t images) {
  return {
      OnednnImages(images, g.h.input, g.w.input, g.in),
      OnednnDesc({g.out, g.in, g.h.window, g.w.window}, kOnednnF32,
                 dnnl::memory::format_tag::any),
      OnednnImages(images, g.h.output, g.w.output, g.out),
      {g.h.stride, g.w.stride},
      {g.h.dilation - 1, g.w.dilation - 1},
      {g.h.pad_before, g.w.pad_before},
      {PadAfter(g.h), PadAfter(g.w)},
  };
}

OnednnDesc PlainFilter(const ConvGeometry& g) {
  return {{g.out, g.in, g.h.window, g.w.window},
          kOnednnF32,
          dnnl::memory::format_tag::hwio};
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// One primitive of one of the three kinds.
struct Forward {
  using Desc = dnnl::convolution_forward::primitive_desc;
  using Primitive = dnnl::convolution_forward;
  static Desc DescOf(const Problem& p) {
    return {{dnnl::prop_kind::forward_training, kDirect, p.x, p.filter, p.y,
             p.strides, p.dilations, p.before, p.after},
            OnednnAttributes(),
            OnednnEngine()};
  }
  static OnednnDesc Filter(const Desc& desc) { return desc.weights_desc(); }
  // Source, filter, result.
  static std::vector<OnednnCall::Argument> Arguments(const Desc& desc) {
    return {{DNNL_ARG_SRC, desc.src_desc()},
            {DNNL_ARG_WEIGHTS, desc.weights_desc()},
            {DNNL_ARG_DST, desc.dst_desc()}};
  }
};

template <typename Gradient>
struct Backprop {
  using Desc = typename Gradient::primitive_desc;
  using Primitive = Gradient;
  static Desc DescOf(const Problem& p) {
    return {{kDirect, p.x, p.filter, p.y, p.strides, p.dilations, p.before,
             p.after},
            OnednnAttributes(),
            OnednnEngine(),
            Forward::DescOf(p)};
  }
};

struct BackpropInput : Backprop<dnnl::convolution_backward_data> {
  static OnednnDesc Filter(const Desc& desc) { return desc.weights_desc(); }
  static std::vector<OnednnCall::Argument> Arguments(const Desc& desc) {
    return {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
            {DNNL_ARG_WEIGHTS, desc.weights_desc()},
            {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()}};
  }
};

struct BackpropFilter : Backprop<dnnl::convolution_backward_weights> {
  static OnednnDesc Filter(const Desc& desc) {
    return desc.diff_weights_desc();
  }
  static std::vector<OnednnCall::Argument> Arguments(const Desc& desc) {
    return {{DNNL_ARG_SRC, desc.src_desc()},
            {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
            {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()}};
  }
};

template <typename Kind>
bool Supports(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  if (!g.ok() || g->groups != 1 || !OnednnTakes({g->h, g->w})) return false;
  const OnednnOnThisThread scope;
  return !IsOnednnReference(Kind::DescOf(ProblemOf(*g, 1)));
}

// The primitive of every slice: all are alike, but for the number of images of
// the last one. They share the filter's layout.
template <typename Kind>
struct Convolution {
  OnednnSlices slices;
  OnednnDesc filter;
  std::vector<OnednnCall> calls;
  size_t scratchpad = 0;  // bytes of each

  Convolution(const ConvGeometry& g, int64_t most)
      : slices(OnednnSlicesOf(g.images, most)) {
    const OnednnOnThisThread scope;
    Problem problem = ProblemOf(g, slices.size(0));
    const auto full = Kind::DescOf(problem);
    filter = Kind::Filter(full);
    const typename Kind::Primitive primitive(full);
    for (int64_t s = 0; s + 1 < slices.count(); ++s) Add(full, primitive);
    const int64_t rest = slices.size(slices.count() - 1);
    if (rest == slices.size(0)) {
      Add(full, primitive);
      return;
    }
    problem = ProblemOf(g, rest);
    problem.filter = filter;
    const auto last = Kind::DescOf(problem);
    Add(last, typename Kind::Primitive(last));
  }

  void Add(const typename Kind::Desc& desc,
           const typename Kind::Primitive& primitive) {
    calls.emplace_back(primitive, desc, Kind::Arguments(desc));
    scratchpad = std::max(scratchpad, calls.back().scratchpad_bytes());
  }
  size_t filter_bytes() const { return RoundUp(filter.get_size(), kAlignment); }
};

// Forward and BackpropInput: the filter is converted, then each slice of one
// kind of images gives one of the other.
template <typename Kind>
KernelPtr MakeImages(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec).ValueOrThrow();
  struct Job {
    Convolution<Kind> conv;
    OnednnReorder reorder;
  };
  Convolution<Kind> made(g, kSlices);
  const OnednnReorder reorder(PlainFilter(g), made.filter);
  const auto job = std::make_shared<Job>(Job{std::move(made), reorder});
  const Convolution<Kind>& conv = job->conv;
  const bool forward = std::is_same_v<Kind, Forward>;
  const int64_t source = forward ? g.x_image() : g.y_image();
  const int64_t result = forward ? g.y_image() : g.x_image();
  const size_t scratch =
      std::max(reorder.scratchpad_bytes(), conv.calls.size() * conv.scratchpad);
  return KernelOf(
      [=, node = spec.node](const KernelContext& c) -> Status {
        Convolution<Kind>& run = job->conv;
        char* packed = static_cast<char*>(c.workspace());
        char* scratchpads = packed + run.filter_bytes();
        OnednnStatus status;
        const void* filter = c.input<void>(1);
        if (job->reorder.needed()) {
          status.Note(job->reorder.Run(filter, packed, scratchpads));
          filter = packed;
        }
        ParallelFor(run.slices.count(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s) {
            const int64_t image = run.slices.begin(s);
            status.Note(
                run.calls[s].Run({c.input<float>(0) + image * source, filter,
                                  c.output<float>(0) + image * result},
                                 scratchpads + s * run.scratchpad));
          }
        });
        return status.ToStatus(node);
      },
      conv.filter_bytes() + scratch);
}

// Each slice gives a filter's gradient in the primitive's layout; they are
// added in their order, then converted.
KernelPtr MakeFilter(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec).ValueOrThrow();
  struct Job {
    Convolution<BackpropFilter> conv;
    OnednnReorder reorder;
  };
  Convolution<BackpropFilter> made(g, kFilterSlices);
  const OnednnReorder reorder(made.filter, PlainFilter(g));
  const auto job = std::make_shared<Job>(Job{std::move(made), reorder});
  const Convolution<BackpropFilter>& conv = job->conv;
  const size_t slices = conv.calls.size();
  const size_t scratch =
      std::max(reorder.scratchpad_bytes(), slices * conv.scratchpad);
  return KernelOf(
      [=, node = spec.node](const KernelContext& c) -> Status {
        Convolution<BackpropFilter>& run = job->conv;
        char* sums = static_cast<char*>(c.workspace());
        char* scratchpads = sums + run.calls.size() * run.filter_bytes();
        const auto sum_of = [&](int64_t slice) {
          return reinterpret_cast<float*>(sums + slice * run.filter_bytes());
        };
        OnednnStatus status;
        ParallelFor(run.slices.count(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s) {
            const int64_t image = run.slices.begin(s);
            status.Note(run.calls[s].Run(
                {c.input<float>(0) + image * g.x_image(),
                 c.input<float>(1) + image * g.y_image(), sum_of(s)},
                scratchpads + s * run.scratchpad));
          }
        });
        const auto n =
            static_cast<int64_t>(run.filter.get_size() / sizeof(float));
        ParallelFor(n, 1 << 14, [&](int64_t begin, int64_t end) {
          for (int64_t s = 1; s < run.slices.count(); ++s) {
            Simd().axpy(1, sum_of(s) + begin, sum_of(0) + begin, end - begin);
          }
        });
        float* dfilter = c.output<float>(0);
        if (job->reorder.needed()) {
          status.Note(job->reorder.Run(sum_of(0), dfilter, scratchpads));
        } else {
          std::copy(sum_of(0), sum_of(0) + n, dfilter);
        }
        return status.ToStatus(node);
      },
      slices* conv.filter_bytes() + scratch);
}

}  // namespace

void RegisterOnednnConvKernels(KernelTable& table) {
  RegisterOnednn(table, "Conv2D", MakeImages<Forward>, Supports<Forward>);
  RegisterOnednn(table, "Conv2DBackpropInput", MakeImages<BackpropInput>,
                 Supports<BackpropInput>);
  RegisterOnednn(table, "Conv2DBackpropFilter", MakeFilter,
                 Supports<BackpropFilter>);
}

}  // namespace sluice::cpu
#endif  // SLUICE_HAVE_ONEDNN
