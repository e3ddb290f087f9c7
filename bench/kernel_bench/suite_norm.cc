// Batch normalisation of ResNet-50's activations at batch 16.
#include <cmath>

#include "bench/kernel_bench/peers.h"
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

// Inputs x, scale, mean, inv_std, dy; outputs dx, dscale, doffset.
double Backward(const std::vector<Tensor>& in, int result, int64_t at) {
  const int64_t channels = in[1].elements(), c = at % channels;
  const int64_t rows = in[0].elements() / channels;
  const double mean = F(in[2], c), inv_std = F(in[3], c);
  double dscale = 0, doffset = 0;
  for (int64_t i = c; i < rows * channels; i += channels) {
    dscale += F(in[4], i) * (F(in[0], i) - mean) * inv_std;
    doffset += F(in[4], i);
  }
  if (result > 0) return result == 1 ? dscale : doffset;
  const double normal = (F(in[0], at) - mean) * inv_std;
  return F(in[1], c) * inv_std *
         (F(in[4], at) -
          (doffset + normal * dscale) / static_cast<double>(rows));
}

void AddNorm(const Shape& shape, std::vector<Case>& cases) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, shape);
  const Output v = graph.Placeholder("v", DType::kFloat32, {shape[3]});
  const Output y = BatchNorm(x, v, v, v, v).y;
  const auto positive = [](int i, Tensor& value) {
    if (i != 3 && i != 4) return;
    for (float& f : value.values<float>()) f = 0.5f + f * f;
  };
  auto add = [&](const char* pass, const Node& node, const EditInput& edit,
                 const Reference& reference) {
    Case c = CaseOf("batch_norm", pass, node, edit);
    c.shape = shape.ToString();
    c.samples = 24;  // each takes sums over its channel
    // Sums of rows of either sign.
    c.tolerance = 1e-4;
    c.reference = reference;
    c.make_peer = [spec = c.spec](const Subject&) { return OnednnPeer(spec); };
    cases.push_back(c);
  };
  add("forward", y.node(), positive, Forward);
  add(
      "backward", Gradients({y}, {x})[0].node(),
      [](int i, Tensor& value) {
        if (i != 3) return;
        for (float& f : value.values<float>()) f = 0.5f + f * f;
      },
      Backward);
  add("inference", BatchNormInference(x, v, v, v, v).node(), positive,
      [](const std::vector<Tensor>& in, int, int64_t at) {
        const int64_t c = at % in[1].elements();
        return (F(in[0], at) - F(in[3], c)) / std::sqrt(F(in[4], c) + 1e-5) *
                   F(in[1], c) +
               F(in[2], c);
      });
}

}  // namespace

std::vector<Case> NormCases() {
  std::vector<Case> cases;
  AddNorm({16, 112, 112, 64}, cases);
  AddNorm({16, 56, 56, 256}, cases);
  AddNorm({16, 14, 14, 256}, cases);
  AddNorm({16, 7, 7, 2048}, cases);
  return cases;
}

}  // namespace sluice::bench
