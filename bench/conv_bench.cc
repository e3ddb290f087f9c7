// Speed of the ops of convolutional networks: best of many runs, in GFLOP/s
// for convolutions (beside a matrix product of the same sizes) and in GB/s,
// each operand counted once, for the others. Run it on a quiet machine.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/evaluate.h"
#include "graph/ops/activation.h"
#include "graph/ops/conv.h"
#include "graph/ops/dropout.h"
#include "graph/ops/norm.h"
#include "graph/ops/pool.h"
#include "kernels/cpu/gemm.h"
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

// Seconds of one node on ones, and the bytes of its operands.
struct Timing {
  double seconds = 0;
  double bytes = 0;
};
Timing TimeNode(const Node& node, double budget) {
  const KernelSpec spec = SpecOf(node, false);
  const KernelDef* def =
      KernelTable::Global().Find(spec, DeviceType::kCpu).ValueOrThrow();
  KernelPtr kernel = def->make(spec).ValueOrThrow();
  std::vector<Tensor> operands;
  std::vector<void*> in, out;
  Timing timing;
  for (const TensorType& type : spec.inputs) {
    operands.push_back(Tensor::Full(type.dtype, type.shape, 1));
    in.push_back(operands.back().raw());
    timing.bytes += static_cast<double>(type.bytes());
  }
  for (const TensorType& type : spec.outputs) {
    operands.push_back(Tensor::Full(type.dtype, type.shape, 1));
    out.push_back(operands.back().raw());
    timing.bytes += static_cast<double>(type.bytes());
  }
  const std::shared_ptr<void> workspace =
      AllocateBuffer(kernel->workspace_bytes());
  const StepContext step;
  const KernelContext context(in.data(), out.data(), workspace.get(), &step);
  timing.seconds = Best(budget, [&] { ThrowIfError(kernel->Run(context)); });
  return timing;
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
  const char* name;
  int64_t images, size, in, kernel, out, stride;
};

// The MNIST network at batch 100, and layers of ResNet-50 at batch 8.
constexpr Layer kLayers[] = {
    {"mnist conv1", 100, 28, 1, 5, 32, 1},
    {"mnist conv2", 100, 14, 32, 5, 64, 1},
    {"resnet conv1", 8, 224, 3, 7, 64, 2},
    {"resnet 2b", 8, 56, 64, 3, 64, 1},
    {"resnet 2c", 8, 56, 64, 1, 256, 1},
    {"resnet 3b/2", 8, 56, 128, 3, 128, 2},
    {"resnet 4b", 8, 14, 256, 3, 256, 1},
    {"resnet 5b", 8, 7, 512, 3, 512, 1},
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

void RunLayer(const Layer& l, double budget, const Printer& printer) {
  Graph graph;
  const Output x =
      graph.Placeholder("x", DType::kFloat32, {l.images, l.size, l.size, l.in});
  const Output filter = graph.Placeholder("f", DType::kFloat32,
                                          {l.kernel, l.kernel, l.in, l.out});
  const Output y = Conv2D(x, filter, {.strides = {l.stride, l.stride}});
  const std::vector<Output> gradients = Gradients({y}, {x, filter});
  const int64_t pixels = y.shape().elements(0, 3);
  const int64_t k = l.kernel * l.kernel * l.in;
  const double work = 2e-9 * static_cast<double>(pixels * k * l.out);
  const double gemm = work / GemmSeconds(pixels, l.out, k, budget);
  for (const Output& output : {y, gradients[0], gradients[1]}) {
    const Timing timing = TimeNode(output.node(), budget);
    printer.Print(l.name, output.node().op().name, timing.seconds, "GFLOP/s",
                  work / timing.seconds, gemm);
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
  bool json = false;
  app.add_option("--threads", threads, "Compute threads");
  app.add_option("--seconds", budget, "Time per op");
  app.add_flag("--json", json, "One object per line");
  CLI11_PARSE(app, argc, argv);
  SetComputeThreads(threads);
  const Printer printer(json);
  for (const Layer& layer : kLayers) RunLayer(layer, budget, printer);
  RunOthers(budget, printer);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::Run(argc, argv);
}
