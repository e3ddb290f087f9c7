// Large tables cut by rows over servers: the bits of one device, from the first
// values on, whatever their shapes, optimizers and number; each server with its
// share and never more; and as wholes, or by rows, for who reads and writes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dist/servers/placement.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/servers/on_servers.h"
#include "tests/support/error_text.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;
using sluice::testing::ErrorOf;

Optimizer SomeOptimizer(std::mt19937& random) {
  switch (random() % 6) {
    case 0:
      return optimizers::Sgd(0.1).WithLossScaling({.initial = 8});
    case 1:
      return optimizers::Adagrad(0.1);
    case 2:
      return optimizers::Momentum(0.1).WithSparseRows("table*");
    case 3:
      return optimizers::RmsProp(0.1, {.epsilon = 1e-3})
          .WithSparseRows("table*");
    case 4:
      return optimizers::Adam(0.1).WithSparseRows("table*").With(
          gradients::ClipByGlobalNorm(0.5));
    default:
      return optimizers::AdamW(0.1).WithSparseRows("table*");
  }
}

// Every kind of first value: drawn, computed of what is drawn, constant, given,
// and one that is no row by row.
Initializer SomeValue(std::mt19937& random, const Shape& shape) {
  const uint32_t kind = random() % 6;
  switch (kind) {
    case 0:
      return initializers::Uniform(-1, 1)(shape);
    case 1:
      return initializers::Normal(0.5)(shape);
    case 2:
      return initializers::TruncatedNormal(0.5, 1)(shape);
    default:
      return OtherValue(kind - 3, random, shape, 1);
  }
}

// Some tables, each read by one or more Gathers of ids of either dtype.
struct Program {
  Graph graph;
  std::vector<Output> ids;
  std::vector<int64_t> rows;  // of the table that each is of
  Output loss;
  Operation train;

  explicit Program(uint32_t seed) {
    std::mt19937 random(seed);
    const auto upto = [&](uint32_t n) {
      return 1 + static_cast<int64_t>(random() % n);
    };
    Scope root(graph);
    std::vector<Output> parts;
    const int64_t batch = upto(6);
    const int64_t tables = upto(3);
    for (int64_t t = 0; t < tables; ++t) {
      Shape shape = {4 + upto(t == 0 ? 4 : 60)};
      for (int64_t d = upto(3); d > 1; --d) shape.push_back(upto(4));
      const Output table =
          graph.Variable("table" + std::to_string(t), SomeValue(random, shape));
      for (int64_t reads = upto(2); reads > 0; --reads) {
        Shape taken = {batch};
        if (random() % 2 == 0) taken.push_back(upto(3));
        ids.push_back(graph.Placeholder(
            "ids" + std::to_string(ids.size()),
            random() % 2 == 0 ? DType::kInt64 : DType::kInt32, taken));
        rows.push_back(shape[0]);
        const Output got = Gather(table, ids.back());
        parts.push_back(Reshape(got, {batch, got.shape().elements() / batch}));
      }
    }
    const Output y = layers::Dense(root / "fc", Concat(parts, 1), {.units = 2});
    loss = Mean(Square(y - 1));
    train = SomeOptimizer(random).Minimize(loss);
  }

  std::vector<Feed> Feeds(int step) const {
    std::mt19937 random(static_cast<uint32_t>(step));
    std::vector<Feed> feeds;
    for (size_t i = 0; i < ids.size(); ++i) {
      Tensor some(DType::kInt64, ids[i].shape());
      for (int64_t& id : some.values<int64_t>()) {
        id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows[i]));
      }
      feeds.push_back({ids[i], some.Cast(ids[i].dtype())});
    }
    return feeds;
  }
};

TEST_CASE("tables over any number of servers have one device's bits") {
  int spread_in_all = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    spread_in_all += CheckOneDevicesBits<Program>(
        seed, {.tables = 1}, On(Cpus(1 + static_cast<int>(seed % 5))));
  }
  CHECK(spread_in_all > 100);
}

TEST_CASE("and where servers are other tasks") {
  const Workers workers(3, Transport::kTcp);
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    CheckOneDevicesBits<Program>(
        seed, {.tables = 1},
        OnTasks(workers, 1 + static_cast<int>(seed % 3), seed));
  }
}

// What is read and written in between, by rows and as a whole, against an
// array.
TEST_CASE("a session has a table as one variable") {
  const Workers workers(2, Transport::kTcp);
  std::mt19937 random(5);
  for (const bool tasks : {false, true}) {
    CAPTURE(tasks);
    Graph graph;
    constexpr int64_t kRows = 23;
    const Output table = graph.Variable("table", Zeros({kRows, 3}));
    const Output plain = graph.Variable("plain", Zeros({kRows, 3}));
    const Names servers =
        tasks ? Names{WorkerName(0) + "/cpu:0", WorkerName(1) + "/cpu:0"}
              : Cpus(2);
    SpreadRows(table.node(), servers);
    plain.node().set_device(servers[1]);
    SessionOptions options = On(servers);
    if (tasks) options.cluster = workers.Master();
    options.container = "one variable";
    Session session(graph, options);
    for (const Output& variable : {table, plain}) {
      CAPTURE(variable.name());
      CHECK(!session.IsInitialized(variable));
      Tensor whole(DType::kFloat32, {kRows, 3});
      Tensor some(DType::kFloat32, {2, 3});
      CHECK(Contains(ErrorOf([&] { session.Read(variable); }),
                     "not initialised"));
      CHECK(Contains(ErrorOf([&] { session.WriteRows(variable, 0, some); }),
                     "not initialised"));
      for (float& x : whole.values<float>()) x = static_cast<float>(random());
      session.Write(variable, whole);
      CHECK(session.IsInitialized(variable));
      for (int i = 0; i < 40; ++i) {
        const auto begin = static_cast<int64_t>(random() % (kRows + 1));
        const auto count = static_cast<int64_t>(
            random() % static_cast<uint64_t>(kRows + 1 - begin));
        Tensor rows(DType::kFloat32, {count, 3});
        if (random() % 2 == 0) {
          for (float& x : rows.values<float>())
            x = static_cast<float>(random());
          session.WriteRows(variable, begin, rows);
          std::copy_n(rows.data<float>(), 3 * count,
                      whole.data<float>() + 3 * begin);
        } else {
          session.ReadRows(variable, begin, &rows);
          CHECK(rows.BitEqual(whole.Rows(begin, begin + count)));
        }
      }
      CHECK(session.Read(variable).BitEqual(whole));
      CHECK(session
                .Run({}, Gather(variable, graph.Constant(Tensor::Array<int64_t>(
                                              {4}, {22, 0, 11, 12}))))
                .Rows(0, 1)
                .BitEqual(whole.Rows(22, 23)));
      CHECK(session.Run({}, variable).BitEqual(whole));
      for (const auto& [begin, count] :
           {std::pair<int64_t, int64_t>{-1, 2}, {22, 2}, {24, 0}, {1, 23}}) {
        Tensor rows(DType::kFloat32, {count, 3});
        CHECK(ErrorOf([&] { session.ReadRows(variable, begin, &rows); }) !=
              "(no error)");
        CHECK(ErrorOf([&] { session.WriteRows(variable, begin, rows); }) !=
              "(no error)");
      }
      Tensor other(DType::kFloat64, {2, 3}), wide(DType::kFloat32, {2, 4});
      CHECK(ErrorOf([&] { session.ReadRows(variable, 0, &other); }) !=
            "(no error)");
      CHECK(ErrorOf([&] { session.WriteRows(variable, 0, wide); }) !=
            "(no error)");
      CHECK(session.Read(variable).BitEqual(whole));
    }
  }
}

TEST_CASE("an id that is no row is an error, wherever it would be") {
  for (const int servers : {1, 2, 3}) {
    for (const int64_t bad :
         {int64_t{-1}, int64_t{40}, int64_t{-41}, int64_t{1} << 40}) {
      CAPTURE(servers);
      CAPTURE(bad);
      Graph graph;
      const Output ids = graph.Placeholder("ids", DType::kInt64, {2});
      const Output table = graph.Variable("table", Zeros({40, 3}));
      SpreadRows(table.node(), Cpus(servers));
      const Output rows = Gather(table, ids);
      SessionOptions options = On(Cpus(servers));
      Session session(graph, options);
      session.Initialize();
      CHECK(session.Run({{ids, Tensor::Array<int64_t>({2}, {39, 0})}}, rows)
                .elements() == 6);
      CHECK(Contains(
          ErrorOf([&] {
            session.Run({{ids, Tensor::Array<int64_t>({2}, {39, bad})}}, rows);
          }),
          "index " + std::to_string(bad) + " (element 1 of the indices)"));
    }
  }
}

TEST_CASE("who needs a whole table joins it") {
  Graph graph;
  const Output table = graph.Variable("table", Ones({40, 3}));
  const Output sum = Sum(table);
  const Output more = AssignAdd(table, Fill(graph, {40, 3}, 1));
  SpreadRows(table.node(), Cpus(2));
  SessionOptions options;
  options.devices = {kWorker, "/cpu:1", "/cpu:2"};
  Session session(graph, options);
  session.Initialize();
  CHECK(session.Run({}, more).BitEqual(
      Tensor::Full(DType::kFloat32, {40, 3}, 2)));
  CHECK(session.Run({}, sum).At(0) == 240);
}

TEST_CASE("an update of variables that are not cut alike names one") {
  Graph graph;
  const Output table = graph.Variable("table", Ones({40, 3}));
  const Output velocity = graph.Variable("velocity", Ones({40, 3}));
  const Output update =
      ApplyMomentum(table, velocity, 0.1, Fill(graph, {40, 3}, 1));
  SpreadRows(table.node(), Cpus(2));
  SessionOptions options;
  options.devices = {kWorker, "/cpu:1", "/cpu:2"};
  Session session(graph, options);
  session.Initialize();
  const std::string error = ErrorOf([&] { session.Run({}, update); });
  CAPTURE(error);
  CHECK(Contains(error, "the rows of 'table' are on several devices"));
}

// Where what counts them would fetch each piece as a whole.
TEST_CASE("rows of a table on several GPUs are refused") {
  for (const bool updates : {false, true}) {
    CAPTURE(updates);
    Graph graph;
    const Output ids = graph.Placeholder("ids", DType::kInt64, {2});
    const Output table = graph.Variable("table", Ones({40, 3}));
    if (updates) {
      ApplySgd(table, 0.1, Fill(graph, {2, 3}, 1), ids);
    } else {
      Gather(table, ids);
    }
    SpreadRows(table.node(), {"/gpu:0", "/gpu:1"});
    const Status refused = passes::SpreadVariables(graph);
    CHECK(refused.code() == Code::kUnimplemented);
    CHECK(Contains(refused.message(), "are on /gpu:0: put them on CPUs"));
  }
}

// Rows count as the bytes of those who have them.
TEST_CASE("servers hold as much, within a dense variable and a few rows") {
  std::mt19937 random(9);
  for (int trial = 0; trial < 40; ++trial) {
    CAPTURE(trial);
    Program program(static_cast<uint32_t>(trial));
    const int64_t from = static_cast<int64_t>(random() % 3000);
    const Names servers = Cpus(1 + static_cast<int>(random() % 5));
    ThrowIfError(
        PlaceOnServers(program.graph, kWorker, servers, {.tables = from}));
    std::map<std::string, int64_t> held;
    for (const std::string& server : servers) held[server] = 0;
    int64_t dense = 0, unit = 0;
    std::map<std::string, int64_t> groups;
    for (const Output& variable : program.graph.Variables()) {
      const auto bytes = variable.shape().elements() *
                         static_cast<int64_t>(SizeOf(variable.dtype()));
      const std::string owner =
          variable.name().substr(0, variable.name().find('/'));
      groups[owner] += bytes;
      if (!SpreadsRows(variable.node())) {
        held[variable.node().device()] += bytes;
        continue;
      }
      const int64_t row = bytes / variable.shape()[0];
      unit += 4 * row;
      int64_t next = 0;
      for (const RowPiece& piece : PiecesOf(variable.node())) {
        CHECK(piece.begin == next);
        CHECK(piece.end > piece.begin);
        next = piece.end;
        held[piece.device] += row * (piece.end - piece.begin);
      }
      CHECK(next == variable.shape()[0]);
    }
    for (const Output& variable : program.graph.Variables()) {
      const std::string owner =
          variable.name().substr(0, variable.name().find('/'));
      if (SpreadsRows(variable.node())) {
        CHECK(groups[owner] >= from);
      } else {
        dense = std::max(dense, groups[owner]);
      }
    }
    const auto [least, most] = std::minmax_element(
        held.begin(), held.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    // A table of few rows is on few servers.
    const bool small = std::any_of(
        program.rows.begin(), program.rows.end(), [&](int64_t rows) {
          return rows < 4 * static_cast<int64_t>(servers.size());
        });
    if (!small) CHECK(most->second - least->second <= dense + 2 * unit);
  }
}

// Of too few rows for all servers: those that have some have less of the rest.
TEST_CASE("a piece counts where it is") {
  Graph graph;
  const Output table = graph.Variable("table", Zeros({7, 100}));
  const Output rows =
      Gather(table, graph.Placeholder("ids", DType::kInt64, {2}));
  std::vector<Output> dense;
  for (int i = 0; i < 6; ++i) {
    dense.push_back(graph.Variable("dense" + std::to_string(i), Zeros({100})));
  }
  REQUIRE(PlaceOnServers(graph, kWorker, Cpus(2), {.tables = 2000}).ok());
  REQUIRE(PiecesOf(table.node()).size() == 1);
  CHECK(PiecesOf(table.node())[0].device == "/cpu:1");
  for (const Output& variable : dense) {
    CHECK(variable.node().device() == "/cpu:2");
  }
  CHECK(rows.node().device() == "/cpu:1");
}

}  // namespace
}  // namespace sluice::dist::testing
