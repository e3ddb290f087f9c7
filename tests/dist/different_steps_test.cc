// Workers whose steps exchange different things of one dtype and size, through
// connections of our own and through an MPI: an error on all, that names them,
// and nobody has a sum of these. Steps of other batches are no different.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/mpi/mpi_group.h"
#include "engine/runtime/collective.h"
#include "engine/tensor.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/distributed_optimizer.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/mpi/thread_mpi.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using dist::MpiGroup;
using dist::testing::Groups;
using dist::testing::InThreads;
using dist::testing::JoinAll;
using dist::testing::ThreadMpi;
using dist::testing::Watchdog;
using testing::Contains;
using testing::ErrorOf;

// What a worker does, in sessions with these options.
using Work = std::function<void(int rank, const SessionOptions& options)>;

// Of two workers.
std::vector<std::string> ErrorsOf(bool by_mpi, const Work& work) {
  const Watchdog watchdog;
  std::vector<std::string> errors(2);
  const auto as = [&](int rank, std::shared_ptr<Collective> workers) {
    SessionOptions options;
    options.collective = std::move(workers);
    errors[static_cast<size_t>(rank)] = ErrorOf([&] { work(rank, options); });
  };
  if (by_mpi) {
    ThreadMpi(2, 2).Run([&](int rank) {
      as(rank, MpiGroup::Join(ThreadMpi::Calls(), {}).ValueOrThrow());
    });
  } else {
    Groups groups = JoinAll(2);
    InThreads(2, [&](int rank) {
      as(rank, std::move(groups[static_cast<size_t>(rank)]));
    });
  }
  return errors;
}

void CheckRefused(const Work& work) {
  for (const bool by_mpi : {false, true}) {
    CAPTURE(by_mpi);
    for (const std::string& error : ErrorsOf(by_mpi, work)) {
      CHECK(Contains(error, "rank 0"));
      CHECK(Contains(error, "rank 1"));
    }
  }
}

void RunOnce(const Graph& graph, const Operation& step,
             const SessionOptions& options,
             const std::vector<Feed>& feeds = {}) {
  Session session(graph, options);
  session.Initialize();
  session.Run(feeds, step);
}

}  // namespace

// Both have an "all_reduce", of which one has another behind it.
TEST_CASE("a step of fewer collectives has no sums of another's") {
  CheckRefused([](int rank, const SessionOptions& options) {
    Graph graph;
    std::vector<Output> sums;
    if (rank == 0) {
      sums.push_back(AllReduce(graph.Constant(Tensor::Scalar(1.0F))));
    }
    sums.push_back(AllReduce(graph.Constant(Tensor::Scalar(10.0F))));
    Session session(graph, options);
    session.Run({}, sums);
  });
}

TEST_CASE("gradients and statistics of different variables are not added up") {
  for (const size_t bytes : {size_t{1}, size_t{1} << 20}) {  // alone, joined
    CAPTURE(bytes);
    AllReduceOptions reduction;
    reduction.buckets = {bytes, bytes};
    const Optimizer optimizer =
        dist::DistributedOptimizer(optimizers::Sgd(0.1), reduction);
    // Named in another order.
    CheckRefused([&](int rank, const SessionOptions& options) {
      Graph graph;
      std::vector<Output> variables = {graph.Variable("v", Ones({4})),
                                       graph.Variable("w", Ones({4}))};
      const Output loss = Sum(variables[0] * variables[1] * 3);
      if (rank == 1) std::swap(variables[0], variables[1]);
      RunOnce(graph, optimizer.Minimize(loss, variables), options);
    });
    // Another is frozen.
    CheckRefused([&](int rank, const SessionOptions& options) {
      Graph graph;
      const Output v = graph.Variable("v", Ones({4}), {.trainable = rank == 0});
      const Output w = graph.Variable("w", Ones({4}), {.trainable = rank == 1});
      RunOnce(graph, optimizer.Minimize(Sum(v * w)), options);
    });
    // The same of as many elements together, cut elsewhere.
    CheckRefused([&](int rank, const SessionOptions& options) {
      Graph graph;
      const Output v = graph.Variable("v", Ones({3 + rank}));
      const Output w = graph.Variable("w", Ones({4 - rank}));
      RunOnce(graph, optimizer.Minimize(Sum(v * 2) + Sum(w * 3)), options);
    });
    // Statistics, updated in another order.
    CheckRefused([&](int rank, const SessionOptions& options) {
      Graph graph;
      const Output w = graph.Variable("w", Ones({4}));
      std::vector<Output> means = {
          graph.Variable("a", Zeros({4}), {.trainable = false}),
          graph.Variable("b", Zeros({4}), {.trainable = false})};
      if (rank == 1) std::swap(means[0], means[1]);
      for (const Output& mean : means) graph.AddUpdate(Assign(mean, mean + w));
      RunOnce(graph, optimizer.Minimize(Sum(w * w)), options);
    });
  }
}

TEST_CASE("rows of different tables are not joined") {
  CheckRefused([](int rank, const SessionOptions& options) {
    Graph graph;
    const Output ids = graph.Placeholder("ids", DType::kInt64, {kUnknown});
    std::vector<Output> tables = {graph.Variable("t", Ones({100, 4})),
                                  graph.Variable("u", Ones({100, 4}))};
    const Output loss =
        Sum(Gather(tables[0], ids)) + Sum(Gather(tables[1], ids));
    if (rank == 1) std::swap(tables[0], tables[1]);
    AllReduceOptions reduction;
    reduction.largest_share = {{ids, {2}}};
    reduction.workers = 2;
    const Operation train =
        dist::DistributedOptimizer(optimizers::Sgd(0.1), reduction)
            .Minimize(loss, tables);
    const auto& nodes = graph.nodes();
    CHECK(std::count_if(nodes.begin(), nodes.end(), [](const auto& node) {
            return node->Is("AllGather");
          }) == 4);
    const std::vector<int64_t> rows = {1, 2};
    RunOnce(graph, train, options, {{ids, Tensor::Vector<int64_t>(rows)}});
  });
}

// One prepares a step for its last batch while the other goes on with the one
// that it has.
TEST_CASE("batches of other sizes are no other steps") {
  for (const bool by_mpi : {false, true}) {
    CAPTURE(by_mpi);
    const auto errors =
        ErrorsOf(by_mpi, [](int rank, const SessionOptions& options) {
          Graph graph;
          const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
          const Output mean = AllReduce(Sum(x));
          Session session(graph, options);
          for (const int64_t size : {4, 4, 3}) {
            const int64_t own = rank == 0 ? size : 4;
            const Tensor ones = Tensor::Full(DType::kFloat32, {own}, 1);
            CHECK(session.Run({{x, ones}}, mean).At(0) ==
                  static_cast<double>(size + 4) / 2);
          }
        });
    for (const std::string& error : errors) CHECK(error == "(no error)");
  }
}

}  // namespace sluice
