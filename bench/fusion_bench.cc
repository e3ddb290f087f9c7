// Times what the fusion pass makes against the same nodes by themselves, and
// both against a copy that moves the least bytes: a chain of six elementwise
// ops, a residual block's normalisation forward and backward, and the momentum
// update of a ResNet-50's variables. The sides take turns.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

// An op that reads nothing and keeps its operands alive.
void RegisterSink() {
  static const OpDef op = {
      .name = "BenchSink",
      .doc = "Wants its inputs and does nothing with them.",
      .inputs = {{"x", "T", true}},
      .outputs = {},
      .types = {{"T", kFloating}},
      .gradient = NotDifferentiable,
      .stateful = true};
  OpTable::Global().Register(op);
  KernelTable::Global().Register(
      {.op = "BenchSink", .make = [](const KernelSpec&) {
         return Result<KernelPtr>(KernelOf([](const KernelContext&) {}));
       }});
}

// One step of a graph, prepared.
class Step {
 public:
  Step(const Graph& graph, const Operation& target, bool fuse)
      : session_(graph, {.fuse = fuse}) {
    session_.Initialize();
    step_ = session_.Prepare({}, {}, {target});
  }
  void operator()() { step_.Run({}, {}); }

 private:
  Session session_;
  PreparedStep step_;
};

double Seconds(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Medians of each side, which take turns.
std::vector<double> Medians(const std::vector<std::function<void()>>& sides,
                            int rounds) {
  std::vector<std::vector<double>> times(sides.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const double seconds = Seconds(sides[i]);
      if (round >= 0) times[i].push_back(seconds);
    }
  }
  std::vector<double> medians;
  for (auto& t : times) {
    std::nth_element(t.begin(), t.begin() + rounds / 2, t.end());
    medians.push_back(t[rounds / 2]);
  }
  return medians;
}

// Copies n bytes, one stretch for each thread: the C library stores long ones
// past the caches.
struct Copier {
  explicit Copier(int64_t bytes)
      : from(Tensor::Full(DType::kUInt8, {bytes}, 1)),
        to(Tensor::Full(DType::kUInt8, {bytes}, 2)) {}
  void operator()() const {
    const int64_t n = from.elements();
    ParallelFor(n, CeilDiv(n, ComputeThreads().threads()),
                [&](int64_t begin, int64_t end) {
                  std::memcpy(static_cast<char*>(to.raw()) + begin,
                              static_cast<const char*>(from.raw()) + begin,
                              static_cast<size_t>(end - begin));
                });
  }
  Tensor from;
  mutable Tensor to;
};

struct Bench {
  const char* name;
  // Bytes that the fused form moves.
  double bytes;
  std::function<Operation(Graph&)> build;
};

Operation Sink(Graph& graph, const std::vector<Operand>& inputs) {
  return Operation(&graph.Add({"BenchSink", inputs}));
}

Operation Chain(Graph& graph) {
  const Output x = graph.Variable("x", Filled(0.5, {1 << 24}));
  const Output y = Relu((x * 1.5 + 0.25) * x - 0.125) * 3.0;
  return Sink(graph, {y});
}

// relu(batch_norm(x) + s) of a ResNet-50's first stage at batch 16, and its
// gradient from the sum of two.
Operation ResidualNorm(Graph& graph) {
  const Shape shape = {16, 56, 56, 256};
  auto image = [&](const char* name, double value) {
    return graph.Variable(name, Filled(value, shape));
  };
  auto vector = [&](const char* name, double value) {
    return graph.Variable(name, Filled(value, {256}));
  };
  const Output x = image("x", 0.5), s = image("s", 0.25);
  const Output scale = vector("scale", 1), offset = vector("offset", 0.5);
  const BatchNormOutputs norm =
      BatchNorm(x, scale, offset, vector("mean", 0), vector("variance", 1), {});
  const Output y = Relu(norm.y + s);
  const Output dy = image("a", 1e-3) + image("b", 1e-3);
  std::vector<Output> gradients = Gradients({y}, {x, s, scale, offset}, {dy});
  return Sink(graph, {y, gradients[0], gradients[1], norm.mean});
}

// 25.6 million parameters in 161 tensors, most of them vectors.
Operation Updates(Graph& graph) {
  std::vector<Operation> updates;
  const Output rate = graph.Constant(0.1, DType::kFloat32);
  for (int i = 0; i < 161; ++i) {
    const int64_t n = i % 3 == 0 ? (25'600'000 - 107 * 512) / 54 : 512;
    auto variable = [&](const char* name) {
      return graph.Variable(name + std::to_string(i), Filled(0.5, {n}));
    };
    const Output v = variable("v"), velocity = variable("velocity");
    updates.emplace_back(
        ApplyMomentum(v, velocity, rate, variable("gradient"), {}));
  }
  return Group(graph, updates);
}

void Run(const Bench& bench, int rounds, bool json) {
  Graph graph;
  const Operation target = bench.build(graph);
  auto fused = std::make_shared<Step>(graph, target, true);
  auto plain = std::make_shared<Step>(graph, target, false);
  const Copier copy(64 << 20);
  const std::vector<double> t = Medians(
      {[&] { (*fused)(); }, [&] { (*plain)(); }, [&] { copy(); }}, rounds);
  const double copied = 2.0 * (64 << 20) / t[2];
  const double moved = bench.bytes / t[0];
  if (json) {
    fmt::print("{}\n", Json({{"bench", bench.name},
                             {"fused_ms", t[0] * 1e3},
                             {"plain_ms", t[1] * 1e3},
                             {"fused_gb_per_s", moved / 1e9},
                             {"copy_gb_per_s", copied / 1e9},
                             {"of_copy", moved / copied}})
                           .dump());
  } else {
    fmt::print(
        "{:<14} fused {:7.2f} ms, apart {:7.2f} ms; {:5.1f} GB/s, {:.0f} % of "
        "a copy's {:.1f}\n",
        bench.name, t[0] * 1e3, t[1] * 1e3, moved / 1e9, 100 * moved / copied,
        copied / 1e9);
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Times fused nodes");
  int threads = 0, rounds = 15;
  std::string filter;
  bool json = false;
  app.add_option("--threads", threads, "0: one per core");
  app.add_option("--rounds", rounds, "The median is reported");
  app.add_option("--filter", filter, "Only the bench of this name");
  app.add_flag("--json", json, "One object per line");
  CLI11_PARSE(app, argc, argv);
  SetComputeThreads(threads);
  RegisterSink();
  constexpr double kImage = 4.0 * 16 * 56 * 56 * 256;
  const Bench benches[] = {
      {"chain_of_six", 2.0 * (64 << 20), Chain},
      {"residual_norm", (4 + 7) * kImage, ResidualNorm},
      {"momentum", 5 * 4 * 25.6e6, Updates},
  };
  for (const Bench& bench : benches) {
    if (filter.empty() || filter == bench.name) Run(bench, rounds, json);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::Main(argc, argv);
}
