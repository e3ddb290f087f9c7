// Indices and labels out of range on /gpu:0: the CPU's error, from the step
// that had them or the next call that waits.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::OnGpu;
using testing::Ramp;

// An op of x[4, 5] and four indices, of which all below 4 are good.
struct Case {
  std::string name;
  std::function<Output(Output x, Output indices)> build;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"Gather", [](Output x, Output at) { return Gather(x, at); }},
      {"ScatterAdd", [](Output x, Output at) { return ScatterAdd(x, at, x); }},
      {"OneHot", [](Output, Output at) { return OneHot(at, 4); }},
      {"InTopK",
       [](Output x, Output at) {
         return Cast(InTopK(Slice(x, {0, 0}, {4, 4}), at, 2), DType::kFloat32);
       }},
      {"SparseSoftmaxCrossEntropy",
       [](Output x, Output at) {
         return SparseSoftmaxCrossEntropy(Slice(x, {0, 0}, {4, 4}), at);
       }},
      {"its gradient",
       [](Output x, Output at) {
         const Output logits = Slice(x, {0, 0}, {4, 4});
         return Gradients({Sum(SparseSoftmaxCrossEntropy(logits, at))}, {x})[0];
       }},
  };
  return *cases;
}

Tensor Indices(DType dtype, std::vector<int64_t> values) {
  return Tensor::Vector<int64_t>(values).Cast(dtype);
}

TEST_CASE("a bad index is the CPU's error, in first, captured and later runs") {
  for (const Case& c : Cases()) {
    for (DType dtype : {DType::kInt32, DType::kInt64}) {
      CAPTURE(c.name);
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {4, 5});
      const Output at = graph.Placeholder("at", dtype, {4});
      const Output y = c.build(x, at);
      Session cpu(graph);
      Session gpu(graph, OnGpu());
      const Tensor ramp = Ramp({4, 5});
      const auto error = [&](Session& session, std::vector<int64_t> indices) {
        return ErrorOf([&] {
          session.Run({{x, ramp}, {at, Indices(dtype, indices)}}, y);
        });
      };
      for (int run = 0; run < 4; ++run) {
        const std::string wanted = error(cpu, {3, 0, 4 + run, -1});
        REQUIRE(Contains(wanted, std::to_string(4 + run)));
        CHECK_EQ(error(gpu, {3, 0, 4 + run, -1}), wanted);
        // Nothing of it is left for later runs.
        CHECK_EQ(error(gpu, {3, 0, 2, 1}), "(no error)");
      }
      CHECK_EQ(error(gpu, {-1 << 30, 0, 0, 4}),
               error(cpu, {-1 << 30, 0, 0, 4}));
    }
  }
}

TEST_CASE("of an index beyond 32 bits it is said what is known") {
  Graph graph;
  const Output at = graph.Placeholder("at", DType::kInt64, {2});
  const Output y = OneHot(at, 4);
  Session session(graph, OnGpu());
  const auto error = [&](int64_t index) {
    return ErrorOf([&] {
      session.Run({{at, Indices(DType::kInt64, {0, index})}}, y);
    });
  };
  CHECK(Contains(error(int64_t{1} << 40),
                 "index 2147483647 or more (element 1 of the indices)"));
  CHECK(Contains(error(INT64_MIN),
                 "index -2147483648 or less (element 1 of the indices)"));
}

struct Training {
  Graph graph;
  Output at = graph.Placeholder("at", DType::kInt64, {3});
  Output w = graph.Variable("w", CopyOf(Ramp({3, 4})));
  Operation update =
      Assign(w, w - Gradients({Sum(SparseSoftmaxCrossEntropy(w, at))}, {w})[0]);
};

TEST_CASE("a step without fetches fails in the next call that waits") {
  Training t;
  Session session(t.graph, OnGpu());
  session.Initialize();
  const Tensor bad = Indices(DType::kInt64, {0, 7, 2});
  const Tensor good = Indices(DType::kInt64, {0, 1, 2});
  for (int run = 0; run < 4; ++run) {
    session.Run({{t.at, good}}, t.update);
    session.Run({{t.at, bad}}, t.update);
    const std::string message = ErrorOf([&] { session.Read(t.w); });
    CHECK(Contains(message, "label 7 in row 1 is not a class"));
    // The step was done, but for the bad row.
    const Tensor after = session.Read(t.w);
    for (int64_t i = 0; i < 12; ++i) CHECK(std::isfinite(after.At(i)));
  }
}

TEST_CASE("what a step that is gone found is not lost") {
  Training t;
  SessionOptions options = OnGpu();
  options.plan_cache_size = 1;
  Session session(t.graph, options);
  session.Initialize();
  session.Run({{t.at, Indices(DType::kInt64, {9, 1, 2})}}, t.update);
  // Another step takes the place of the first.
  CHECK(Contains(ErrorOf([&] { session.Run({}, t.w * 2.0f); }),
                 "label 9 in row 0"));
  CHECK_EQ(session.Run({}, t.w * 2.0f).elements(), 12);
}

TEST_CASE("of two runs under way one says what was wrong, and both end") {
  Graph graph;
  const Output at = graph.Placeholder("at", DType::kInt64, {2});
  const Output y = OneHot(at, 4);
  Session session(graph, OnGpu());
  PreparedStep step = session.Prepare({{at, {2}}}, {y});
  for (int round = 0; round < 6; ++round) {
    std::vector<Tensor> fetches[2] = {step.MakeFetches(), step.MakeFetches()};
    PendingRun runs[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t last = i == round % 2 ? 5 : 3;
      runs[i] = step.Start(
          std::vector<Tensor>{Indices(DType::kInt64, {1, last})}, fetches[i]);
    }
    std::string said;
    for (PendingRun& run : runs) said += ErrorOf([&] { run.Wait(); });
    CHECK(Contains(said, "index 5 (element 1 of the indices)"));
    CHECK(Contains(said, "(no error)"));
    step.Run(std::vector<Tensor>{Indices(DType::kInt64, {1, 2})}, fetches[0]);
    CHECK(fetches[0][0].At(6) == 1);
  }
}

TEST_CASE("two sessions on one GPU do not see each other's errors") {
  Training t;
  Session one(t.graph, OnGpu()), other(t.graph, OnGpu());
  one.Initialize();
  other.Initialize();
  one.Run({{t.at, Indices(DType::kInt64, {3, 1, 4})}}, t.update);
  CHECK_EQ(ErrorOf([&] { other.Read(t.w); }), "(no error)");
  CHECK(Contains(ErrorOf([&] { one.Read(t.w); }), "label 4 in row 2"));
}

}  // namespace
}  // namespace sluice
