// What goes between a worker and the servers that have a large table's rows:
// the rows that are wanted and no others, however many servers there are; and
// the values are those of a loop over an array.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dist/servers/placement.h"
#include "engine/runtime/local_rendezvous.h"
#include "graph/builder.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/dist/servers/on_servers.h"
#include "tests/support/counting_rendezvous.h"
#include "tests/support/sanitizers.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::CountingRendezvous;
using sluice::testing::Rounds;
using sluice::testing::WildRendezvous;

constexpr float kRate = 0.5;

// A table read by one Gather or two, whose gradients are what it is fed.
struct Program {
  Graph graph;
  Output table, loss;
  std::vector<Output> ids, weights, got;
  Operation train;
  int64_t rows, width;

  Program(int64_t table_rows, int64_t row_width, int reads, DType dtype)
      : rows(table_rows), width(row_width) {
    table = graph.Variable("table", Zeros({rows, width}));
    for (int i = 0; i < reads; ++i) {
      const std::string number = std::to_string(i);
      ids.push_back(graph.Placeholder("ids" + number, dtype, {kUnknown}));
      weights.push_back(graph.Placeholder("weights" + number, DType::kFloat32,
                                          {kUnknown, width}));
      got.push_back(Gather(table, ids.back()));
      const Output part = Sum(got.back() * weights.back());
      loss = i == 0 ? part : loss + part;
    }
    train = optimizers::Sgd(kRate).Minimize(loss);
  }
};

struct Read {
  std::vector<int64_t> ids;
  std::vector<float> weights;
};

// Spread evenly, of one server, of few rows, the same one, none.
Read SomeRead(std::mt19937& random, int64_t rows, int64_t width, int64_t most) {
  Read read;
  const uint32_t kind = random() % 6;
  const auto n = kind == 5 ? 0 : static_cast<int64_t>(random()) % most + 1;
  const auto first =
      static_cast<int64_t>(random() % static_cast<uint32_t>(rows));
  for (int64_t i = 0; i < n; ++i) {
    const auto any = static_cast<int64_t>(random());
    const int64_t id = kind < 2    ? any % rows
                       : kind == 2 ? any % std::min<int64_t>(rows, 4)
                       : kind == 3 ? rows - 1 - any % std::min<int64_t>(rows, 4)
                                   : first;
    read.ids.push_back(id);
    for (int64_t k = 0; k < width; ++k) {
      read.weights.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
    }
  }
  return read;
}

std::vector<Feed> FeedsOf(const Program& program,
                          const std::vector<Read>& reads) {
  std::vector<Feed> feeds;
  for (size_t i = 0; i < reads.size(); ++i) {
    const auto n = static_cast<int64_t>(reads[i].ids.size());
    Tensor ids(DType::kInt64, {n});
    std::copy(reads[i].ids.begin(), reads[i].ids.end(), ids.data<int64_t>());
    Tensor weights(DType::kFloat32, {n, program.width});
    std::copy(reads[i].weights.begin(), reads[i].weights.end(),
              weights.data<float>());
    feeds.push_back({program.ids[i], ids.Cast(program.ids[i].dtype())});
    feeds.push_back({program.weights[i], weights});
  }
  return feeds;
}

// Bytes of a step beyond those of one that reads nothing: each number once, and
// each slice there; of the gradient each slice, or, of several reads, whose
// slices are summed first, those of each read's different rows, and their
// numbers.
int64_t BytesOf(const Program& program, const std::vector<Read>& reads) {
  const auto number = static_cast<int64_t>(SizeOf(program.ids[0].dtype()));
  const int64_t slice = program.width * 4;
  int64_t bytes = 0;
  for (const Read& read : reads) {
    const auto n = static_cast<int64_t>(read.ids.size());
    bytes += n * (number + slice);
    const std::set<int64_t> different(read.ids.begin(), read.ids.end());
    bytes += reads.size() == 1
                 ? n * slice
                 : static_cast<int64_t>(different.size()) * (8 + slice);
  }
  return bytes;
}

// The same by loops: what is read, then the update.
struct Reference {
  std::vector<float> table;
  int64_t width;

  std::vector<float> Rows(const std::vector<int64_t>& ids) const {
    std::vector<float> rows;
    for (const int64_t id : ids) {
      const auto row = table.begin() + id * width;
      rows.insert(rows.end(), row, row + width);
    }
    return rows;
  }
  void Update(const std::vector<Read>& reads) {
    std::vector<double> sums(table.size());
    for (const Read& read : reads) {
      for (size_t i = 0; i < read.weights.size(); ++i) {
        const auto w = static_cast<int64_t>(i);
        sums[static_cast<size_t>(
            read.ids[i / static_cast<size_t>(width)] * width + w % width)] +=
            read.weights[i];
      }
    }
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] -= static_cast<float>(kRate * sums[i]);
    }
  }
};

void CheckNear(const Tensor& got, const std::vector<float>& wanted) {
  REQUIRE(got.elements() == static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float one = got.data<float>()[i];
    CHECK(std::abs(one - wanted[i]) <= 1e-4F + 1e-5F * std::abs(wanted[i]));
  }
}

Tensor Filling(std::mt19937& random, const Shape& shape) {
  Tensor value(DType::kFloat32, shape);
  for (float& x : value.values<float>()) {
    x = static_cast<float>(random() % 2001) / 1000 - 1;
  }
  return value;
}

TEST_CASE("random reads over random servers: bytes by formula, bits of one") {
  int64_t bytes_in_all = 0;
  for (uint32_t seed = 1; seed <= Rounds(120u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto upto = [&](uint32_t n) {
      return static_cast<int64_t>(random() % n) + 1;
    };
    const int64_t rows = 3 + upto(seed % 4 == 0 ? 5 : 300), width = upto(9);
    const int reads = static_cast<int>(upto(2));
    const DType dtype = seed % 3 == 0 ? DType::kInt32 : DType::kInt64;
    const int servers = static_cast<int>(upto(6));
    const Program local(rows, width, reads, dtype);
    Program spread(rows, width, reads, dtype);
    ThrowIfError(
        PlaceOnServers(spread.graph, kWorker, Cpus(servers), {.tables = 1}));
    REQUIRE(SpreadsRows(spread.table.node()));
    const size_t pieces = PiecesOf(spread.table.node()).size();

    Session alone(local.graph);
    // Every other run over one that leaves rubbish where less has come.
    std::shared_ptr<Rendezvous> carrier = std::make_shared<LocalRendezvous>();
    if (seed % 2 == 0) {
      carrier = std::make_shared<WildRendezvous>(
          WildRendezvous::Options{.seed = seed, .delay_us = 20});
    }
    const auto counter = std::make_shared<CountingRendezvous>(carrier);
    SessionOptions options = On(Cpus(servers));
    options.rendezvous = counter;
    if (seed % 5 == 0) options.executor = ExecutorMode::kChecked;
    Session session(spread.graph, options);
    session.Initialize();
    alone.Initialize();
    const Tensor first = Filling(random, {rows, width});
    session.Write(spread.table, first);
    alone.Write(local.table, first);
    Reference reference{
        {first.data<float>(), first.data<float>() + first.elements()}, width};

    const std::vector<Read> none(static_cast<size_t>(reads));
    (void)counter->TakeBytes();
    session.Run(FeedsOf(spread, none), spread.loss, {spread.train});
    const int64_t without = counter->TakeBytes();
    alone.Run(FeedsOf(local, none), local.loss, {local.train});
    for (int step = 0; step < 3; ++step) {
      std::vector<Read> all;
      for (int i = 0; i < reads; ++i) {
        all.push_back(SomeRead(random, rows, width, 40));
      }
      std::vector<Output> fetches = spread.got, theirs = local.got;
      fetches.push_back(spread.loss);
      theirs.push_back(local.loss);
      const auto got =
          session.Run(FeedsOf(spread, all), fetches, {spread.train});
      // One piece is read and updated as the whole is.
      if (pieces > 1) {
        const int64_t bytes = counter->TakeBytes() - without;
        CHECK(bytes == BytesOf(spread, all));
        bytes_in_all += bytes;
      }
      const auto wanted = alone.Run(FeedsOf(local, all), theirs, {local.train});
      for (size_t i = 0; i < wanted.size(); ++i) {
        CHECK(got[i].BitEqual(wanted[i]));
      }
      for (size_t i = 0; i < all.size(); ++i) {
        CheckNear(got[i], reference.Rows(all[i].ids));
      }
      reference.Update(all);
      const Tensor now = session.Read(spread.table);
      CHECK(now.BitEqual(alone.Read(local.table)));
      CheckNear(now, reference.table);
    }
  }
  CHECK(bytes_in_all > Rounds(100'000));
}

// What docs/distributed.md says of it.
TEST_CASE("20,000 rows are as many bytes over any number of servers") {
  constexpr int64_t kRows = 50'000, kWidth = 16, kReads = 20'000;
  std::mt19937 random(3);
  Read read;
  for (int64_t i = 0; i < kReads; ++i) {
    read.ids.push_back(static_cast<int64_t>(random() % kRows));
  }
  read.weights.assign(static_cast<size_t>(kReads * kWidth), 1);
  for (int servers = 1; servers <= 4; ++servers) {
    CAPTURE(servers);
    Program program(kRows, kWidth, 1, DType::kInt64);
    ThrowIfError(
        PlaceOnServers(program.graph, kWorker, Cpus(servers), {.tables = 1}));
    const auto counter = std::make_shared<CountingRendezvous>(
        std::make_shared<LocalRendezvous>());
    SessionOptions options;
    options.rendezvous = counter;
    options.devices = Cpus(servers);
    options.devices.insert(options.devices.begin(), kWorker);
    Session session(program.graph, options);
    session.Initialize();
    (void)counter->TakeBytes();
    session.Run(FeedsOf(program, {read}), program.loss, {program.train});
    CHECK(counter->TakeBytes() == 2'720'000);
  }
}

}  // namespace
}  // namespace sluice::dist::testing
