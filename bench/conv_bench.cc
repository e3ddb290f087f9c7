// Speed of the ops of convolutional networks: best of many runs, in GFLOP/s
// for convolutions (beside a matrix product of the same sizes) and in GB/s,
// each operand counted once, for the others. Run it on a quiet machine.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "bench/resnet50_layers.h"
#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/activation.h"
#include "graph/ops/conv.h"
#include "graph/ops/dropout.h"
#include "graph/ops/norm.h"
#include "graph/ops/pool.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {
namespace {

// Seconds of the fastest of the runs that fit in about `budget` seconds.
template <typename Fn>
double Best(double budget, const Fn& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  double total = 0;
  for (int run = 0; run < 3 || total < budget; ++run) {
    const auto start = Clock::now();
    fn();
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// A node's kernel on random numbers, the same for float32 and float64.
class PreparedNode {
 public:
  // def: null for the best kernel.
  explicit PreparedNode(const Node& node, const KernelDef* def = nullptr) {
    const KernelSpec spec = SpecOf(node, false);
    if (def == nullptr) {
      def = KernelTable::Global().Find(spec, DeviceType::kCpu).ValueOrThrow();
    }
    kernel_ = def->make(spec).ValueOrThrow();
    for (const TensorType& type : spec.inputs) Add(type, &in_);
    for (const TensorType& type : spec.outputs) Add(type, &out_);
    workspace_ = AllocateBuffer(kernel_->workspace_bytes());
  }

  double bytes() const { return bytes_; }  // of all operands
  const Tensor& output() const { return tensors_.back(); }
  void Run() const {
    const StepContext step;
    const KernelContext context(in_.data(), out_.data(), workspace_.get(),
                                &step);
    ThrowIfError(kernel_->Run(context));
  }
  // Of one run.
  double Seconds() const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    Run();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  void Add(const TensorType& type, std::vector<void*>* operands) {
    Tensor tensor = Tensor::Full(type.dtype, type.shape, 1);
    std::mt19937 random(static_cast<uint32_t>(tensors_.size()));
    std::uniform_real_distribution<float> uniform(-1, 1);
    if (type.dtype == DType::kFloat32) {
      for (float& v : tensor.values<float>()) v = uniform(random);
    } else if (type.dtype == DType::kFloat64) {
      for (double& v : tensor.values<double>()) v = uniform(random);
    }
    tensors_.push_back(tensor);
    operands->push_back(tensor.raw());
    bytes_ += static_cast<double>(type.bytes());
  }

  KernelPtr kernel_;
  std::vector<Tensor> tensors_;
  std::vector<void*> in_, out_;
  std::shared_ptr<void> workspace_;
  double bytes_ = 0;
};

// Seconds of one node, and the bytes of its operands.
struct Timing {
  double seconds = 0;
  double bytes = 0;
};
Timing TimeNode(const Node& node, double budget) {
  const PreparedNode prepared(node);
  return {Best(budget, [&] { prepared.Run(); }), prepared.bytes()};
}

double GemmSeconds(int64_t m, int64_t n, int64_t k, double budget) {
  const Tensor a = Tensor::Full(DType::kFloat32, {m, k}, 1);
  const Tensor b = Tensor::Full(DType::kFloat32, {k, n}, 1);
  Tensor c = Tensor::Zeros(DType::kFloat32, {m, n});
  Gemm<float> gemm = {.m = m, .n = n, .k = k};
  gemm.a = a.data<float>();
  gemm.b = b.data<float>();
  gemm.c = c.data<float>();
  gemm.lda = k;
  gemm.ldb = gemm.ldc = n;
  const std::shared_ptr<void> workspace = AllocateBuffer(GemmWorkspace(gemm));
  return Best(budget, [&] { RunGemm(gemm, workspace.get()); });
}

struct Layer {
  int64_t images;
  Resnet50Layer of;
};

// The MNIST network at batch 100.
constexpr Layer kMnistLayers[] = {
    {100, {"mnist conv1", 28, 1, 32, 5, 1, 1}},
    {100, {"mnist conv2", 14, 32, 64, 5, 1, 1}},
};

class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}
  void Print(const std::string& name, const std::string& op, double seconds,
             const char* unit, double speed, double gemm = 0) const {
    if (json_) {
      nlohmann::json line = {{"bench", "conv"},
                             {"name", name},
                             {"op", op},
                             {"isa", Simd().isa},
                             {"ms", seconds * 1e3},
                             {unit, speed},
                             {"threads", ComputeThreads().threads()}};
      if (gemm > 0) line["gemm_gflops"] = gemm;
      fmt::print("{}\n", line.dump());
      return;
    }
    fmt::print("{:<14} {:<22} {:>9.3f} ms {:>8.1f} {}", name, op, seconds * 1e3,
               speed, unit);
    if (gemm > 0) fmt::print("  (GEMM {:.1f})", gemm);
    fmt::print("\n");
  }

 private:
  bool json_;
};

// A convolution and its gradients as nodes: forward, input, filter.
struct ConvNodes {
  explicit ConvNodes(const Layer& l, DType dtype = DType::kFloat32) {
    const Resnet50Layer& c = l.of;
    const int64_t pad = c.kernel / 2;
    const Output x =
        graph.Placeholder("x", dtype, {l.images, c.size, c.size, c.in});
    const Output filter =
        graph.Placeholder("f", dtype, {c.kernel, c.kernel, c.in, c.out});
    const Output y = Conv2D(x, filter,
                            {.strides = {c.stride, c.stride},
                             .padding = Padding::kExplicit,
                             .explicit_padding = {pad, pad, pad, pad}});
    const std::vector<Output> gradients = Gradients({y}, {x, filter});
    outputs = {y, gradients[0], gradients[1]};
  }

  Graph graph;
  std::vector<Output> outputs;
};

// Of one pass over one layer.
double Gflop(const Layer& l) {
  const Resnet50Layer& c = l.of;
  return 2e-9 *
         static_cast<double>(l.images * c.output_size() * c.output_size() *
                             c.kernel * c.kernel * c.in * c.out);
}

void RunLayer(const Layer& l, double budget, const Printer& printer) {
  const ConvNodes nodes(l);
  const double work = Gflop(l);
  const double gemm =
      work / GemmSeconds(l.images * l.of.output_size() * l.of.output_size(),
                         l.of.out, l.of.kernel * l.of.kernel * l.of.in, budget);
  for (const Output& output : nodes.outputs) {
    const Timing timing = TimeNode(output.node(), budget);
    printer.Print(l.of.name, output.node().op().name, timing.seconds, "GFLOP/s",
                  work / timing.seconds, gemm);
  }
}

// The errors of every kernel of a layer's passes against the reference in
// float64, relative to the results: root mean square and largest.
void RunErrors(const Layer& l) {
  const ConvNodes nodes(l), exact_nodes(l, DType::kFloat64);
  for (size_t pass = 0; pass < nodes.outputs.size(); ++pass) {
    const Node& node = nodes.outputs[pass].node();
    const PreparedNode exact(exact_nodes.outputs[pass].node());
    exact.Run();
    const std::span<const double> want = exact.output().values<double>();
    for (const KernelDef* def :
         KernelTable::Global().FindAll(SpecOf(node, false), DeviceType::kCpu)) {
      if (def->priority == 0) continue;
      const PreparedNode prepared(node, def);
      prepared.Run();
      const std::span<const float> got = prepared.output().values<float>();
      double square = 0, error = 0, largest = 0, worst = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const double difference = std::abs(got[i] - want[i]);
        square += want[i] * want[i];
        error += difference * difference;
        largest = std::max(largest, std::abs(want[i]));
        worst = std::max(worst, difference);
      }
      fmt::print("{:<12} {:<22} {:<10} rms {:.1e} largest {:.1e}\n", l.of.name,
                 node.op().name, def->provider, std::sqrt(error / square),
                 worst / largest);
    }
  }
}

// Prints the layers of ResNet-50 as one line of JSON; then answers every line
// "LAYER PASS" on stdin, both counted from 0, with the seconds of one run.
// bench/compare_conv drives it beside PyTorch.
void Serve(int64_t images) {
  nlohmann::json layers;
  for (const Resnet50Layer& c : kResnet50Layers) {
    layers.push_back({{"name", c.name},
                      {"size", c.size},
                      {"in", c.in},
                      {"out", c.out},
                      {"kernel", c.kernel},
                      {"stride", c.stride},
                      {"count", c.count},
                      {"gflop", Gflop({images, c})}});
  }
  fmt::print("{}\n", layers.dump());
  std::fflush(stdout);
  size_t prepared = std::size(kResnet50Layers);
  size_t layer = 0, pass = 0;
  std::vector<PreparedNode> passes;
  while (std::cin >> layer >> pass) {
    if (layer >= std::size(kResnet50Layers) || pass >= 3) break;
    if (layer != prepared) {
      passes.clear();
      const ConvNodes nodes({images, kResnet50Layers[layer]});
      for (const Output& y : nodes.outputs) passes.emplace_back(y.node());
      prepared = layer;
    }
    fmt::print("{:.9f}\n", passes[pass].Seconds());
    std::fflush(stdout);
  }
}

// Everything else of the MNIST network at batch 100, and normalisation.
void RunOthers(double budget, const Printer& printer) {
  Graph graph;
  auto image = [&](int64_t size, int64_t channels) {
    return graph.Placeholder("x", DType::kFloat32, {100, size, size, channels});
  };
  const Output vector = graph.Placeholder("v", DType::kFloat32, {64});
  const Output wide = image(14, 64);
  const std::vector<Output> ys = {
      MaxPool(image(28, 32)),
      MaxPool(wide),
      AvgPool(wide),
      Relu(image(28, 32)),
      Dropout(graph.Placeholder("x", DType::kFloat32, {100, 1024}), 0.5),
      BatchNorm(wide, vector, vector, vector, vector).y,
      LayerNorm(wide, vector, vector)};
  for (const Output& y : ys) {
    const Output dx = Gradients({y}, {y.node().input(0)})[0];
    for (const Output& output : {y, dx}) {
      const Timing timing = TimeNode(output.node(), budget);
      printer.Print(y.shape().ToString(), output.node().op().name,
                    timing.seconds, "GB/s",
                    timing.bytes * 1e-9 / timing.seconds);
    }
  }
}

int Run(int argc, char** argv) {
  CLI::App app("Ops of convolutional networks, best of many runs");
  int threads = 1;
  double budget = 0.3;
  int64_t batch = 16;
  bool json = false, serve = false, errors = false;
  app.add_option("--threads", threads, "Compute threads");
  app.add_option("--seconds", budget, "Time per op");
  app.add_option("--batch", batch, "Images of ResNet-50's layers");
  app.add_flag("--json", json, "One object per line");
  app.add_flag("--errors", errors,
               "ResNet-50's layers against float64 (use a small batch)");
  app.add_flag("--serve", serve, "Let bench/compare_conv ask for runs");
  CLI11_PARSE(app, argc, argv);
  SetComputeThreads(threads);
  if (serve) {
    Serve(batch);
    return 0;
  }
  if (errors) {
    for (const Resnet50Layer& layer : kResnet50Layers) {
      RunErrors({batch, layer});
    }
    return 0;
  }
  const Printer printer(json);
  for (const Layer& layer : kMnistLayers) RunLayer(layer, budget, printer);
  for (const Resnet50Layer& layer : kResnet50Layers) {
    RunLayer({batch, layer}, budget, printer);
  }
  RunOthers(budget, printer);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::Run(argc, argv);
}
