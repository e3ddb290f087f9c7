// Gradients of rows that travel between workers, which are threads: against the
// same training with whole gradients, and against one process with all
// examples.
#include "models/optim/reduce_rows.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using dist::testing::Groups;
using dist::testing::InThreads;
using dist::testing::JoinAll;
using dist::testing::Watchdog;
using testing::Contains;
using testing::ErrorOf;
using testing::Random;

// Examples look rows of tables up, some ids each.
struct Program {
  struct Lookup {
    int table;
    int64_t ids;  // of an example
    DType dtype;
    bool flat;  // ids are a vector when they are looked up
  };
  int workers = 2;
  int64_t share = 1;
  std::vector<Shape> tables;
  std::vector<Lookup> lookups;

  explicit Program(Random& random) {
    workers = static_cast<int>(random.Between(2, 4));
    share = random.Between(1, 5);
    for (int64_t t = random.Between(1, 2); t > 0; --t) {
      Shape table{random.Between(1, random.Chance(2) ? 20 : 400)};
      for (int64_t d = random.Between(0, 2); d > 0; --d) {
        table.push_back(random.Between(1, 4));
      }
      tables.push_back(table);
      for (int64_t k = random.Between(1, 2); k > 0; --k) {
        lookups.push_back({static_cast<int>(tables.size()) - 1,
                           random.Between(1, 4),
                           random.Chance(2) ? DType::kInt32 : DType::kInt64,
                           random.Chance(2)});
      }
    }
  }

  // Of a table: slices that a worker sends.
  int64_t Slices(int table) const {
    int64_t slices = 0;
    for (const Lookup& lookup : lookups) {
      if (lookup.table == table) slices += share * lookup.ids;
    }
    return slices;
  }
};

// One step's examples of each worker: ids of each lookup, by example.
struct Batch {
  std::vector<int64_t> examples;
  std::vector<std::vector<std::vector<int64_t>>> ids;  // by rank, lookup

  int64_t all() const {
    return std::accumulate(examples.begin(), examples.end(), int64_t{0});
  }
};

Batch RandomBatch(const Program& program, Random& random) {
  Batch batch;
  for (int rank = 0; rank < program.workers; ++rank) {
    batch.examples.push_back(random.Between(rank == 0 ? 1 : 0, program.share));
    batch.ids.emplace_back();
    for (const Program::Lookup& lookup : program.lookups) {
      const int64_t rows = program.tables[lookup.table][0];
      const int64_t last = random.Chance(2) ? std::min<int64_t>(rows, 3) : rows;
      std::vector<int64_t> ids;
      for (int64_t i = batch.examples.back() * lookup.ids; i > 0; --i) {
        ids.push_back(random.Between(0, last - 1));
      }
      batch.ids.back().push_back(std::move(ids));
    }
  }
  return batch;
}

struct Training {
  Graph graph;
  std::vector<Output> ids;
  Output weight;
  Operation train;

  // With `options` of a job, else of one process.
  Training(const Program& program, const std::vector<Tensor>& first,
           const Optimizer& optimizer, const AllReduceOptions* options) {
    std::vector<Output> tables;
    for (size_t i = 0; i < first.size(); ++i) {
      tables.push_back(
          graph.Variable(fmt::format("table{}", i), CopyOf(first[i])));
    }
    const Output bias = graph.Variable("bias", Zeros({}));
    weight = graph.Placeholder("weight", DType::kFloat32, {});
    std::vector<FeedShape> largest = {{weight, {}}};
    Output loss = Square(bias - 1);
    for (const Program::Lookup& lookup : program.lookups) {
      ids.push_back(graph.Placeholder(fmt::format("ids{}", ids.size()),
                                      lookup.dtype, {kUnknown, lookup.ids}));
      largest.push_back({ids.back(), {program.share, lookup.ids}});
      Output of = ids.back();
      if (lookup.flat) of = Reshape(of, {-1});
      const Output x = Gather(tables[lookup.table], of);
      loss = loss + Mean(Square(x) / 2 + x / 4);
    }
    if (options == nullptr) {
      train = optimizer.Minimize(loss);
      return;
    }
    AllReduceOptions all = *options;
    all.weight = "weight";
    all.largest_share = largest;
    all.workers = program.workers;
    train = optimizer.WithAllReduce(all).Minimize(loss);
  }

  // Of the ranks from `begin` on, as one.
  std::vector<Feed> Feeds(const Program& program, const Batch& batch,
                          size_t begin, size_t end) const {
    int64_t examples = 0;
    for (size_t rank = begin; rank < end; ++rank) {
      examples += batch.examples[rank];
    }
    const double parts = static_cast<double>(batch.ids.size()) /
                         static_cast<double>(end - begin);
    std::vector<Feed> feeds = {
        {weight, Tensor::Scalar(
                     static_cast<float>(static_cast<double>(examples) * parts /
                                        static_cast<double>(batch.all())))}};
    for (size_t k = 0; k < ids.size(); ++k) {
      std::vector<int64_t> all;
      for (size_t rank = begin; rank < end; ++rank) {
        const auto& more = batch.ids[rank][k];
        all.insert(all.end(), more.begin(), more.end());
      }
      feeds.push_back(
          {ids[k], Tensor::Array<int64_t>({examples, program.lookups[k].ids},
                                          std::span<const int64_t>(all))
                       .Cast(program.lookups[k].dtype)});
    }
    return feeds;
  }
  int64_t Gathers() const {
    int64_t count = 0;
    for (const auto& node : graph.nodes()) count += node->Is("AllGather");
    return count;
  }
};

using Values = std::map<std::string, Tensor>;

Values ValuesOf(const Training& training, const Session& session) {
  Values values;
  for (const Output& variable : training.graph.Variables()) {
    values[variable.name()] = session.Read(variable);
  }
  return values;
}

// What all workers have after these steps: the same bits.
Values TrainTogether(const Program& program, const std::vector<Tensor>& first,
                     const std::vector<Batch>& batches,
                     const Optimizer& optimizer,
                     const AllReduceOptions& options, int64_t* gathers) {
  const Watchdog watchdog;
  Groups groups = JoinAll(program.workers);
  std::vector<Values> all(static_cast<size_t>(program.workers));
  InThreads(program.workers, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    const Training training(program, first, optimizer, &options);
    if (rank == 0) *gathers = training.Gathers();
    SessionOptions session_options;
    session_options.collective = std::move(groups[i]);
    Session session(training.graph, session_options);
    session.Initialize();
    for (const Batch& batch : batches) {
      session.Run(training.Feeds(program, batch, i, i + 1), training.train);
    }
    all[i] = ValuesOf(training, session);
  });
  for (const Values& values : all) {
    for (const auto& [name, value] : values) {
      CAPTURE(name);
      CHECK(value.BitEqual(all[0].at(name)));
    }
  }
  return all[0];
}

Values TrainAlone(const Program& program, const std::vector<Tensor>& first,
                  const std::vector<Batch>& batches,
                  const Optimizer& optimizer) {
  const Training training(program, first, optimizer, nullptr);
  Session session(training.graph);
  session.Initialize();
  for (const Batch& batch : batches) {
    session.Run(training.Feeds(program, batch, 0, batch.ids.size()),
                training.train);
  }
  return ValuesOf(training, session);
}

void CheckNear(const Values& got, const Values& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (const auto& [name, value] : wanted) {
    CAPTURE(name);
    for (int64_t i = 0; i < value.elements(); ++i) {
      CHECK(std::abs(got.at(name).At(i) - value.At(i)) <=
            tolerance * (1 + std::abs(value.At(i))));
    }
  }
}

struct Case {
  Program program;
  std::vector<Tensor> first;
  std::vector<Batch> batches;

  explicit Case(Random& random) : program(random) {
    for (const Shape& shape : program.tables) {
      Tensor t(DType::kFloat32, shape);
      for (float& v : t.values<float>()) {
        v = static_cast<float>(random.Real(-1, 1));
      }
      first.push_back(std::move(t));
    }
    for (int step = 0; step < 3; ++step) {
      batches.push_back(RandomBatch(program, random));
    }
  }
};

// Sees whole gradients, and does nothing.
void Look(MinimizeContext&, std::vector<GradientAndVariable>&) {}

TEST_CASE("rows travel where they are fewer bytes, with the same result") {
  int sparse = 0, dense = 0;
  for (uint32_t seed = 0; seed < testing::Rounds(40u); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Case c(random);
    Optimizer optimizer = random.Chance(2)
                              ? optimizers::Sgd(0.3)
                              : optimizers::Adagrad(0.3, {.epsilon = 0.5});
    if (random.Chance(3))
      optimizer = optimizer.WithLossScaling({.initial = 64});
    if (random.Chance(3)) optimizer = optimizer.WithAverages(0.5);
    int64_t wanted = 0;
    for (size_t t = 0; t < c.program.tables.size(); ++t) {
      const Shape& table = c.program.tables[t];
      const int64_t row = 4 * table.elements(1, table.rank());
      const bool rows = c.program.workers *
                            c.program.Slices(static_cast<int>(t)) * (row + 8) <
                        2 * table[0] * row;
      wanted += rows ? 2 : 0;
      ++(rows ? sparse : dense);
    }
    int64_t gathers = 0, none = -1;
    const Values by_rows =
        TrainTogether(c.program, c.first, c.batches, optimizer, {}, &gathers);
    const Values whole = TrainTogether(c.program, c.first, c.batches,
                                       optimizer.With(Look), {}, &none);
    CHECK(gathers == wanted);
    CHECK(none == 0);
    CheckNear(by_rows, whole, 2e-6);
    CheckNear(by_rows, TrainAlone(c.program, c.first, c.batches, optimizer),
              2e-6);
  }
  CHECK(sparse > 5);
  CHECK(dense > 5);
}

TEST_CASE("what updates only rows that are read does so with several workers") {
  for (uint32_t seed = 0; seed < testing::Rounds(40u); ++seed) {
    CAPTURE(seed);
    Random random(100 + seed);
    const Case c(random);
    Optimizer optimizer = optimizers::Momentum(0.3, 0.9);
    switch (random.Between(0, 3)) {
      case 0:
        optimizer = optimizers::Adam(0.1, {.epsilon = 0.5});
        break;
      case 1:
        optimizer = optimizers::RmsProp(0.1, {.epsilon = 0.5});
        break;
      case 2:
        optimizer = optimizers::Adagrad(0.1, {.epsilon = 0.5});
        break;
    }
    optimizer = optimizer.WithSparseRows("table*");
    if (random.Chance(2)) {
      optimizer = optimizer.With(gradients::ClipByGlobalNorm(0.1));
    }
    if (random.Chance(3))
      optimizer = optimizer.WithLossScaling({.initial = 64});
    int64_t gathers = 0;
    const Values together =
        TrainTogether(c.program, c.first, c.batches, optimizer, {}, &gathers);
    CHECK(gathers == 2 * static_cast<int64_t>(c.program.tables.size()));
    CheckNear(together, TrainAlone(c.program, c.first, c.batches, optimizer),
              5e-6);
    const Values rounded =
        TrainTogether(c.program, c.first, c.batches, optimizer,
                      {.between = DType::kBFloat16}, &gathers);
    CheckNear(rounded, together, 0.05);
  }
}

TEST_CASE("rows of which nobody knows how many there are do not travel") {
  const auto build = [](const Optimizer& optimizer, bool known,
                        const AllReduceOptions& options) {
    Graph graph;
    const Output ids = graph.Placeholder(
        "ids", DType::kInt64, {kUnknown, known ? int64_t{2} : kUnknown});
    const Output table = graph.Variable("table", Zeros({1000, 4}));
    AllReduceOptions all = options;
    if (all.workers > 0) all.largest_share = {{ids, {3, 2}}};
    optimizer.WithAllReduce(all).Minimize(Mean(Gather(table, ids)));
    int64_t gathers = 0;
    for (const auto& node : graph.nodes()) gathers += node->Is("AllGather");
    return gathers;
  };
  const Optimizer sgd = optimizers::Sgd(0.1);
  const Optimizer adam = optimizers::Adam(0.1).WithSparseRows();
  CHECK(build(sgd, true, {.workers = 2}) == 2);
  CHECK(build(adam, true, {.workers = 2}) == 2);
  // Sentences of other lengths: another worker's may be longer.
  CHECK(build(sgd, false, {.workers = 2}) == 0);
  CHECK(build(sgd, true, {}) == 0);
  CHECK(build(sgd, true, {.in_two = true, .workers = 2}) == 0);
  CHECK(build(sgd, true, {.shared = true, .workers = 2}) == 0);
  const auto error = [&](bool known, const AllReduceOptions& options) {
    return ErrorOf([&] { build(adam, known, options); });
  };
  CHECK(Contains(error(false, {.workers = 2}),
                 "sparse rows of 'table': how many rows a worker reads"));
  CHECK(Contains(error(true, {}), "several workers"));
  CHECK(Contains(error(true, {.in_two = true, .workers = 2}),
                 "exchange whole gradients alone"));
  CHECK(Contains(error(true, {.shared = true, .workers = 2}),
                 "exchange whole gradients alone"));
}

}  // namespace
}  // namespace sluice
