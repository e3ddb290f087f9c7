// What a step keeps of the order that its graph gives, where passes put less in
// the place of more; and how many operands a node may have.
#include <doctest/doctest.h>

#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// A shape that is known before may stand for what waits for a write.
TEST_CASE("what depends on a written tensor's shape depends on the write") {
  for (const bool simplify : {true, false}) {
    CAPTURE(simplify);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
    const Output v = graph.Variable("v", Filled(1, {2}));
    const Output total = AssignAdd(v, x);
    const Output size = Cast(Size(Neg(total)), DType::kFloat32);
    Output after;
    {
      const ControlScope scope(graph, {Size(total)});
      after = v * 1.0f;
    }
    Session session(graph, {.simplify = simplify});
    for (const Output& y : {v / size * 2.0f, after}) {
      CAPTURE(y.name());
      session.Initialize();
      const Tensor got =
          session.Run({{x, Tensor::Array<float>({2}, {2, 3})}}, y);
      CHECK(got.BitEqual(Tensor::Array<float>({2}, {3, 4})));
      CHECK(session.Read(v).BitEqual(Tensor::Array<float>({2}, {3, 4})));
    }
  }
}

TEST_CASE("more operands than an instruction counts are refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  Session session(graph);
  const std::vector<Output> most(65535, x), more(65536, x);
  const Tensor one = Tensor::Array<float>({1}, {1});
  CHECK(session.Run({{x, one}}, Sum(Concat(most, 0))).At(0) == 65535);
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{x, one}}, Concat(more, 0));
                 }),
                 "65536 inputs"));
  CHECK_THROWS_AS(Split(Concat(most, 0), 65536), Error);
}

}  // namespace
}  // namespace sluice
