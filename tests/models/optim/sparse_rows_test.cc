// Updates of the rows that a step has read: random programs of tables and
// lookups against loops in double, the bits of whole updates where they are
// promised, what stays as it is, memory, and what is refused.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>

#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/optimizer_formulas.h"
#include "tests/support/random.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Random;

namespace formulas = testing::formulas;
using formulas::Element;
using formulas::kRate;

struct Rule {
  const char* name;
  Optimizer optimizer;
  std::vector<std::string> slots;  // in the order a, b
  formulas::Formula formula;
};

std::vector<Rule> Rules() {
  using namespace optimizers;  // NOLINT
  return {
      {"sgd", Sgd(kRate), {}, formulas::Sgd},
      {"momentum",
       Momentum(kRate, 0.75),
       {"velocity"},
       formulas::Momentum(false)},
      {"nesterov",
       Nesterov(kRate, 0.75),
       {"velocity"},
       formulas::Momentum(true)},
      {"rmsprop",
       RmsProp(kRate, {.decay = 0.75, .momentum = 0.5, .epsilon = 0.5}),
       {"mean_square", "velocity"},
       formulas::RmsPropMomentum},
      {"adagrad",
       Adagrad(kRate, {.epsilon = 0.5}),
       {"accumulator"},
       formulas::Adagrad},
      {"adam",
       Adam(kRate, {.beta1 = 0.75, .beta2 = 0.875, .epsilon = 0.5}),
       {"m", "v"},
       formulas::Adam(0)},
      {"adamw",
       AdamW(kRate, {.weight_decay = 0.25,
                     .beta1 = 0.75,
                     .beta2 = 0.875,
                     .epsilon = 0.5}),
       {"m", "v"},
       formulas::Adam(0.25)},
  };
}

// A loss over lookups in some tables, and a dense variable beside them.
struct Program {
  struct Lookup {
    int table;
    Shape ids;
    DType dtype;
    double weight;
    bool from_the_end;  // the axis is written as a negative number
  };
  std::vector<Shape> tables;
  std::vector<Lookup> lookups;

  explicit Program(Random& random) {
    const int64_t n = random.Between(1, 3);
    for (int64_t i = 0; i < n; ++i) {
      Shape table{random.Between(1, 40)};
      for (int64_t d = random.Between(0, 2); d > 0; --d) {
        table.push_back(random.Between(1, random.Chance(4) ? 40 : 5));
      }
      tables.push_back(table);
      // At least one, or there is nothing to train.
      for (int64_t k = random.Between(1, 4); k > 0; --k) {
        Shape ids;
        for (int64_t d = random.Between(0, 2); d > 0; --d) {
          ids.push_back(random.Between(random.Chance(4) ? 0 : 1, 30));
        }
        lookups.push_back({static_cast<int>(i), ids,
                           random.Chance(2) ? DType::kInt32 : DType::kInt64,
                           random.Real(-1, 1), random.Chance(3)});
      }
    }
  }
};

Tensor Noise(Random& random, DType dtype, const Shape& shape) {
  Tensor t(DType::kFloat64, shape);
  for (double& v : t.values<double>()) v = random.Real(-1, 1);
  return t.Cast(dtype);
}

Tensor Ids(Random& random, const Program::Lookup& lookup, int64_t rows) {
  Tensor t(DType::kInt64, lookup.ids);
  // Few different ones at times, so that most are there several times.
  const int64_t last = random.Chance(2) ? std::min<int64_t>(rows, 3) : rows;
  for (int64_t& i : t.values<int64_t>()) i = random.Between(0, last - 1);
  return t.Cast(lookup.dtype);
}

struct Training {
  Graph graph;
  std::vector<Output> tables, ids;
  Operation train;

  // A slice x of lookup k gives weight * (x^2 / 2 + x / 4) to the loss.
  Training(const Program& program, const std::vector<Tensor>& first,
           const Optimizer& optimizer) {
    const DType dtype = first[0].dtype();
    for (size_t i = 0; i < first.size(); ++i) {
      tables.push_back(
          graph.Variable(fmt::format("table{}", i), CopyOf(first[i])));
    }
    const Output bias = graph.Variable("bias", Zeros({}, dtype));
    Output loss = Square(bias - 1);
    for (const Program::Lookup& lookup : program.lookups) {
      ids.push_back(graph.Placeholder(fmt::format("ids{}", ids.size()),
                                      lookup.dtype, lookup.ids));
      const Output& table = tables[lookup.table];
      const Output x =
          Gather(table, ids.back(),
                 {.axis = lookup.from_the_end ? -table.shape().rank() : 0});
      loss = loss + lookup.weight * Sum(Square(x) / 2 + x / 4);
    }
    train = optimizer.Minimize(loss);
  }
  std::vector<Feed> Feeds(const std::vector<Tensor>& values) const {
    std::vector<Feed> feeds;
    for (size_t k = 0; k < ids.size(); ++k) {
      feeds.push_back({ids[k], values[k]});
    }
    return feeds;
  }
  int Count(std::string_view part) const {
    int n = 0;
    for (const auto& node : graph.nodes()) {
      n +=
          std::string_view(node->op().name).find(part) != std::string_view::npos
              ? 1
              : 0;
    }
    return n;
  }
};

int64_t Width(const Shape& table) {
  return table.elements(1, table.rank());
}

// Gradients by row, rows that were read alone.
std::map<int64_t, std::vector<double>> RowGradients(
    const Program& program, int table, const Tensor& value,
    const std::vector<Tensor>& ids) {
  const int64_t width = Width(program.tables[table]);
  std::map<int64_t, std::vector<double>> rows;
  for (size_t k = 0; k < ids.size(); ++k) {
    const Program::Lookup& lookup = program.lookups[k];
    if (lookup.table != table) continue;
    for (int64_t i = 0; i < ids[k].elements(); ++i) {
      const int64_t row = ids[k].IntAt(i);
      std::vector<double>& sum = rows[row];
      sum.resize(width);
      for (int64_t j = 0; j < width; ++j) {
        sum[j] += lookup.weight * (value.At(row * width + j) + 0.25);
      }
    }
  }
  return rows;
}

void CheckAgainstLoop(const Rule& rule, uint32_t seed, DType dtype) {
  Random random(seed);
  const Program program(random);
  std::vector<Tensor> now;
  for (const Shape& shape : program.tables) {
    now.push_back(Noise(random, dtype, shape));
  }
  Training training(program, now, rule.optimizer.WithSparseRows("table*"));
  REQUIRE(training.Count("ScatterAdd") == 0);
  Session session(training.graph);
  session.Initialize();
  const auto slot = [&](int table, const std::string& name) {
    return session.Read(
        training.graph.Get(fmt::format("table{}/{}", table, name)));
  };
  const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 2e-5;
  for (int step = 1; step <= 3; ++step) {
    std::vector<Tensor> ids;
    for (const auto& lookup : program.lookups) {
      ids.push_back(Ids(random, lookup, program.tables[lookup.table][0]));
    }
    const int tables = static_cast<int>(program.tables.size());
    std::vector<std::vector<Tensor>> slots(tables);
    for (int t = 0; t < tables; ++t) {
      for (const auto& name : rule.slots) slots[t].push_back(slot(t, name));
    }
    session.Run(training.Feeds(ids), training.train);
    for (int t = 0; t < tables; ++t) {
      CAPTURE(step);
      CAPTURE(t);
      const auto rows = RowGradients(program, t, now[t], ids);
      const Tensor after = session.Read(training.tables[t]);
      std::vector<Tensor> slots_after;
      for (const auto& name : rule.slots) slots_after.push_back(slot(t, name));
      const int64_t width = Width(program.tables[t]);
      for (int64_t row = 0; row < program.tables[t][0]; ++row) {
        const auto read = rows.find(row);
        if (read == rows.end()) {
          CHECK(after.Rows(row, row + 1).BitEqual(now[t].Rows(row, row + 1)));
          for (size_t s = 0; s < slots_after.size(); ++s) {
            CHECK(slots_after[s]
                      .Rows(row, row + 1)
                      .BitEqual(slots[t][s].Rows(row, row + 1)));
          }
          continue;
        }
        for (int64_t j = 0; j < width; ++j) {
          const int64_t i = row * width + j;
          const auto at = [&](size_t s) {
            return s < slots[t].size() ? slots[t][s].At(i) : 0;
          };
          Element e = {now[t].At(i), read->second[j], at(0), at(1),
                       static_cast<double>(step)};
          rule.formula(e);
          // An element of 1 and more terms: to that size.
          const double scale = 1 + std::abs(e.p) + std::abs(e.g);
          CHECK(std::abs(after.At(i) - e.p) <= tolerance * scale);
          for (size_t s = 0; s < slots_after.size(); ++s) {
            const double wanted = s == 0 ? e.a : e.b;
            CHECK(std::abs(slots_after[s].At(i) - wanted) <=
                  tolerance * (scale + std::abs(wanted) + e.g * e.g));
          }
        }
      }
      now[t] = after;
    }
  }
}

TEST_CASE("rows that are read are updated, others stay as they are") {
  const uint32_t programs = testing::Rounds(15u);
  for (const Rule& rule : Rules()) {
    for (uint32_t seed = 0; seed < programs; ++seed) {
      CAPTURE(rule.name);
      CAPTURE(seed);
      CheckAgainstLoop(rule, seed, DType::kFloat64);
      CheckAgainstLoop(rule, seed + 1000, DType::kFloat32);
    }
  }
}

// Sees whole gradients, and does nothing.
void Look(MinimizeContext&, std::vector<GradientAndVariable>&) {}

TEST_CASE("descent and Adagrad are by rows of themselves, to the bit") {
  for (uint32_t seed = 0; seed < testing::Rounds(60u); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Program program(random);
    std::vector<Tensor> first;
    for (const Shape& shape : program.tables) {
      first.push_back(Noise(random, DType::kFloat32, shape));
    }
    Optimizer optimizer =
        random.Chance(2) ? optimizers::Sgd(0.3) : optimizers::Adagrad(0.3);
    if (random.Chance(2)) optimizer = optimizer.WithLossScaling();
    if (random.Chance(3)) optimizer = optimizer.WithAverages(0.5);
    Training by_rows(program, first, optimizer);
    Training whole(program, first, optimizer.With(Look));
    CHECK(by_rows.Count("ScatterAdd") == 0);
    CHECK(by_rows.Count("Rows") > 0);
    CHECK(whole.Count("Rows") == 0);
    SetComputeThreads(static_cast<int>(random.Between(1, 2)));
    Session a(by_rows.graph), b(whole.graph);
    a.Initialize();
    b.Initialize();
    for (int step = 0; step < 4; ++step) {
      std::vector<Tensor> ids;
      for (const auto& lookup : program.lookups) {
        ids.push_back(Ids(random, lookup, program.tables[lookup.table][0]));
      }
      a.Run(by_rows.Feeds(ids), by_rows.train);
      b.Run(whole.Feeds(ids), whole.train);
    }
    for (const Output& variable : by_rows.graph.Variables()) {
      const std::string name = variable.name();
      CAPTURE(name);
      CHECK(a.Read(variable).BitEqual(b.Read(whole.graph.Get(name))));
    }
  }
  SetComputeThreads(2);
}

// Of one sign, so that a running sum has ever fewer digits for what is added.
TEST_CASE("a row that is read very often loses no digits, to the bit") {
  constexpr int64_t kReads = 20'000;
  const auto trained = [&](const Optimizer& optimizer, int64_t lookups) {
    Graph graph;
    const Output table = graph.Variable("table", Zeros({3, 2}));
    Tensor ids = Tensor::Zeros(DType::kInt64, {kReads / lookups});
    ids.data<int64_t>()[1] = 2;
    std::vector<Output> terms;
    for (int64_t i = 0; i < lookups; ++i) {
      terms.push_back(Sum(Gather(table, graph.Constant(ids)) * 0.1));
    }
    const Operation train = optimizer.Minimize(AddN(terms));
    Session session(graph);
    session.Initialize();
    session.Run({}, train);
    return session.Read(table);
  };
  for (const int64_t lookups : {1, 200}) {
    CAPTURE(lookups);
    const Tensor by_rows = trained(optimizers::Sgd(1), lookups);
    CHECK(by_rows.BitEqual(trained(optimizers::Sgd(1).With(Look), lookups)));
    const double often = -0.1 * static_cast<double>(kReads - lookups);
    const double tolerance = lookups == 1 ? 1e-6 : 1e-5;
    for (int j = 0; j < 2; ++j) {
      CHECK(by_rows.At(j) == doctest::Approx(often).epsilon(tolerance));
    }
  }
}

TEST_CASE("a step takes no memory for rows that it does not read") {
  const auto arena = [](int64_t rows, bool adam) {
    Graph graph;
    const Output ids = graph.Placeholder("ids", DType::kInt64, {64});
    const Output x = layers::Embedding(Scope(graph, "words"), ids,
                                       {.size = rows, .dimensions = 16});
    const Optimizer optimizer =
        adam ? optimizers::Adam().WithSparseRows() : optimizers::Sgd(0.1);
    const Operation train = optimizer.Minimize(Sum(Square(x)));
    Session session(graph);
    return session.Prepare({{ids, ids.shape()}}, {}, {train})
        .info()
        .arena_bytes;
  };
  for (const bool adam : {false, true}) {
    CHECK(arena(100'000, adam) == arena(1000, adam));
    CHECK(arena(1000, adam) < 100'000);
  }
}

TEST_CASE("a table that is read otherwise, too, is updated as a whole") {
  Random random(5);
  const Tensor first = Noise(random, DType::kFloat32, {6, 4});
  const auto trained = [&](const Optimizer& optimizer, int kind) {
    Graph graph;
    const Output table = graph.Variable("table", CopyOf(first));
    const Output ids = graph.Constant(Tensor::Array<int64_t>({3}, {1, 1, 5}));
    Output loss = Sum(Square(Gather(table, ids)));
    if (kind == 0) loss = loss + Sum(Square(table));
    if (kind == 1) {
      const Output column = graph.Constant(Tensor::Array<int64_t>({1}, {2}));
      loss = loss + Sum(Gather(table, column, {.axis = 1}));
    }
    if (kind == 2) loss = loss + Sum(Square(Gather(table * 2, ids)));
    const Operation train = optimizer.Minimize(loss);
    int whole = 0;
    for (const auto& node : graph.nodes()) whole += node->Is("ApplyMomentum");
    CHECK(whole == (kind < 3 ? 1 : 0));
    Session session(graph);
    session.Initialize();
    for (int step = 0; step < 3; ++step) session.Run({}, train);
    return session.Read(table);
  };
  const Optimizer plain = optimizers::Momentum(0.1);
  for (int kind : {0, 1, 2}) {
    CHECK(trained(plain, kind).BitEqual(trained(plain.WithSparseRows(), kind)));
  }
  trained(plain.WithSparseRows(), 3);
}

TEST_CASE("clipping sees the same norms") {
  Random random(9);
  const Tensor first = Noise(random, DType::kFloat64, {50, 3});
  const auto trained = [&](bool by_rows, const GradientHook& hook) {
    Graph graph;
    const Output table = graph.Variable("table", CopyOf(first));
    const Output ids =
        graph.Constant(Tensor::Array<int64_t>({5}, {7, 49, 7, 0, 7}));
    Optimizer optimizer = optimizers::Sgd(0.5).With(hook);
    if (by_rows) optimizer = optimizer.WithSparseRows();
    const Operation train = optimizer.Minimize(Sum(Square(Gather(table, ids))));
    Session session(graph);
    session.Initialize();
    session.Run({}, train);
    return session.Read(table);
  };
  using namespace gradients;  // NOLINT
  for (const GradientHook& hook :
       {ClipByGlobalNorm(0.5), ClipByNorm(0.25), ClipByValue(0.5)}) {
    const Tensor a = trained(true, hook), b = trained(false, hook);
    CHECK_FALSE(b.BitEqual(trained(false, ClipByGlobalNorm(1e9))));
    for (int64_t i = 0; i < a.elements(); ++i) {
      CHECK(a.At(i) == doctest::Approx(b.At(i)).epsilon(1e-12));
    }
  }
}

TEST_CASE("what cannot be by rows on wish is an error") {
  Graph graph;
  const Output ids = graph.Placeholder("ids", DType::kInt64, {4});
  const Output x = layers::Embedding(Scope(graph, "words"), ids,
                                     {.size = 10, .dimensions = 2});
  const Output loss = Sum(Square(x));
  const auto error = [&](const Optimizer& optimizer) {
    return ErrorOf([&] { optimizer.WithSparseRows().Minimize(loss); });
  };
  using namespace optimizers;  // NOLINT
  CHECK(Contains(error(Lamb()), "lamb"));
  CHECK(Contains(error(Adam().With(gradients::WeightDecay(0.1))), "hook"));
  CHECK(Contains(error(Adam().With(gradients::Accumulate(2))), "hook"));
  CHECK(Contains(error(Adam().WithAllReduce()), "several workers"));
  CHECK(Contains(
      ErrorOf([&] { Adam().WithSparseRows("letters*").Minimize(loss); }),
      "letters"));
}

TEST_CASE("an update by hand: rows out of range, and the variable itself") {
  Graph graph;
  const Output table =
      graph.Variable("table", CopyOf(Tensor::Array<float>({3, 1}, {1, 2, 4})));
  const Output rows = graph.Placeholder("rows", DType::kInt32, {3});
  const Output bad = ApplySgd(table, 1, OnesLike(table), rows);
  // Each row takes away another's first value.
  const Output shifted = ApplySgd(table, 1, table, rows);
  Session session(graph);
  session.Initialize();
  const auto ids = [](int a, int b, int c) {
    return Tensor::Array<int32_t>({3}, {a, b, c});
  };
  const std::string text = ErrorOf([&] {
    session.Run({{rows, ids(0, 1, 3)}}, bad);
  });
  CHECK(Contains(text, "3"));
  CHECK(session.Read(table).BitEqual(Tensor::Array<float>({3, 1}, {1, 2, 4})));
  CHECK_THROWS_AS(session.Run({{rows, ids(0, -2, 1)}}, bad), Error);
  CHECK(session.Read(table).BitEqual(Tensor::Array<float>({3, 1}, {1, 2, 4})));
  session.Run({{rows, ids(2, 0, 1)}}, Operation(shifted));
  CHECK(session.Read(table).BitEqual(
      Tensor::Array<float>({3, 1}, {1 - 2, 2 - 4, 4 - 1})));
  session.Run({{rows, ids(-1, 2, 2)}}, Operation(bad));
  CHECK(
      session.Read(table).BitEqual(Tensor::Array<float>({3, 1}, {-1, -2, 1})));
}

}  // namespace
}  // namespace sluice
