// Batch normalisation of ResNet-50's activations, alone and with the addition
// and the ReLU behind it.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "bench/kernel_bench/peers.h"
#include "engine/ceil_div.h"
#include "graph/autograd.h"
#include "graph/ops/norm.h"

namespace sluice::bench {
namespace {

// Sums over one channel of x[rows, channels].
struct Moments {
  double mean, variance;
};
Moments MomentsOf(const Tensor& x, int64_t channels, int64_t c) {
  const int64_t rows = x.elements() / channels;
  double sum = 0, squares = 0;
  for (int64_t r = 0; r < rows; ++r) {
    sum += F(x, r * channels + c);
    squares += F(x, r * channels + c) * F(x, r * channels + c);
  }
  const double mean = sum / static_cast<double>(rows);
  return {mean, squares / static_cast<double>(rows) - mean * mean};
}

// Outputs y, mean, inv_std, new_running_mean, new_running_variance.
double Forward(const std::vector<Tensor>& in, int result, int64_t at) {
  const int64_t channels = in[1].elements(), c = at % channels;
  const double rows = static_cast<double>(in[0].elements() / channels);
  const Moments m = MomentsOf(in[0], channels, c);
  const double inv_std = 1 / std::sqrt(m.variance + 1e-5);
  switch (result) {
    case 0:
      return (F(in[0], at) - m.mean) * inv_std * F(in[1], c) + F(in[2], c);
    case 1:
      return m.mean;
    case 2:
      return inv_std;
    case 3:
      return 0.9 * F(in[3], c) + 0.1 * m.mean;
    default:
      return 0.9 * F(in[4], c) + 0.1 * m.variance * rows / (rows - 1);
  }
}

// The same with a ReLU behind it, in front of which an addend may be the last
// input; the last output has a bit for each positive element of y.
double ForwardRelu(const std::vector<Tensor>& in, int result, int64_t at) {
  const auto y = [&](int64_t i) {
    const double addend = in.size() > 5 ? F(in[5], i) : 0;
    return std::max(0.0, Forward(in, 0, i) + addend);
  };
  if (result == 0) return y(at);
  if (result < 5) return Forward(in, result, at);
  int bits = 0;
  for (int64_t b = 0; b < 8 && 8 * at + b < in[0].elements(); ++b) {
    if (y(8 * at + b) > 0) bits |= 1 << b;
  }
  return bits;
}

// Element i of y's gradient.
using Slope = std::function<double(int64_t i)>;

// Inputs x, scale, mean, inv_std, ...; outputs dx, dscale, doffset.
double Gradient(const std::vector<Tensor>& in, const Slope& dy, int result,
                int64_t at) {
  const int64_t channels = in[1].elements(), c = at % channels;
  const int64_t rows = in[0].elements() / channels;
  const double mean = F(in[2], c), inv_std = F(in[3], c);
  double dscale = 0, doffset = 0;
  for (int64_t i = c; i < rows * channels; i += channels) {
    const double slope = dy(i);
    dscale += slope * (F(in[0], i) - mean) * inv_std;
    doffset += slope;
  }
  if (result > 0) return result == 1 ? dscale : doffset;
  const double normal = (F(in[0], at) - mean) * inv_std;
  return F(in[1], c) * inv_std *
         (dy(at) - (doffset + normal * dscale) / static_cast<double>(rows));
}

double Backward(const std::vector<Tensor>& in, int result, int64_t at) {
  return Gradient(
      in, [&](int64_t i) { return F(in[4], i); }, result, at);
}

// Inputs ..., mask, then the terms of dy; a fourth output is the addend's
// gradient.
double BackwardRelu(const std::vector<Tensor>& in, int result, int64_t at) {
  const auto dy = [&](int64_t i) {
    if ((in[4].data<uint8_t>()[i / 8] >> (i % 8) & 1) == 0) return 0.0;
    return F(in[5], i) + (in.size() > 6 ? F(in[6], i) : 0);
  };
  return result == 3 ? dy(at) : Gradient(in, dy, result, at);
}

void MakePositive(Tensor& value) {
  for (float& f : value.values<float>()) f = 0.5f + f * f;
}
// inv_std, and the mask.
void EditGradient(int i, Tensor& value) {
  if (i == 3) MakePositive(value);
  if (value.dtype() != DType::kUInt8) return;
  uint32_t state = 1;
  for (uint8_t& byte : value.values<uint8_t>()) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
}
void EditForward(int i, Tensor& value) {
  if (i == 3 || i == 4) MakePositive(value);
}

class NormSuite {
 public:
  void AddAll(const Shape& shape) {
    Graph graph;
    shape_ = shape.ToString();
    // Each takes sums over its channel.
    samples_ = shape[0] > kImages ? 6 : 24;
    const Output x = graph.Placeholder("x", DType::kFloat32, shape);
    const Output v = graph.Placeholder("v", DType::kFloat32, {shape[3]});
    const Output mask = graph.Placeholder(
        "mask", DType::kUInt8, {CeilDiv(shape.elements(), int64_t{8})});
    const Output y = BatchNorm(x, v, v, v, v).y;
    Add("forward", y.node(), EditForward, Forward);
    AddFused("forward", graph, "BatchNormRelu", {x, v, v, v, v});
    AddFused("forward", graph, "BatchNormAddRelu", {x, v, v, v, v, x});
    Add("backward", Gradients({y}, {x})[0].node(), EditGradient, Backward);
    AddFused("backward", graph, "BatchNormReluGrad", {x, v, v, v, mask, x});
    // In a residual block the sum of two gradients.
    AddFused("backward", graph, "BatchNormAddReluGrad",
             {x, v, v, v, mask, x, x});
    Add("inference", BatchNormInference(x, v, v, v, v).node(), EditForward,
        [](const std::vector<Tensor>& in, int, int64_t at) {
          const int64_t c = at % in[1].elements();
          return (F(in[0], at) - F(in[3], c)) / std::sqrt(F(in[4], c) + 1e-5) *
                     F(in[1], c) +
                 F(in[2], c);
        });
  }
  std::vector<Case> Take() { return std::move(cases_); }

 private:
  Case& Add(const char* pass, const Node& node, const EditInput& edit,
            const Reference& reference) {
    Case c = CaseOf("batch_norm", pass, node, edit);
    c.shape = shape_;
    c.samples = samples_;
    // Sums of rows of either sign.
    c.tolerance = 1e-4;
    c.reference = reference;
    c.make_peer = [spec = c.spec](const Subject&) { return OnednnPeer(spec); };
    cases_.push_back(c);
    return cases_.back();
  }
  // What the fusion pass makes of it with what follows.
  void AddFused(const char* pass, Graph& graph, const char* op,
                std::vector<Operand> inputs) {
    const bool forward = std::string_view(pass) == "forward";
    const Node& node = graph.Add({op, std::move(inputs)});
    Add(pass, node, forward ? EditForward : EditGradient,
        forward ? ForwardRelu : BackwardRelu)
        .make_peer = nullptr;
  }

  std::string shape_;
  int samples_ = 0;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> NormCases(int64_t images) {
  NormSuite suite;
  suite.AddAll({images, 112, 112, 64});
  suite.AddAll({images, 56, 56, 256});
  suite.AddAll({images, 14, 14, 256});
  suite.AddAll({images, 7, 7, 2048});
  return suite.Take();
}

}  // namespace sluice::bench
