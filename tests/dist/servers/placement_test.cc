// What is on which parameter server: bytes in balance, slots beside their
// variables, gradients alone on the way, and the bits of one device.
#include "dist/servers/placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dist/servers/server.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/passes/passes.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/contributions.h"
#include "models/optim/optimizers.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/servers/on_servers.h"
#include "tests/support/error_text.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;

// A network of random widths, with normalisations, and its training.
struct Training {
  Graph graph;
  Output x, label, loss;
  Operation train;
  int64_t rows = 0, width = 0;

  Training(uint32_t seed, const Optimizer& optimizer) {
    std::mt19937 random(seed);
    const auto upto = [&](uint32_t n) {
      return 1 + static_cast<int64_t>(random() % n);
    };
    rows = 1 + upto(8);
    width = upto(20);
    x = graph.Placeholder("x", DType::kFloat32, {rows, width});
    label = graph.Placeholder("label", DType::kInt64, {rows});
    Scope root(graph);
    Output y = x;
    const int64_t layers = upto(4);
    for (int64_t i = 0; i < layers; ++i) {
      const Scope layer = root / ("fc" + std::to_string(i));
      y = layers::Dense(layer, y, {.units = upto(30)});
      if (random() % 2 == 0) {
        y = layers::BatchNorm(root / ("norm" + std::to_string(i)), y,
                              {.training = true, .activation = Relu});
      }
    }
    y = layers::Dense(root / "logits", y, {.units = 5});
    loss = Mean(SparseSoftmaxCrossEntropy(y, label));
    train = optimizer.Minimize(loss);
  }

  std::vector<Feed> Feeds(int step) const {
    Tensor image(DType::kFloat32, x.shape());
    Tensor classes(DType::kInt64, label.shape());
    std::mt19937 random(static_cast<uint32_t>(step));
    for (int64_t i = 0; i < image.elements(); ++i) {
      image.data<float>()[i] = static_cast<float>(random() % 1000) / 500 - 1;
    }
    for (int64_t i = 0; i < rows; ++i) {
      classes.data<int64_t>()[i] = static_cast<int64_t>(random() % 5);
    }
    return {{x, image}, {label, classes}};
  }
};

Optimizer OptimizerOf(uint32_t seed) {
  const Names names = {"sgd",  "momentum", "nesterov", "rmsprop", "adagrad",
                       "adam", "adamw",    "lars",     "lamb"};
  Optimizer optimizer = optimizers::ByName(names[seed % names.size()]);
  if (seed % 2 == 1) optimizer = optimizer.With(gradients::WeightDecay(0.01));
  if (seed % 3 == 1) {
    optimizer = optimizer.With(gradients::ClipByGlobalNorm(0.5));
  }
  if (seed % 4 == 1) optimizer = optimizer.WithAverages(0.9);
  if (seed % 5 == 1) {
    optimizer = optimizer.WithLearningRate(schedules::Cosine(0.1, 3, 0.01));
  }
  return optimizer;
}

bool IsPartOf(const Output& slot, const Output& variable) {
  return slot.name().starts_with(variable.name() + "/");
}

TEST_CASE("every optimizer trains on servers as it does on one device") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Optimizer optimizer = OptimizerOf(seed);
    const Training local(seed, optimizer);
    Session alone(local.graph);
    const std::vector<Tensor> wanted = RunSteps(local, alone);

    Training spread(seed, optimizer);
    const Names servers = Cpus(1 + static_cast<int>(seed / 9 % 3));
    ThrowIfError(PlaceOnServers(spread.graph, kWorker, servers));
    if (seed % 2 == 0) {
      CountLast(spread.train, GlobalStep(spread.graph));
    }
    SessionOptions options = On(servers);
    Session session(spread.graph, options);
    CheckSame(RunSteps(spread, session), wanted);
  }
}

TEST_CASE("and on servers that are other tasks") {
  const Workers workers(3, Transport::kTcp);
  for (uint32_t seed = 0; seed < 27; ++seed) {
    CAPTURE(seed);
    Names servers;
    for (int task = 0; task < 1 + static_cast<int>(seed / 9 % 3); ++task) {
      servers.push_back(WorkerName(task) + "/cpu:0");
    }
    const Optimizer optimizer = OptimizerOf(seed);
    const Training local(seed, optimizer);
    Session alone(local.graph);
    const std::vector<Tensor> wanted = RunSteps(local, alone);

    Training spread(seed, optimizer);
    ThrowIfError(PlaceOnServers(spread.graph, kWorker, servers));
    CountLast(spread.train, GlobalStep(spread.graph));
    SessionOptions options = On(servers);
    options.cluster = workers.Master();
    options.container = std::to_string(seed);
    Session session(spread.graph, options);
    CheckSame(RunSteps(spread, session), wanted);
  }
}

TEST_CASE("servers hold as much, within the largest variable and its slots") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Training training(seed, OptimizerOf(seed)), again(seed, OptimizerOf(seed));
    const Names servers = Cpus(1 + static_cast<int>(seed % 4));
    ThrowIfError(PlaceOnServers(training.graph, kWorker, servers));
    ThrowIfError(PlaceOnServers(again.graph, kWorker, servers));
    std::map<std::string, int64_t> held;
    for (const std::string& server : servers) held[server] = 0;
    int64_t largest = 0;
    const std::vector<Output> variables = training.graph.Variables();
    for (const Output& variable : variables) {
      const std::string& device = variable.node().device();
      REQUIRE(held.contains(device));
      CHECK(again.graph.Find(variable.name())->device() == device);
      held[device] += BytesOf(variable);
      int64_t with_slots = BytesOf(variable);
      for (const Output& slot : variables) {
        if (!IsPartOf(slot, variable)) continue;
        CHECK(slot.node().device() == device);
        with_slots += BytesOf(slot);
      }
      largest = std::max(largest, with_slots);
    }
    const auto [least, most] = std::minmax_element(
        held.begin(), held.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    CHECK(most->second - least->second <= largest);
  }
}

TEST_CASE("values come and gradients go, no activation") {
  constexpr uint32_t kSeeds = 30;
  uint32_t gradients = 0, updates = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    // Rows differ from all widths, so that they tell an activation.
    Training training(seed, OptimizerOf(seed));
    ThrowIfError(PlaceOnServers(training.graph, kWorker, Cpus(2)));
    for (const auto& node : training.graph.nodes()) {
      for (const Output& input : node->inputs()) {
        const Node& from = input.node();
        if (from.device() != kWorker || node->device() == kWorker) continue;
        if (from.IsConstant()) continue;
        CAPTURE(node->Describe());
        CAPTURE(input.name());
        gradients += input.shape().scalar() ? 0 : 1;
        // What a variable of that shape takes, or a scalar.
        const auto variables = training.graph.Variables();
        CHECK((input.shape().scalar() ||
               std::any_of(variables.begin(), variables.end(),
                           [&](const Output& variable) {
                             return variable.node().device() ==
                                        node->device() &&
                                    variable.shape() == input.shape();
                           })));
      }
      if (node->mutates() == 0) continue;
      ++updates;
      CHECK(node->device() == node->input(0).node().device());
    }
  }
  // At least those of the weights and offsets of one layer.
  CHECK(gradients >= 2 * kSeeds);
  CHECK(updates >= 2 * kSeeds);
}

// Places for contributions are beside what they are for, and what is made of
// them, norms and averages too, does not go back to a worker.
TEST_CASE("contributions stay where they came to") {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    Training training(
        seed, OptimizerOf(seed)
                  .With(gradients::ClipByGlobalNorm(0.1))
                  .WithAllReduce(
                      {.shared = true, .workers = 3, .contributed = true}));
    Graph& graph = training.graph;
    const Output admitted = AdmittedWorkers(graph);
    const Output weight = AdmittedWeight(graph);
    ThrowIfError(
        PlaceOnServers(graph, kWorker, Cpus(2), {}, {admitted, weight}));
    int places = 0;
    std::set<const Node*> made;  // of contributions
    for (const Node* node : graph.TopologicalOrder()) {
      if (IsContribution(node->name())) {
        ++places;
        made.insert(node);
        const Node* const owner =
            graph.Find(node->name().substr(0, node->name().rfind('/')));
        REQUIRE(owner != nullptr);
        CHECK(node->device() == owner->device());
        continue;
      }
      const auto& inputs = node->inputs();
      if (std::any_of(inputs.begin(), inputs.end(), [&](const Output& input) {
            return made.contains(&input.node());
          })) {
        made.insert(node);
        CAPTURE(node->Describe());
        CHECK(node->device() != kWorker);
      }
    }
    CHECK(places > 0);
    CHECK(places % 3 == 0);
    for (int rank = 0; rank < 3; ++rank) {
      for (const Node* write :
           ContributionOf(graph, rank).node().control_inputs()) {
        CHECK(write->Is("Assign"));
        CHECK(write->input(0).name().ends_with("_" + std::to_string(rank)));
      }
    }
  }
}

// Lookups in two large tables, one of them twice, and a layer behind them.
struct Words {
  Graph graph;
  Output ids, other_ids;
  Output loss;
  Operation train;
  static constexpr int64_t kRows = 5000;

  explicit Words(const Optimizer& optimizer) {
    ids = graph.Placeholder("ids", DType::kInt64, {6});
    other_ids = graph.Placeholder("other_ids", DType::kInt32, {6, 2});
    Scope root(graph);
    const Output words =
        graph.Variable("words", initializers::Uniform(-1, 1)({kRows, 3}));
    const Output letters = layers::Embedding(root / "letters", other_ids,
                                             {.size = kRows, .dimensions = 2});
    const Output x = Concat(
        {EmbeddingLookup(words, ids),
         EmbeddingLookup(words, Mod(ids * 7, kRows)), Reshape(letters, {6, 4})},
        1);
    loss = Mean(Square(layers::Dense(root / "fc", x, {.units = 2}) - 1));
    train = optimizer.Minimize(loss);
  }
  std::vector<Feed> Feeds(int step) const {
    std::mt19937 random(static_cast<uint32_t>(step));
    Tensor a(DType::kInt64, ids.shape()), b(DType::kInt32, other_ids.shape());
    for (int64_t& i : a.values<int64_t>()) i = random() % (kRows / (step + 1));
    for (int32_t& i : b.values<int32_t>())
      i = static_cast<int32_t>(random() % 9);
    return {{ids, a}, {other_ids, b}};
  }
};

TEST_CASE("of tables rows come and go") {
  const Workers workers(2, Transport::kTcp);
  const std::vector<Optimizer> all = {
      optimizers::Sgd(0.1), optimizers::Adagrad(0.1),
      optimizers::Sgd(0.1).WithLossScaling(),
      optimizers::Momentum(0.1).WithSparseRows("words,letters/*"),
      optimizers::Adam(0.1)
          .WithSparseRows("words,letters/*")
          .With(gradients::ClipByGlobalNorm(0.5))};
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const Words local(all[i]);
    Session alone(local.graph);
    const std::vector<Tensor> wanted = RunSteps(local, alone);
    for (const bool tasks : {false, true}) {
      CAPTURE(tasks);
      Words spread(all[i]);
      const Names servers =
          tasks ? Names{WorkerName(0) + "/cpu:0", WorkerName(1) + "/cpu:0"}
                : Cpus(2);
      ThrowIfError(PlaceOnServers(spread.graph, kWorker, servers));
      for (const auto& node : spread.graph.nodes()) {
        for (const Output& input : node->inputs()) {
          if (input.node().device() == node->device()) continue;
          CAPTURE(node->Describe());
          CAPTURE(input.name());
          CHECK((!input.shape().concrete() ||
                 input.shape().elements() < Words::kRows));
        }
      }
      SessionOptions options = On(servers);
      if (tasks) options.cluster = workers.Master();
      options.container = std::to_string(i);
      Session session(spread.graph, options);
      CheckSame(RunSteps(spread, session), wanted);
    }
  }
}

// Names alone: who computes there is in tests/kernels/cuda.
TEST_CASE("on GPUs of servers, but tables on the CPUs beside") {
  const std::string task = "/job:ps/task:";
  const Names servers = {task + "0/gpu:0", task + "1/gpu:1"};
  const Names hosts = {task + "0/cpu:0", task + "1/cpu:0"};
  Words words(optimizers::Adam(0.1).WithSparseRows("words,letters/*"));
  ThrowIfError(PlaceOnServers(words.graph, kWorker, servers, {.tables = 4096}));
  int tables = 0, others = 0;
  for (const Output& variable : words.graph.Variables()) {
    CAPTURE(variable.name());
    if (SpreadsRows(variable.node())) {
      ++tables;
      for (size_t i = 0; i < 2; ++i) {
        CHECK(PiecesOf(variable.node())[i].device == hosts[i]);
      }
    } else {
      ++others;
      CHECK(std::count(servers.begin(), servers.end(),
                       variable.node().device()) == 1);
    }
  }
  CHECK(tables > 0);
  CHECK(others > 0);
}

// Rows of a piece on a GPU could not be counted there.
TEST_CASE("a table that is updated whole is on one GPU, other variables cut") {
  const std::string task = "/job:ps/task:";
  const Names servers = {task + "0/gpu:0", task + "1/gpu:1"};
  for (const Optimizer& optimizer :
       {optimizers::Adam(0.1),
        optimizers::Adagrad(0.1).With(gradients::WeightDecay(0.01))}) {
    Words words(optimizer);
    ThrowIfError(PlaceOnServers(words.graph, kWorker, servers, {.dense = 1}));
    int cut = 0;
    for (const Output& variable : words.graph.Variables()) {
      CAPTURE(variable.name());
      if (variable.shape().rank() == 2 && variable.shape()[0] == Words::kRows) {
        CHECK(!SpreadsRows(variable.node()));
        CHECK(std::count(servers.begin(), servers.end(),
                         variable.node().device()) == 1);
      }
      for (const RowPiece& piece : PiecesOf(variable.node())) {
        CHECK(std::count(servers.begin(), servers.end(), piece.device) == 1);
        ++cut;
      }
    }
    CHECK(cut > 0);
    StepRequest request;
    for (const Output& fed : {words.ids, words.other_ids}) {
      request.feeds.push_back({fed, fed.shape()});
    }
    request.fetches = {words.loss};
    request.targets = {words.train};
    const auto step = ExtractStep(words.graph, request).ValueOrThrow();
    ThrowIfError(passes::Refine(*step, FoldNode));
    const Status divided = passes::SpreadVariables(*step);
    CAPTURE(divided.message());
    CHECK(divided.ok());
  }
}

TEST_CASE("each server of a host has another GPU") {
  LaunchInfo info;
  info.servers = {{"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}, {"b", 2}};
  Names cpus, gpus;
  for (int server = 0; server < 5; ++server) {
    cpus.push_back(DeviceOfServer(info, server, DeviceType::kCpu));
    gpus.push_back(DeviceOfServer(info, server, DeviceType::kCuda));
  }
  CHECK(cpus == Names(5, "/cpu:0"));
  CHECK(gpus == Names{"/gpu:0", "/gpu:0", "/gpu:1", "/gpu:2", "/gpu:1"});
}

TEST_CASE("a device that is neither is refused; a server that is asked for") {
  Graph graph;
  Output there;
  {
    const DeviceScope second(graph, "/cpu:2");
    there = graph.Variable("there", Zeros({100}));
  }
  const Output other = graph.Variable("other", Zeros({10}));
  REQUIRE(PlaceOnServers(graph, kWorker, Cpus(2)).ok());
  CHECK(there.node().device() == "/cpu:2");
  CHECK(other.node().device() == "/cpu:1");
  const Status refused = PlaceOnServers(graph, kWorker, Cpus(1));
  CHECK(Contains(refused.message(), "Variable 'there'"));
  CHECK(Contains(refused.message(), "'/cpu:2'"));
  CHECK_FALSE(PlaceOnServers(graph, kWorker, {}).ok());
}

}  // namespace
}  // namespace sluice::dist::testing
