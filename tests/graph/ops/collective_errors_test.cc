// What collectives of a graph cannot be of, and workers whose graphs differ.
#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/dist/collective/ranks.h"
#include "tests/graph/ops/verbs.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using dist::testing::Groups;
using dist::testing::InThreads;
using dist::testing::JoinAll;
using dist::testing::Watchdog;
using namespace testing;  // NOLINT: verbs.h

}  // namespace

TEST_CASE("what a collective cannot be of") {
  const auto message = [](const std::function<Output(Graph&)>& build,
                          DType dtype, const Shape& shape) {
    return ErrorOf([&] {
      Graph graph;
      Groups groups = JoinAll(2);
      SessionOptions options;
      options.collective = std::move(groups[0]);
      const Output y = build(graph);
      Session session(graph, options);
      session.Run({{graph.Get("x"), Tensor::Zeros(dtype, shape)}}, y);
    });
  };
  const auto x = [](Graph& graph, DType dtype = DType::kFloat32,
                    const Shape& shape = {kUnknown}) {
    return graph.Placeholder("x", dtype, shape);
  };
  const DType f32 = DType::kFloat32;
  CHECK(Contains(message([&](Graph& g) { return AllToAll(x(g)); }, f32, {3}),
                 "first dimension of [3] is no multiple of 2 workers"));
  CHECK(
      Contains(message([&](Graph& g) { return ReduceScatter(x(g)); }, f32, {5}),
               "first dimension of [5] is no multiple of 2 workers"));
  CHECK(
      Contains(message([&](Graph& g) { return Broadcast(x(g), 2); }, f32, {2}),
               "no rank 2 of 2"));
  CHECK(Contains(message([&](Graph& g) { return Reduce(x(g), -1); }, f32, {2}),
                 "no rank -1"));
  CHECK(Contains(
      message([&](Graph& g) { return AllGather(x(g, f32, {})); }, f32, {}),
      "a scalar has no first dimension"));
  CHECK(Contains(
      message([&](Graph& g) { return ReduceScatter(x(g, DType::kInt32)); },
              DType::kInt32, {2}),
      "int32 has no mean"));
  CHECK(Contains(
      message([&](Graph& g) { return AllGather(x(g), "y", "rows"); }, f32, {2}),
      "'y': this worker is in no group 'rows'"));
  CHECK(Contains(message(
                     [&](Graph& g) {
                       return AllReduce(x(g), Reduction::kSum, "y", "rows");
                     },
                     f32, {2}),
                 "this worker is in no group 'rows'"));
  // Of a graph that was made for others.
  CHECK(Contains(
      message(
          [&](Graph& g) {
            return g.Add({"AllGather", {x(g)}, {{"workers", 3}}}).output(0);
          },
          f32, {2}),
      "made for 3 workers, of which the step has 2"));
}

// Every verb in another's place, another root, and other tensors of as many
// bytes.
TEST_CASE("collectives that differ between workers are an error on both") {
  struct Call {
    Verb verb;
    int root;
    DType dtype;
    Shape shape;
  };
  std::vector<Call> calls;
  for (int kind = 0; kind < kVerbs; ++kind) {
    calls.push_back({static_cast<Verb>(kind), 0, DType::kFloat32, {4, 2}});
  }
  calls.push_back({Verb::kAllReduce, 0, DType::kFloat32, {2, 4}});
  calls.push_back({Verb::kBroadcast, 1, DType::kFloat32, {4, 2}});
  calls.push_back({Verb::kReduce, 1, DType::kFloat32, {4, 2}});
  calls.push_back({Verb::kGather, 0, DType::kFloat32, {2, 4}});
  calls.push_back({Verb::kTrade, 0, DType::kInt32, {4, 2}});
  calls.push_back({Verb::kScatter, 0, DType::kFloat32, {8, 1}});
  calls.push_back({Verb::kBroadcast, 0, DType::kInt64, {4}});
  for (size_t a = 0; a < calls.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      CAPTURE(a);
      CAPTURE(b);
      Groups groups = JoinAll(2);
      std::vector<std::string> errors(2);
      const Watchdog watchdog;
      InThreads(2, [&](int rank) {
        const Call& call = calls[rank == 0 ? a : b];
        Graph graph;
        const Output y = Apply(
            call.verb, graph.Constant(Tensor::Zeros(call.dtype, call.shape)),
            call.root);
        SessionOptions options;
        options.collective = std::move(groups[At(rank)]);
        Session session(graph, options);
        errors[At(rank)] = ErrorOf([&] { session.Run({}, y); });
      });
      for (const std::string& error : errors) {
        CAPTURE(error);
        CHECK(Contains(error, "rank 0"));
        CHECK(Contains(error, "rank 1"));
      }
    }
  }
}

}  // namespace sluice
