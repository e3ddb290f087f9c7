// The convolutions of ResNet-50 and, at batch 100, of the MNIST network.
#include <fmt/format.h>

#include "bench/kernel_bench/peers.h"
#include "bench/resnet50_layers.h"
#include "engine/semantics/window.h"
#include "graph/autograd.h"
#include "graph/ops/conv.h"

namespace sluice::bench {
namespace {

struct Sizes {
  int64_t images, size, in, out, kernel, stride;
  Window2D window;

  int64_t X(int64_t image, int64_t h, int64_t w, int64_t channel) const {
    return ((image * size + h) * size + w) * in + channel;
  }
  int64_t Filter(int64_t kh, int64_t kw, int64_t i, int64_t o) const {
    return ((kh * kernel + kw) * in + i) * out + o;
  }
  int64_t Y(int64_t image, int64_t h, int64_t w, int64_t channel) const {
    return ((image * window.h.output + h) * window.w.output + w) * out +
           channel;
  }
};

bool Inside(int64_t i, int64_t n) {
  return i >= 0 && i < n;
}

double Forward(const Sizes& s, const Tensor& x, const Tensor& filter,
               int64_t at) {
  const int64_t o = at % s.out, ow = at / s.out % s.window.w.output;
  const int64_t row = at / s.out / s.window.w.output;
  const int64_t oh = row % s.window.h.output, image = row / s.window.h.output;
  double sum = 0;
  for (int64_t kh = 0; kh < s.kernel; ++kh) {
    for (int64_t kw = 0; kw < s.kernel; ++kw) {
      const int64_t h = s.window.h.Start(oh) + kh;
      const int64_t w = s.window.w.Start(ow) + kw;
      if (!Inside(h, s.size) || !Inside(w, s.size)) continue;
      for (int64_t i = 0; i < s.in; ++i) {
        sum += F(x, s.X(image, h, w, i)) * F(filter, s.Filter(kh, kw, i, o));
      }
    }
  }
  return sum;
}

double DataGradient(const Sizes& s, const Tensor& dy, const Tensor& filter,
                    int64_t at) {
  const int64_t i = at % s.in, w = at / s.in % s.size;
  const int64_t h = at / s.in / s.size % s.size;
  const int64_t image = at / s.in / s.size / s.size;
  double sum = 0;
  for (int64_t kh = 0; kh < s.kernel; ++kh) {
    for (int64_t kw = 0; kw < s.kernel; ++kw) {
      const int64_t down = h + s.window.h.pad_before - kh;
      const int64_t right = w + s.window.w.pad_before - kw;
      if (down % s.stride != 0 || right % s.stride != 0) continue;
      const int64_t oh = down / s.stride, ow = right / s.stride;
      if (down < 0 || right < 0 || oh >= s.window.h.output ||
          ow >= s.window.w.output) {
        continue;
      }
      for (int64_t o = 0; o < s.out; ++o) {
        sum += F(dy, s.Y(image, oh, ow, o)) * F(filter, s.Filter(kh, kw, i, o));
      }
    }
  }
  return sum;
}

double WeightGradient(const Sizes& s, const Tensor& x, const Tensor& dy,
                      int64_t at) {
  const int64_t o = at % s.out, i = at / s.out % s.in;
  const int64_t tap = at / s.out / s.in;
  double sum = 0;
  for (int64_t image = 0; image < s.images; ++image) {
    for (int64_t oh = 0; oh < s.window.h.output; ++oh) {
      for (int64_t ow = 0; ow < s.window.w.output; ++ow) {
        const int64_t h = s.window.h.Start(oh) + tap / s.kernel;
        const int64_t w = s.window.w.Start(ow) + tap % s.kernel;
        if (!Inside(h, s.size) || !Inside(w, s.size)) continue;
        sum += F(x, s.X(image, h, w, i)) * F(dy, s.Y(image, oh, ow, o));
      }
    }
  }
  return sum;
}

void AddLayer(Sizes s, std::vector<Case>& cases) {
  const int64_t pad = s.kernel / 2;
  Graph graph;
  const Output x =
      graph.Placeholder("x", DType::kFloat32, {s.images, s.size, s.size, s.in});
  const Output filter = graph.Placeholder("filter", DType::kFloat32,
                                          {s.kernel, s.kernel, s.in, s.out});
  const Output y = Conv2D(x, filter,
                          {.strides = {s.stride, s.stride},
                           .padding = Padding::kExplicit,
                           .explicit_padding = {pad, pad, pad, pad}});
  s.window =
      WindowOf(y.node().attrs(), x.shape(), s.kernel, s.kernel).ValueOrThrow();
  const std::vector<Output> gradients = Gradients({y}, {x, filter});
  using Value = double (*)(const Sizes&, const Tensor&, const Tensor&, int64_t);
  auto add = [&](const char* pass, const Output& output, Value value) {
    Case c = CaseOf("conv", pass, output.node());
    c.shape =
        fmt::format("{}x{}x{}x{} {}x{} to {}{}", s.images, s.size, s.size, s.in,
                    s.kernel, s.kernel, s.out, s.stride == 1 ? "" : "/2");
    c.flops = 2.0 * static_cast<double>(y.shape().elements()) *
              static_cast<double>(s.kernel * s.kernel * s.in);
    // Products of many terms, and Winograd's transforms lose some bits.
    c.tolerance = 1e-4;
    c.samples = 100;
    c.reference = [s, value](const std::vector<Tensor>& in, int, int64_t at) {
      return value(s, in[0], in[1], at);
    };
    c.make_peer = [spec = c.spec](const Subject&) { return OnednnPeer(spec); };
    cases.push_back(std::move(c));
  };
  add("forward", y, Forward);
  add("data", gradients[0], DataGradient);
  add("weights", gradients[1], WeightGradient);
}

}  // namespace

std::vector<Case> ConvCases(int64_t images) {
  std::vector<Case> cases;
  for (const Resnet50Layer& l : kResnet50Layers) {
    AddLayer({images, l.size, l.in, l.out, l.kernel, l.stride, {}}, cases);
  }
  AddLayer({100, 28, 1, 32, 5, 1, {}}, cases);
  AddLayer({100, 14, 32, 64, 5, 1, {}}, cases);
  return cases;
}

}  // namespace sluice::bench
