// Which node's value is not finite, and what looking for it leaves behind.
#include "graph/session/find_non_finite.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "engine/runtime/trace.h"
#include "graph/builder.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("the first non-finite node is named and variables are untouched") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {2});
  Output v = graph.Variable("v", Zeros({2}));
  Output bad = Log(x - 1.0f);
  Output written = AssignAdd(v, bad);
  Output loss = Sum(written);
  Session session(graph);
  session.Initialize();
  const Tensor fine = Tensor::Full(DType::kFloat32, {2}, 2);
  CHECK(session.FindNonFinite({{x, fine}}, {loss}).empty());
  const Tensor zero = Tensor::Full(DType::kFloat32, {2}, 0);
  CHECK(session.FindNonFinite({{x, zero}}, {loss}) == bad.node().name());
  CHECK(session.Read(v).At(0) == 0);
  CHECK(session.step() == 0);
}

TEST_CASE("only what the step reads is blamed") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output good = graph.Variable("good", Ones({2}));
  const Output bad = graph.Variable("bad", Zeros({2}));
  const Output unrelated = good * x, written = Assign(bad, x), read = bad * x;
  Session session(graph);
  session.Initialize();
  session.Write(bad, Tensor::Full(DType::kFloat32, {2}, kNan));
  const Tensor fine = Tensor::Full(DType::kFloat32, {2}, 2);
  CHECK(session.FindNonFinite({{x, fine}}, {unrelated}) == "");
  CHECK(session.FindNonFinite({{x, fine}}, {written}) == "");
  CHECK(session.FindNonFinite({{x, fine}}, {read}) == "bad");
  CHECK(session.FindNonFinite({{read, fine}}, {read + 1}) == "");
  session.Freeze();
  CHECK(session.FindNonFinite({{x, fine}}, {unrelated}) == "");
  CHECK(session.FindNonFinite({{x, fine}}, {read}) == "bad");
  CHECK(session.FindNonFinite({{read, fine}}, {read + 1}) == "");
}

// What one of them is fed, or has, is not what the other is fed and has.
TEST_CASE("workers that look together go on together") {
  const dist::testing::Watchdog watchdog;
  dist::testing::Groups groups = dist::testing::JoinAll(2);
  std::array<std::string, 2> errors, wanted, fed, kept;
  std::array<Tensor, 2> sums, values;
  dist::testing::InThreads(2, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    errors[i] = ErrorOf([&] {
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {2});
      const Output v = graph.Variable("v", Zeros({2}));
      const Output doubled = x * 2;
      const Output sum = AllReduce(doubled, Reduction::kSum);
      const Output added = AssignAdd(v, sum);
      wanted[i] = doubled.node().name();
      SessionOptions options;
      options.collective = std::move(groups[i]);
      Session session(graph, options);
      session.Initialize();
      const Tensor one = Tensor::Full(DType::kFloat32, {2}, 1);
      const Tensor nan = Tensor::Full(DType::kFloat32, {2}, kNan);
      fed[i] = session.FindNonFinite({{x, rank == 0 ? nan : one}}, {added});
      if (rank == 0) session.Write(v, nan);
      kept[i] = session.FindNonFinite({{x, one}}, {added});
      if (rank == 0) session.Write(v, Tensor::Zeros(DType::kFloat32, {2}));
      const Tensor mine =
          Tensor::Full(DType::kFloat32, {2}, rank == 0 ? 1.5 : 2.25);
      sums[i] = session.Run({{x, mine}}, sum, {Operation(added)});
      values[i] = session.Read(v);
    });
  });
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    CHECK(errors[i] == "(no error)");
    // Twice 1.5 and twice 2.25.
    CHECK(sums[i].BitEqual(Tensor::Full(DType::kFloat32, {2}, 7.5)));
    CHECK(values[i].BitEqual(sums[i]));
  }
  CHECK(fed[0] == wanted[0]);
  CHECK_FALSE(fed[1].empty());  // the sum
  CHECK(kept[0] == "v");
  CHECK(kept[1] == "");
}

TEST_CASE("variables without a value have none afterwards") {
  for (const bool prepared : {false, true}) {
    CAPTURE(prepared);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2});
    const Output v = graph.Variable("v", Zeros({2}));
    const Output u = graph.Variable("u", Ones({2}));
    const Output written = Assign(v, x);
    Session session(graph);
    session.Initialize({u});
    if (prepared) session.Prepare({{x, {2}}}, {written});
    const Tensor fine = Tensor::Full(DType::kFloat32, {2}, 2);
    CHECK(session.FindNonFinite({{x, fine}}, {written}).empty());
    CHECK_FALSE(session.IsInitialized(v));
    CHECK(Contains(ErrorOf([&] { session.Read(v); }), "not initialised"));
    CHECK(session.Read(u).At(0) == 1);
  }
}

TEST_CASE("a step that fails for another reason was not found to be finite") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {2});
  Output label = graph.Placeholder("label", DType::kInt64, {1});
  Output v = graph.Variable("v", Zeros({2}));
  Output written = AssignAdd(v, x);
  Output loss =
      Mean(SparseSoftmaxCrossEntropy(Reshape(written, {1, 2}), label));
  Session session(graph);
  session.Initialize();
  ChromeTrace trace;
  session.SetObserver(&trace);
  const Tensor ones = Tensor::Full(DType::kFloat32, {2}, 1);
  const Tensor no_class = Tensor::Full(DType::kInt64, {1}, 2);
  CHECK(
      Contains(ErrorOf([&] {
                 session.FindNonFinite({{x, ones}, {label, no_class}}, {loss});
               }),
               "label"));
  CHECK(session.Read(v).At(0) == 0);
  CHECK(session.step() == 0);
  CHECK(session.SetObserver(nullptr) == &trace);
}

TEST_CASE("other threads' steps count, and are no part of the look") {
  constexpr int kSteps = 2000;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output count = graph.Variable("count", Zeros({}));
  const Output add = AssignAdd(count, graph.Constant(1, DType::kFloat32));
  const Output infinite = Log(x), finite = x + 1;
  Session session(graph);
  session.Initialize();
  const Tensor zero = Tensor::Full(DType::kFloat32, {2}, 0);
  std::atomic<bool> ended = false;
  std::string error;
  std::thread other([&] {
    error = ErrorOf([&] {
      for (int i = 0; i < kSteps; ++i) {
        session.Run({{x, zero}}, infinite, {Operation(add)});
      }
    });
    ended = true;
  });
  std::string found;
  do {
    found += session.FindNonFinite({{x, zero}}, {finite});
  } while (!ended);
  other.join();
  CHECK(error == "(no error)");
  CHECK(found == "");
  CHECK(session.step() == kSteps);
  CHECK(session.Read(count).At(0) == kSteps);
}

}  // namespace
}  // namespace sluice
