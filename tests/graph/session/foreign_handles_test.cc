// Handles of another graph, whose nodes have the same ids as this one's, and of
// outputs that a node does not have.
#include <doctest/doctest.h>

#include <string>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

struct Product {
  Graph graph;
  Output x, y;

  explicit Product(double factor)
      : x(graph.Placeholder("x", DType::kFloat32, {})), y(x * factor) {}
};

TEST_CASE("another graph's handles are refused where ours have been run, too") {
  const Product ours(2), other(3);
  REQUIRE(ours.x.node().id() == other.x.node().id());
  REQUIRE(ours.y.node().id() == other.y.node().id());
  Session session(ours.graph);
  const Tensor one = Tensor::Scalar(1.0f);
  CHECK(session.Run({{ours.x, one}}, ours.y).At(0) == 2);
  session.Run({{ours.x, one}}, Operation(ours.y));
  session.Prepare({{ours.x, {}}}, {ours.y});

  const auto refused = [](const char* what, const auto& call) {
    CAPTURE(what);
    CHECK(Contains(ErrorOf(call), "belongs to another graph"));
  };
  refused("both", [&] { session.Run({{other.x, one}}, other.y); });
  refused("the feed", [&] { session.Run({{other.x, one}}, ours.y); });
  refused("the fetch", [&] { session.Run({{ours.x, one}}, other.y); });
  refused("the target", [&] {
    session.Run({{ours.x, one}}, Operation(other.y));
  });
  refused("prepared", [&] { session.Prepare({{other.x, {}}}, {other.y}); });
  CHECK(session.Run({{ours.x, one}}, ours.y).At(0) == 2);
}

TEST_CASE("an output that a node does not have is neither fed nor fetched") {
  const Product product(2);
  Session session(product.graph);
  const Tensor one = Tensor::Scalar(1.0f);
  for (const int i : {1, -1, 1 << 20}) {
    CAPTURE(i);
    const Output x(&product.x.node(), i), y(&product.y.node(), i);
    const std::string none = " has 1 outputs, no output " + std::to_string(i);
    CHECK(Contains(ErrorOf([&] {
                     session.Run({{x, one}}, product.y);
                   }),
                   "feed: Placeholder 'x'" + none));
    CHECK(Contains(ErrorOf([&] {
                     session.Run({{product.x, one}}, y);
                   }),
                   "fetch: " + product.y.node().Describe() + none));
    CHECK(Contains(ErrorOf([&] {
                     session.Prepare({{x, {}}}, {product.y});
                   }),
                   "feed: Placeholder 'x'" + none));
  }
  CHECK(session.Run({{product.x, one}}, product.y).At(0) == 2);
}

}  // namespace
}  // namespace sluice
