// oneDNN's primitives, called directly with operands in the layouts that the
// library chooses ("any"), so that no conversion slows it down.
#include "bench/kernel_bench/peers.h"

#if SLUICE_HAVE_ONEDNN
#include <dlfcn.h>

#include <cstring>
#include <dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "engine/semantics/window.h"
#include "engine/threads.h"

namespace sluice::bench {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Desc = memory::desc;
using Dims = memory::dims;

constexpr auto kAny = memory::format_tag::any;
constexpr auto kF32 = memory::data_type::f32;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Gives the library's OpenMP as many threads as we have.
void SetThreads() {
  using Set = void (*)(int);
  static const Set set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(ComputeThreads().threads());
}

// NHWC as oneDNN names dimensions.
Desc Images(const Shape& s, memory::format_tag tag = kAny) {
  return {Dims{s[0], s[3], s[1], s[2]}, kF32, tag};
}

memory Operand(const Desc& desc) {
  memory buffer(desc, Engine());
  auto* x = static_cast<float*>(buffer.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
    x[i] = static_cast<float>(i % 251) * 0.01f - 1.25f;
  }
  return buffer;
}

using Arguments = std::unordered_map<int, Desc>;

template <typename PrimitiveDesc>
Subject SubjectOf(const PrimitiveDesc& desc, const dnnl::primitive& primitive,
                  const Arguments& arguments) {
  Subject peer;
  const std::string_view implementation = desc.impl_info_str();
  if (implementation.starts_with("ref")) return peer;
  std::unordered_map<int, memory> operands;
  for (const auto& [index, operand] : arguments) {
    operands.emplace(index, Operand(operand));
  }
  peer.provider = "oneDNN " + std::string(implementation);
  peer.run = [primitive, operands, stream = dnnl::stream(Engine())]() mutable {
    primitive.execute(stream, operands);
    stream.wait();
  };
  return peer;
}

struct Convolution {
  Desc x, filter, y;
  Dims strides, before, after;
};
Convolution ConvolutionOf(const KernelSpec& spec) {
  const bool to_input = spec.op == "Conv2DBackpropInput";
  const bool to_filter = spec.op == "Conv2DBackpropFilter";
  const Shape& x = (to_input ? spec.outputs : spec.inputs)[0].shape;
  const Shape& f = to_filter ? spec.outputs[0].shape : spec.inputs[1].shape;
  const Shape& y = to_input    ? spec.inputs[0].shape
                   : to_filter ? spec.inputs[1].shape
                               : spec.outputs[0].shape;
  const Window2D w = WindowOf(spec.attrs, x, f[0], f[1]).ValueOrThrow();
  return {Images(x),
          Desc(Dims{f[3], f[2], f[0], f[1]}, kF32, kAny),
          Images(y),
          {w.h.stride, w.w.stride},
          {w.h.pad_before, w.w.pad_before},
          {w.h.pad_after, w.w.pad_after}};
}

Subject ConvolutionPeer(const KernelSpec& spec) {
  const Convolution c = ConvolutionOf(spec);
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {prop_kind::forward_training, kDirect, c.x, c.filter, c.y, c.strides,
       c.before, c.after},
      Engine());
  if (spec.op == "Conv2D") {
    return SubjectOf(forward, dnnl::convolution_forward(forward),
                     {{DNNL_ARG_SRC, forward.src_desc()},
                      {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                      {DNNL_ARG_DST, forward.dst_desc()}});
  }
  if (spec.op == "Conv2DBackpropInput") {
    const dnnl::convolution_backward_data::primitive_desc desc(
        {kDirect, c.x, c.filter, c.y, c.strides, c.before, c.after}, Engine(),
        forward);
    return SubjectOf(desc, dnnl::convolution_backward_data(desc),
                     {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                      {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                      {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()}});
  }
  const dnnl::convolution_backward_weights::primitive_desc desc(
      {kDirect, c.x, c.filter, c.y, c.strides, c.before, c.after}, Engine(),
      forward);
  return SubjectOf(desc, dnnl::convolution_backward_weights(desc),
                   {{DNNL_ARG_SRC, desc.src_desc()},
                    {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                    {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()}});
}

Subject ProductPeer(const KernelSpec& spec) {
  const auto matrix = [](const Shape& s, bool transposed) {
    return transposed ? Desc(Dims{s[1], s[0]}, kF32, memory::format_tag::ba)
                      : Desc(Dims{s[0], s[1]}, kF32, memory::format_tag::ab);
  };
  const dnnl::matmul::primitive_desc desc(
      {matrix(spec.inputs[0].shape, spec.attrs.Bool("transpose_a")),
       matrix(spec.inputs[1].shape, spec.attrs.Bool("transpose_b")),
       matrix(spec.outputs[0].shape, false)},
      Engine());
  return SubjectOf(desc, dnnl::matmul(desc),
                   {{DNNL_ARG_SRC, desc.src_desc()},
                    {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                    {DNNL_ARG_DST, desc.dst_desc()}});
}

Subject PoolPeer(const KernelSpec& spec) {
  const bool max = spec.op.starts_with("Max");
  const bool backward = spec.op.ends_with("Grad");
  const Shape& x =
      (spec.op == "AvgPoolGrad" ? spec.outputs : spec.inputs)[0].shape;
  const Shape& y =
      (!backward ? spec.outputs[0] : spec.inputs[max ? 1 : 0]).shape;
  const std::vector<int64_t>& window = spec.attrs.Ints("window");
  const Window2D w =
      WindowOf(spec.attrs, x, window[0], window[1]).ValueOrThrow();
  const auto algorithm = max ? dnnl::algorithm::pooling_max
                             : dnnl::algorithm::pooling_avg_exclude_padding;
  constexpr auto kBlocked = memory::format_tag::nChw8c;
  const Dims strides = {w.h.stride, w.w.stride};
  const Dims kernel = {w.h.window, w.w.window};
  const Dims before = {w.h.pad_before, w.w.pad_before};
  const Dims after = {w.h.pad_after, w.w.pad_after};
  const dnnl::pooling_forward::primitive_desc forward(
      {prop_kind::forward_training, algorithm, Images(x, kBlocked),
       Images(y, kBlocked), strides, kernel, before, after},
      Engine());
  Arguments arguments;
  if (max) arguments[DNNL_ARG_WORKSPACE] = forward.workspace_desc();
  if (!backward) {
    arguments[DNNL_ARG_SRC] = forward.src_desc();
    arguments[DNNL_ARG_DST] = forward.dst_desc();
    return SubjectOf(forward, dnnl::pooling_forward(forward), arguments);
  }
  const dnnl::pooling_backward::primitive_desc desc(
      {algorithm, Images(x, kBlocked), Images(y, kBlocked), strides, kernel,
       before, after},
      Engine(), forward);
  arguments[DNNL_ARG_DIFF_DST] = desc.diff_dst_desc();
  arguments[DNNL_ARG_DIFF_SRC] = desc.diff_src_desc();
  return SubjectOf(desc, dnnl::pooling_backward(desc), arguments);
}

Subject BatchNormPeer(const KernelSpec& spec) {
  using Flags = dnnl::normalization_flags;
  const Desc x = Images(spec.inputs[0].shape, memory::format_tag::nChw8c);
  Flags flags = Flags::use_scale | Flags::use_shift;
  const bool inference = spec.op == "BatchNormInference";
  if (inference) flags |= Flags::use_global_stats;
  const dnnl::batch_normalization_forward::primitive_desc forward(
      {inference ? prop_kind::forward_inference : prop_kind::forward_training,
       x, 1e-5f, flags},
      Engine());
  const Desc channels = forward.weights_desc();
  Arguments arguments = {{DNNL_ARG_SRC, x},
                         {DNNL_ARG_SCALE, channels},
                         {DNNL_ARG_SHIFT, channels},
                         {DNNL_ARG_MEAN, forward.mean_desc()},
                         {DNNL_ARG_VARIANCE, forward.variance_desc()}};
  if (spec.op != "BatchNormGrad") {
    arguments[DNNL_ARG_DST] = x;
    return SubjectOf(forward, dnnl::batch_normalization_forward(forward),
                     arguments);
  }
  const dnnl::batch_normalization_backward::primitive_desc desc(
      {prop_kind::backward, x, x, 1e-5f, flags}, Engine(), forward);
  arguments[DNNL_ARG_DIFF_DST] = x;
  arguments[DNNL_ARG_DIFF_SRC] = x;
  arguments[DNNL_ARG_DIFF_SCALE] = channels;
  arguments[DNNL_ARG_DIFF_SHIFT] = channels;
  return SubjectOf(desc, dnnl::batch_normalization_backward(desc), arguments);
}

Subject SoftmaxPeer(const KernelSpec& spec) {
  const Shape& s = spec.inputs[0].shape;
  const Desc x(Dims{s[0], s[1]}, kF32, memory::format_tag::ab);
  if (spec.op == "LogSoftmax") {
    const dnnl::logsoftmax_forward::primitive_desc desc(
        {prop_kind::forward_training, x, 1}, Engine());
    return SubjectOf(desc, dnnl::logsoftmax_forward(desc),
                     {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, x}});
  }
  const dnnl::softmax_forward::primitive_desc desc(
      {prop_kind::forward_training, x, 1}, Engine());
  return SubjectOf(desc, dnnl::softmax_forward(desc),
                   {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, x}});
}

}  // namespace

Subject OnednnPeer(const KernelSpec& spec) {
  SetThreads();
  try {
    if (spec.op.starts_with("Conv2D")) return ConvolutionPeer(spec);
    if (spec.op == "MatMul") return ProductPeer(spec);
    if (spec.op.find("Pool") != std::string::npos) return PoolPeer(spec);
    if (spec.op.starts_with("BatchNorm")) return BatchNormPeer(spec);
    if (spec.op.ends_with("Softmax")) return SoftmaxPeer(spec);
  } catch (const dnnl::error&) {
    // Nothing for these shapes.
  }
  return {};
}

}  // namespace sluice::bench

#else

namespace sluice::bench {

Subject OnednnPeer(const KernelSpec&) {
  return {};
}

}  // namespace sluice::bench

#endif  // SLUICE_HAVE_ONEDNN
