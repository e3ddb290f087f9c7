// Pooling of ResNet-50 and, at batch 100, of the MNIST network.
#include <algorithm>

#include "bench/kernel_bench/peers.h"
#include "engine/semantics/window.h"
#include "graph/autograd.h"
#include "graph/builder.h"

namespace sluice::bench {
namespace {

struct Pool {
  Shape x, y;
  Window2D window;

  int64_t At(int64_t image, int64_t h, int64_t w, int64_t c) const {
    return ((image * x[1] + h) * x[2] + w) * x[3] + c;
  }
  // Calls fn(index into x) for the window of element `at` of y, row by row.
  template <typename Fn>
  void ForWindow(int64_t at, Fn fn) const {
    const int64_t c = at % y[3], ow = at / y[3] % y[2];
    const int64_t oh = at / y[3] / y[2] % y[1];
    const int64_t image = at / y[3] / y[2] / y[1];
    for (int64_t k = 0; k < window.h.window; ++k) {
      for (int64_t l = 0; l < window.w.window; ++l) {
        const int64_t h = window.h.Start(oh) + k, w = window.w.Start(ow) + l;
        if (h >= 0 && h < x[1] && w >= 0 && w < x[2]) fn(At(image, h, w, c));
      }
    }
  }
  double Max(const Tensor& t, int64_t at) const {
    double best = -1e30;
    ForWindow(at, [&](int64_t i) { best = std::max(best, F(t, i)); });
    return best;
  }
};

// dx[at]: dy of every window whose first largest element x[at] is.
double MaxGradient(const Pool& p, const std::vector<Tensor>& in, int64_t at) {
  const int64_t c = at % p.x[3], w = at / p.x[3] % p.x[2];
  const int64_t h = at / p.x[3] / p.x[2] % p.x[1];
  const int64_t image = at / p.x[3] / p.x[2] / p.x[1];
  double sum = 0;
  for (int64_t oh = 0; oh < p.y[1]; ++oh) {
    for (int64_t ow = 0; ow < p.y[2]; ++ow) {
      const int64_t down = h - p.window.h.Start(oh);
      const int64_t right = w - p.window.w.Start(ow);
      if (down < 0 || down >= p.window.h.window || right < 0 ||
          right >= p.window.w.window) {
        continue;
      }
      const int64_t y = ((image * p.y[1] + oh) * p.y[2] + ow) * p.y[3] + c;
      const double best = p.Max(in[0], y);
      int64_t first = -1;
      p.ForWindow(y, [&](int64_t i) {
        if (first < 0 && F(in[0], i) >= best) first = i;
      });
      if (first == at) sum += F(in[2], y);
    }
  }
  return sum;
}

// Makes y, the second of MaxPoolGrad's inputs, the maxima of x, the first.
void SetMaxima(const Pool& p, std::vector<Tensor>& inputs) {
  float* const y = inputs[1].data<float>();
  for (int64_t i = 0; i < p.y.elements(); ++i) {
    y[i] = static_cast<float>(p.Max(inputs[0], i));
  }
}

Case PoolCase(const char* pass, const Node& node) {
  Case c = CaseOf("pool", pass, node);
  c.make_peer = [spec = c.spec](const Subject&) { return OnednnPeer(spec); };
  return c;
}

void AddMax(const Shape& shape, const PoolOptions& options,
            std::vector<Case>& cases) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, shape);
  const Output y = MaxPool(x, options);
  const Window2D window =
      WindowOf(y.node().attrs(), shape, options.window[0], options.window[1])
          .ValueOrThrow();
  const Pool p = {shape, y.shape(), window};
  cases.push_back(PoolCase("forward", y.node()));
  cases.back().reference = [p](const std::vector<Tensor>& in, int, int64_t at) {
    return p.Max(in[0], at);
  };
  Case c = PoolCase("backward", Gradients({y}, {x})[0].node());
  c.make = [p, make = c.make](const std::string& provider) {
    Subject subject = make(provider);
    if (subject.run) SetMaxima(p, subject.inputs);
    return subject;
  };
  c.make_inputs = [p, make_inputs = c.make_inputs] {
    std::vector<Tensor> inputs = make_inputs();
    SetMaxima(p, inputs);
    return inputs;
  };
  c.reference = [p](const std::vector<Tensor>& in, int, int64_t at) {
    return MaxGradient(p, in, at);
  };
  cases.push_back(c);
}

// The mean of all pixels, and its gradient.
void AddGlobal(const Shape& shape, std::vector<Case>& cases) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, shape);
  const int64_t pixels = shape[1] * shape[2], channels = shape[3];
  cases.push_back(CaseOf("pool", "global", GlobalAvgPool(x).node()));
  cases.back().reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
    double sum = 0;
    for (int64_t q = 0; q < pixels; ++q) {
      sum += F(in[0], (at / channels * pixels + q) * channels + at % channels);
    }
    return sum / static_cast<double>(pixels);
  };
  const Output y = AvgPool(
      x, {.window = {shape[1], shape[2]}, .strides = {shape[1], shape[2]}});
  Case c = PoolCase("forward", y.node());
  c.reference = cases.back().reference;
  cases.push_back(c);
  c = PoolCase("backward", Gradients({y}, {x})[0].node());
  c.reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
    return F(in[0], at / channels / pixels * channels + at % channels) /
           static_cast<double>(pixels);
  };
  cases.push_back(c);
}

}  // namespace

std::vector<Case> PoolCases(int64_t images) {
  std::vector<Case> cases;
  AddMax({images, 112, 112, 64},
         {.window = {3, 3},
          .strides = {2, 2},
          .padding = Padding::kExplicit,
          .explicit_padding = {1, 1, 1, 1}},
         cases);
  AddMax({100, 28, 28, 32}, {}, cases);
  AddGlobal({images, 7, 7, 2048}, cases);
  return cases;
}

}  // namespace sluice::bench
