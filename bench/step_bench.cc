// Times whole steps: the executor's own overhead on trivial nodes, training
// steps of the MNIST networks, training steps and predictions of ResNet-50
// (v1.5 on 224 x 224 images). With --serve it answers "run N" lines, so that
// bench/compare can let several engines take turns.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/guarded.h"
#include "bench/step_blocks.h"
#include "engine/semantics/random.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "models/zoo/mnist_networks.h"
#include "models/zoo/resnet.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string model;  // empty: everything
  int64_t batch = 100;
  int threads = 1;
  int steps = 200;  // a block, at most
  int blocks = 15;
  bool json = false;
  bool serve = false;
  SessionOptions session;
};

bool OnGpu(const Options& options) {
  return options.session.devices[0].starts_with("/gpu");
}

bench::BlockRules RulesFor(const Options& options) {
  return bench::BlockRulesFor(OnGpu(options), options.blocks, options.steps);
}

double Seconds(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// The median over blocks of seconds per call.
double MedianSeconds(int blocks, int calls, const std::function<void()>& fn) {
  std::vector<double> times;
  fn();
  for (int b = 0; b < blocks; ++b) {
    times.push_back(Seconds([&] {
                      for (int i = 0; i < calls; ++i) fn();
                    }) /
                    calls);
  }
  std::nth_element(times.begin(), times.begin() + blocks / 2, times.end());
  return times[blocks / 2];
}

void Report(const Options& options, const Json& row) {
  if (options.json) {
    std::cout << row.dump() << std::endl;
  } else {
    std::string line;
    for (const auto& [key, value] : row.items()) {
      line += fmt::format("{}={} ", key, value.dump());
    }
    std::cout << line << std::endl;
  }
}

// --- Executor overhead -------------------------------------------------------

// An op whose kernel does nothing: what remains is the executor.
void RegisterTrivialOp() {
  static const OpDef op = {.name = "BenchTrivial",
                           .doc = "Does nothing with its input.",
                           .inputs = {{"x", "T", true}},
                           .types = {{"T", kFloating}},
                           .gradient = NotDifferentiable,
                           .stateful = true,
                           .inplace = {0}};
  OpTable::Global().Register(op);
  KernelTable::Global().Register(
      {.op = "BenchTrivial", .make = [](const KernelSpec&) {
         return Result<KernelPtr>(KernelOf([](const KernelContext&) {}));
       }});
}

Output Trivial(std::vector<Operand> inputs) {
  Graph& graph = inputs[0].graph();
  return graph.Add({"BenchTrivial", std::move(inputs)}).output(0);
}

double NanosecondsPerNode(const Graph& graph, const Output& fetch,
                          ExecutorMode mode, int blocks) {
  SessionOptions session_options;
  session_options.executor = mode;
  Session session(graph, session_options);
  PreparedStep step = session.Prepare({}, {fetch});
  std::vector<Tensor> fetches = step.MakeFetches();
  const double seconds =
      MedianSeconds(blocks, 20, [&] { step.Run({}, fetches); });
  return seconds * 1e9 / static_cast<double>(step.info().nodes);
}

void BenchExecutor(const Options& options) {
  constexpr int kNodes = 10000;
  {
    Graph chain;
    Output x = chain.Constant(1, DType::kFloat32);
    for (int i = 0; i < kNodes; ++i) x = Trivial({x});
    Report(options,
           {{"bench", "executor_serial"},
            {"nodes", kNodes},
            {"ns_per_node", NanosecondsPerNode(chain, x, ExecutorMode::kSerial,
                                               options.blocks)}});
  }
  SetComputeThreads(2);
  {
    // One source, many independent nodes, one sink.
    Graph wide;
    Output source = Trivial({wide.Constant(1, DType::kFloat32)});
    std::vector<Operand> middle;
    for (int i = 0; i < kNodes; ++i) middle.emplace_back(Trivial({source}));
    Report(options,
           {{"bench", "executor_dataflow"},
            {"nodes", kNodes},
            {"threads", 2},
            {"ns_per_node",
             NanosecondsPerNode(wide, Trivial(std::move(middle)),
                                ExecutorMode::kDataflow, options.blocks)}});
  }
}

// --- Models ------------------------------------------------------------------

const std::vector<std::string> kModels = {"mnist_softmax", "mnist_mlp",
                                          "mnist_cnn", "resnet50_training",
                                          "resnet50_inference"};

bool IsMnist(const std::string& model) {
  return model.starts_with("mnist_");
}
bool Trains(const std::string& model) {
  return model != "resnet50_inference";
}

// Forward, backward and a momentum update, or the logits alone, on one batch
// that lies in memory: a GPU's own, where one runs it.
class ModelStep {
 public:
  ModelStep(const std::string& model, int64_t batch,
            const SessionOptions& options) {
    const bool resident = options.devices[0].starts_with("/gpu");
    const Shape one = IsMnist(model) ? Shape{28, 28, 1} : Shape{224, 224, 3};
    const Shape images = {batch, one[0], one[1], one[2]};
    const auto input = [&](const char* name, const Tensor& value) {
      if (resident)
        return graph_.Variable(name, CopyOf(value), {.trainable = false});
      Shape any = value.shape();
      any.set(0, kUnknown);
      const Output fed = graph_.Placeholder(name, value.dtype(), any);
      shapes_.push_back({fed, value.shape()});
      feeds_.push_back(value);
      return fed;
    };
    const Output image = input("image", RandomImages(images));
    const Scope root(graph_);
    const Output logits =
        IsMnist(model)
            ? MnistNetwork(root, model.substr(6), image, true)  // "mnist_"
            : ResNet(root, "resnet50", image, {.training = Trains(model)});
    std::vector<Operation> targets;
    Output fetch = logits;
    if (Trains(model)) {
      const Output label =
          input("label", RandomLabels(batch, logits.shape()[-1]));
      fetch = Mean(SparseSoftmaxCrossEntropy(logits, label));
      Optimizer optimizer = optimizers::Momentum(0.01f, 0.9f);
      if (options.precision == Precision::kFloat16) {
        optimizer = optimizer.WithLossScaling();
      }
      targets.push_back(optimizer.Minimize(fetch));
    }
    session_ = std::make_unique<Session>(graph_, options);
    session_->Initialize();
    if (!Trains(model)) session_->Freeze();
    step_ = session_->Prepare(shapes_, {fetch}, targets);
    // A GPU's step that fetches nothing is not waited for.
    plain_ = Trains(model) ? session_->Prepare(shapes_, {}, targets) : step_;
    fetches_ = step_.MakeFetches();
  }
  // Returns when all are done.
  void Run(int64_t steps = 1) {
    for (int64_t i = 1; i < steps; ++i) {
      plain_.Run(feeds_, plain_.fetch_types().empty() ? nothing_ : fetches_);
    }
    step_.Run(feeds_, fetches_);
  }
  // Of the step that fetches; why either of both was not captured.
  StepInfo info() const {
    StepInfo info = step_.info();
    if (info.why_not_captured.empty()) {
      info.why_not_captured = plain_.info().why_not_captured;
    }
    return info;
  }

 private:
  uint64_t Next() { return (state_ = state_ * 6364136223846793005u + 1) >> 40; }
  Tensor RandomImages(const Shape& shape) {
    Tensor images(DType::kFloat32, shape);
    for (float& pixel : images.values<float>()) {
      pixel = static_cast<float>(Next()) / float(1 << 24);
    }
    return images;
  }
  Tensor RandomLabels(int64_t batch, int64_t classes) {
    Tensor labels(DType::kInt64, {batch});
    for (int64_t& label : labels.values<int64_t>()) {
      label = static_cast<int64_t>(Next()) % classes;
    }
    return labels;
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
  PreparedStep step_, plain_;
  std::vector<FeedShape> shapes_;
  std::vector<Tensor> feeds_, fetches_, nothing_;
  uint64_t state_ = 1;
};

void BenchModel(const Options& options, const std::string& model) {
  SetComputeThreads(options.threads);
  ModelStep step(model, options.batch, options.session);
  const bench::BlockTime time = bench::TimeSteps(
      [&](int64_t steps) { return Seconds([&] { step.Run(steps); }); },
      RulesFor(options));
  const double rate = 1 / time.seconds;
  const StepInfo info = step.info();
  Json passes = Json::object();  // rows of one name together
  double passes_ms = 0;
  for (const StepInfo::Pass& pass : info.passes) {
    const double before =
        passes.contains(pass.name) ? passes[pass.name]["ms"].get<double>() : 0;
    passes[pass.name] = {{"ms", before + pass.seconds * 1e3},
                         {"nodes", pass.nodes}};
    passes_ms += pass.seconds * 1e3;
  }
  Report(options,
         {{"bench", model},
          {"device", options.session.devices[0]},
          {"precision", NameOf(options.session.precision)},
          {"batch", options.batch},
          {"threads", options.threads},
          {"steps_a_block", time.steps},
          {"steps_per_second", rate},
          {"examples_per_second", rate * static_cast<double>(options.batch)},
          {"arena_bytes", info.arena_bytes},
          {"providers", info.ProviderCounts()},
          {"refused", info.Refusals()},
          {"why_not_captured", info.why_not_captured},
          {"passes_ms", passes_ms},
          {"passes", passes}});
}

int Serve(const Options& options, const std::string& model) {
  SetComputeThreads(options.threads);
  ModelStep step(model, options.batch, options.session);
  if (IsMnist(model)) step.Run(20);
  bench::WarmUp([&](int64_t s) { return Seconds([&] { step.Run(s); }); },
                RulesFor(options));
  std::cout << Json{{"ready", true}} << std::endl;
  std::string verb;
  int64_t steps = 0;
  while (std::cin >> verb >> steps) {
    if (verb != "run" || steps < 0) break;
    const double seconds = Seconds([&] { step.Run(steps); });
    std::cout << Json{{"seconds", seconds}, {"steps", steps}} << std::endl;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times whole steps");
  app.add_option("--model", options.model,
                 "Default: the executor and the MNIST networks")
      ->check(CLI::IsMember(kModels));
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "Most steps a block")
      ->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks)->check(CLI::PositiveNumber);
  app.add_option("--device", options.session.devices[0],
                 "/cpu:0, or a GPU such as /gpu:0");
  std::string precision = "fp32";
  app.add_option("--precision", precision)
      ->check(CLI::IsMember({"fp32", "tf32", "fp16", "bf16"}));
  app.add_flag("--fuse-statistics", options.session.fuse_statistics,
               "On a GPU, in fp16: convolutions sum what they make for the "
               "batch normalisation behind them");
  app.add_flag("--json", options.json, "One object a line");
  app.add_flag("--serve", options.serve, "Answer 'run N' lines on stdin");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  options.session.precision = ParsePrecision(precision).ValueOrThrow();
  const std::string& model = options.model;
  if (options.serve) return Serve(options, model.empty() ? "mnist_mlp" : model);
  if (!model.empty()) {
    BenchModel(options, model);
    return 0;
  }
  RegisterTrivialOp();
  BenchExecutor(options);
  for (const std::string& each : kModels) {
    if (IsMnist(each)) BenchModel(options, each);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("step_bench", sluice::Main, argc, argv);
}
