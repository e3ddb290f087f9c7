// Large dense variables cut by rows over servers: the bits of one device, from
// the first values on, whatever their shapes, optimizers and number; each
// server with its share; and cut only where no server has to join them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dist/servers/placement.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/passes/passes.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/nn/initializers.h"
#include "models/optim/contributions.h"
#include "models/optim/optimizers.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/servers/on_servers.h"

namespace sluice::dist::testing {
namespace {

Optimizer SomeOptimizer(std::mt19937& random) {
  const Names names = {"sgd",  "momentum", "nesterov", "rmsprop", "adagrad",
                       "adam", "adamw",    "lars",     "lamb"};
  Optimizer optimizer = optimizers::ByName(names[random() % names.size()]);
  const auto draw = [&](uint32_t n) { return random() % n == 0; };
  if (draw(3)) optimizer = optimizer.With(gradients::WeightDecay(0.01));
  if (draw(4)) optimizer = optimizer.With(gradients::Accumulate(2));
  if (draw(4)) optimizer = optimizer.With(gradients::ClipByGlobalNorm(0.5));
  if (draw(6)) optimizer = optimizer.With(gradients::ClipByNorm(0.1));
  if (draw(6)) optimizer = optimizer.With(gradients::ClipByValue(0.01));
  if (draw(3)) optimizer = optimizer.WithAverages(0.9);
  if (draw(4)) optimizer = optimizer.WithLossScaling({.initial = 8});
  if (draw(4)) optimizer = optimizer.WithRateFactor("part*", 0.5);
  return optimizer;
}

// Drawn, computed of what is drawn, constant, given, and one that is no row by
// row.
Initializer SomeValue(std::mt19937& random, const Shape& shape) {
  const uint32_t kind = random() % 6;
  switch (kind) {
    case 0:
      return initializers::GlorotUniform()(shape);
    case 1:
      return initializers::HeNormal()(shape);
    case 2:
      return initializers::Constant(0.25)(shape);
    default:
      return OtherValue(kind - 3, random, shape, 0.1);
  }
}

// A network of random variables: matrices, a vector, one of three dimensions, a
// table that is read by rows and as a matrix, one of no rows.
struct Program {
  Graph graph;
  Output x, ids, loss;
  Operation train;
  int64_t batch = 0, width = 0, words = 0;

  explicit Program(uint32_t seed, const AllReduceOptions* reduce = nullptr) {
    std::mt19937 random(seed);
    const auto upto = [&](uint32_t n) {
      return 1 + static_cast<int64_t>(random() % n);
    };
    batch = 1 + upto(5);
    width = upto(40);
    words = upto(50);
    x = graph.Placeholder("x", DType::kFloat32, {batch, width});
    ids = graph.Placeholder("ids", DType::kInt64, {batch});
    Output y = x;
    const int64_t layers = upto(3);
    for (int64_t i = 0; i < layers; ++i) {
      const Shape shape = {y.shape()[1], upto(40)};
      y = Tanh(MatMul(y, graph.Variable("part" + std::to_string(i),
                                        SomeValue(random, shape))));
      if (random() % 2 == 0) {
        y = y + graph.Variable("shift" + std::to_string(i),
                               SomeValue(random, {shape[1]}));
      }
    }
    if (random() % 2 == 0) {
      const int64_t dimensions = y.shape()[1];
      const Output table =
          graph.Variable("words", SomeValue(random, {words, dimensions}));
      y = y + Gather(table, ids);
      if (random() % 2 == 0) y = MatMul(y, Transpose(table, {}));
    }
    Output more = Sum(Square(y));
    if (random() % 2 == 0) {
      more = more + Sum(Tanh(graph.Variable(
                        "cube", SomeValue(random, {upto(20), upto(3), 2}))));
    }
    if (random() % 3 == 0) {
      more = more + Sum(graph.Variable("none", Zeros({0, upto(4)})));
    }
    loss = more / static_cast<double>(batch);
    Optimizer optimizer = SomeOptimizer(random);
    if (reduce != nullptr) optimizer = optimizer.WithAllReduce(*reduce);
    train = optimizer.Minimize(loss);
  }

  std::vector<Feed> Feeds(int step) const {
    std::mt19937 random(static_cast<uint32_t>(step));
    Tensor values(DType::kFloat32, x.shape()), rows(DType::kInt64, {batch});
    for (float& value : values.values<float>()) {
      value = static_cast<float>(random() % 1000) / 500 - 1;
    }
    for (int64_t& row : rows.values<int64_t>()) {
      row = static_cast<int64_t>(random() % static_cast<uint64_t>(words));
    }
    return {{x, values}, {ids, rows}};
  }
};

TEST_CASE("over any number of servers they have one device's bits") {
  int spread_in_all = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    SessionOptions options = On(Cpus(2 + static_cast<int>(seed % 4)));
    options.simplify = seed % 5 > 0;
    options.fuse = seed % 7 > 0;
    spread_in_all += CheckOneDevicesBits<Program>(seed, {.dense = 1}, options);
  }
  CHECK(spread_in_all > 400);
}

TEST_CASE("and where servers are other tasks") {
  const Workers workers(3, Transport::kTcp);
  for (uint32_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    CheckOneDevicesBits<Program>(
        seed, {.dense = 1},
        OnTasks(workers, 2 + static_cast<int>(seed % 2), seed));
  }
}

// Rows count as the bytes of those who have them.
TEST_CASE("servers hold as much, within the largest that is whole") {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Program program(seed), again(seed);
    std::mt19937 random(seed);
    const Names servers = Cpus(2 + static_cast<int>(random() % 4));
    const CutFrom from = {.dense = 1 + static_cast<int64_t>(random() % 3000)};
    ThrowIfError(PlaceOnServers(program.graph, kWorker, servers, from));
    ThrowIfError(PlaceOnServers(again.graph, kWorker, servers, from));
    std::map<std::string, int64_t> held, groups;
    for (const std::string& server : servers) held[server] = 0;
    const auto owner = [](const Output& variable) {
      return variable.name().substr(0, variable.name().find('/'));
    };
    const std::vector<Output> variables = program.graph.Variables();
    for (const Output& variable : variables) {
      groups[owner(variable)] += BytesOf(variable);
    }
    int64_t whole = 0, units = 0, few = 0;
    for (const Output& variable : variables) {
      const Node& node = variable.node();
      const Node& other = *again.graph.Find(variable.name());
      CHECK(other.device() == node.device());
      CHECK(SpreadsRows(other) == SpreadsRows(node));
      if (!SpreadsRows(node)) {
        REQUIRE(held.contains(node.device()));
        held[node.device()] += BytesOf(variable);
        whole = std::max(whole, groups[owner(variable)]);
        continue;
      }
      CHECK(groups[owner(variable)] >= *from.dense);
      const int64_t rows = variable.shape()[0];
      const int64_t row = BytesOf(variable) / rows;
      int64_t next = 0;
      const std::vector<RowPiece> pieces = PiecesOf(node);
      CHECK(pieces.size() > 1);
      for (const RowPiece& piece : pieces) {
        CHECK(piece.begin == next);
        CHECK(piece.end > piece.begin);
        next = piece.end;
        REQUIRE(held.contains(piece.device));
        held[piece.device] += row * (piece.end - piece.begin);
      }
      CHECK(next == rows);
      units += 8 * row;
      // Not as many rows as would be something for each: a server then has as
      // much of it as of one that is whole.
      if (pieces.size() < servers.size()) {
        few = std::max(few, groups[owner(variable)]);
      }
    }
    const auto [least, most] = std::minmax_element(
        held.begin(), held.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    CHECK(most->second - least->second <= std::max(whole, few) + units);
  }
}

// VGG's last layers on four servers, by what serves balance.
TEST_CASE("what is most of a server's share is cut, the rest is not") {
  Graph graph;
  std::map<std::string, Shape> shapes = {
      {"fc6", {25088, 4096}}, {"fc7", {4096, 4096}}, {"fc8", {4096, 1000}}};
  for (int i = 0; i < 6; ++i) {
    shapes["conv" + std::to_string(i)] = {3, 3, 512, 512};
  }
  for (const auto& [name, shape] : shapes) {
    const Output variable = graph.Variable(name, Zeros(shape));
    AssignAdd(variable, Fill(graph, shape, 1));
  }
  const Names servers = Cpus(4);
  REQUIRE(PlaceOnServers(graph, kWorker, servers).ok());
  CHECK(SpreadsRows(*graph.Find("fc6")));
  CHECK(SpreadsRows(*graph.Find("fc7")));
  CHECK(!SpreadsRows(*graph.Find("fc8")));
  CHECK(!SpreadsRows(*graph.Find("conv0")));
  std::map<std::string, int64_t> held;
  int64_t all = 0;
  for (const Output& variable : graph.Variables()) {
    const Node& node = variable.node();
    all += BytesOf(variable);
    if (!SpreadsRows(node)) held[node.device()] += BytesOf(variable);
    for (const RowPiece& piece : PiecesOf(node)) {
      held[piece.device] +=
          BytesOf(variable) / variable.shape()[0] * (piece.end - piece.begin);
    }
  }
  for (const auto& [server, bytes] : held) {
    CAPTURE(server);
    CAPTURE(bytes);
    CHECK(std::abs(bytes - all / 4) <= all / 4 / 8);
  }
  // With one there is nothing to balance.
  Graph one;
  const Output large = one.Variable("large", Zeros({4096, 4096}));
  REQUIRE(PlaceOnServers(one, kWorker, Cpus(1)).ok());
  CHECK(!SpreadsRows(large.node()));
  CHECK(large.node().device() == "/cpu:1");
}

TEST_CASE("no first value is made as a whole") {
  constexpr int64_t kRows = 4096, kColumns = 1024;  // 16 MiB
  for (const initializers::Rule& rule :
       {initializers::GlorotUniform(), initializers::HeNormal(),
        initializers::Constant(0.5)}) {
    Graph graph;
    const Output matrix =
        graph.Variable("matrix", rule(Shape{kRows, kColumns}));
    Sum(matrix);
    ThrowIfError(PlaceOnServers(graph, kWorker, Cpus(2), {.dense = 1}));
    REQUIRE(SpreadsRows(matrix.node()));
    StepRequest request;
    for (Node* node : graph.Initializers()) request.targets.emplace_back(node);
    const auto step = ExtractStep(graph, request).ValueOrThrow();
    ThrowIfError(passes::Refine(*step, FoldNode));
    ThrowIfError(passes::SpreadVariables(*step));
    int made = 0;
    for (const auto& node : step->nodes()) {
      if (node->IsVariable() || node->mutates() > 0) continue;
      for (const TensorType& type : node->output_types()) {
        CAPTURE(node->Describe());
        CHECK(type.bytes() <= size_t{4} << 20);
        ++made;
      }
    }
    CHECK(made > 0);
  }
}

// Contributions are on the servers, whole gradients nowhere else: what needs
// their norm keeps its variable whole.
TEST_CASE("no server joins what is cut") {
  int cut = 0, kept = 0;
  const AllReduceOptions reduce = {
      .shared = true, .workers = 3, .contributed = true};
  for (uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Program program(seed, &reduce);
    Graph& graph = program.graph;
    const Output admitted = AdmittedWorkers(graph);
    const Output weight = AdmittedWeight(graph);
    const Names servers = Cpus(2 + static_cast<int>(seed % 3));
    ThrowIfError(PlaceOnServers(graph, kWorker, servers, {.dense = 1},
                                {admitted, weight}));
    // Nothing on a server reads one but element by element.
    bool norms = false;
    for (const auto& node : graph.nodes()) {
      norms |= node->Is("SquaredNorm") && node->device() != kWorker;
      if (node->device() == kWorker || node->device().empty()) continue;
      for (const Output& input : node->inputs()) {
        if (!SpreadsRows(input.node())) continue;
        CAPTURE(node->Describe());
        CHECK((node->op().elementwise || node->mutates() > 0 ||
               node->op().rows_taken != nullptr));
      }
    }
    const int spread = Spread(graph);
    cut += spread;
    if (norms) kept += spread == 0 ? 1 : 0;
    // What one has contributed alone is the mean, applied as by one device.
    const Program local(seed, &reduce);
    Session alone(local.graph);
    Session session(graph, On(servers));
    const auto run = [&](const Program& some, Session& in) {
      in.Initialize();
      const Operation of_1 = ContributionOf(some.graph, 1);
      for (int step = 0; step < 3; ++step) {
        in.Run(some.Feeds(step), std::vector<Output>{}, {of_1});
        Tensor who = Tensor::Zeros(DType::kFloat32, {3});
        who.data<float>()[1] = 1;
        in.Run({{AdmittedWorkers(some.graph), who},
                {AdmittedWeight(some.graph), Tensor::Scalar(1.0f)}},
               std::vector<Output>{}, {some.train});
      }
      std::vector<Tensor> values;
      for (const Output& variable : some.graph.Variables()) {
        values.push_back(in.Read(variable));
      }
      return values;
    };
    CheckSame(run(program, session), run(local, alone));
  }
  CHECK(cut > 100);
  CHECK(kept > 10);
}

}  // namespace
}  // namespace sluice::dist::testing
