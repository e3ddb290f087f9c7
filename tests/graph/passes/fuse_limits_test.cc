// Programs of as many values as fused ones may have: whatever is fused can be
// prepared, and computes what every node by itself does.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/session/session.h"
#include "tests/support/random_graph.h"

namespace sluice::testing {
namespace {

constexpr int64_t kColumns = 32;
const Shape kShape = {40, kColumns};

Tensor Uniform(const Shape& shape, std::mt19937& random) {
  Tensor tensor(DType::kFloat32, shape);
  for (float& v : tensor.values<float>()) {
    v = static_cast<float>(random() >> 8) * 0x1p-23F - 1;
  }
  return tensor;
}

// Feeds that are read element by element, and rows that repeat.
struct Feeds {
  Graph graph;
  std::vector<Output> arrays, rows;
  std::vector<Feed> values;

  Feeds(int num_arrays, int num_rows) {
    std::mt19937 random(7);
    const auto add = [&](const char* name, const Shape& shape, int i) {
      values.push_back({graph.Placeholder(fmt::format("{}{}", name, i),
                                          DType::kFloat32, shape),
                        Uniform(shape, random)});
      return values.back().output;
    };
    for (int i = 0; i < num_arrays; ++i) arrays.push_back(add("x", kShape, i));
    for (int i = 0; i < num_rows; ++i) {
      rows.push_back(add("row", {kColumns}, i));
    }
  }

  int Nodes(const std::vector<Output>& fetches, bool fuse) const {
    std::vector<FeedShape> shapes;
    for (const Feed& feed : values) {
      shapes.push_back({feed.output, feed.value.shape()});
    }
    Session session(graph, {.fuse = fuse});
    return static_cast<int>(session.Prepare(shapes, fetches).info().nodes);
  }

  void CheckFused(const std::vector<Output>& fetches) const {
    const auto wanted = Session(graph, {.fuse = false}).Run(values, fetches);
    const auto got = Session(graph).Run(values, fetches);
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(Distance(got[i], wanted[i]) < 1e-5);
    }
  }
};

using Function = Output (*)(Operand);
constexpr Function kFunctions[] = {Tanh, Sin,     Cos,      Atan,
                                   Erf,  Sigmoid, Softplus, Sinh};
constexpr int kRows = 0;  // a group of three that repeat

// Groups of values that are made when they are wanted, each group of another
// chain. The pass puts what makes a group before what uses the groups of
// before, so that all of them wait for each other. The result of each group.
std::vector<Output> UseGroups(const Feeds& feeds,
                              const std::vector<int>& groups) {
  std::vector<Output> results;
  Output y = feeds.arrays[0];
  size_t row = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<Output> group;
    for (int i = 0; i < 3 && groups[g] == kRows; ++i) {
      group.push_back(feeds.rows.at(row++));
    }
    for (int i = 0; i < groups[g]; ++i) {
      group.push_back(kFunctions[g % std::size(kFunctions)](
          i == 0 ? feeds.arrays[0] : group.back()));
    }
    y = group.size() == 3   ? Select(Greater(y, group[0]), group[1], group[2])
        : group.size() == 2 ? y * group[0] + group[1]
                            : Maximum(y, group[0]);
    results.push_back(y);
  }
  return results;
}

// 46 steps and 10 inputs, of which 9 repeat: 34 values at once.
TEST_CASE("a fused program may have most of its values at once") {
  const Feeds feeds(1, 9);
  const std::vector<Output> fetches = {
      UseGroups(feeds, {3, 3, 3, 3, 3, 3, 3, 3, kRows, kRows, kRows}).back()};
  CHECK(feeds.Nodes(fetches, true) < feeds.Nodes(fetches, false) / 4);
  feeds.CheckFused(fetches);
}

TEST_CASE("random programs of many values at once are prepared") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    const Feeds feeds(1, 9);
    std::vector<int> groups;
    for (size_t n = 6 + below(5); n > 0; --n) {
      groups.push_back(below(2) == 0 ? 3 : 1 + static_cast<int>(below(3)));
    }
    for (size_t n = below(4); n > 0; --n) {
      const size_t half = groups.size() / 2;
      groups.insert(
          groups.begin() +
              static_cast<ptrdiff_t>(half + below(groups.size() - half + 1)),
          kRows);
    }
    const std::vector<Output> results = UseGroups(feeds, groups);
    std::vector<Output> fetches = {results.back()};
    for (const Output& result : results) {
      if (below(10) == 0) fetches.push_back(result);
    }
    feeds.CheckFused(fetches);
  }
}

// Which a sum takes in with the Select, each comparison a value that waits for
// those behind it.
TEST_CASE("a sum of what many comparisons choose is prepared") {
  const Feeds feeds(7, 0);
  const std::vector<Output>& x = feeds.arrays;
  Output choice = Less(x[0], x[1]);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) {
      if (i != j) choice = LogicalXor(Greater(x[i], x[j]), choice);
    }
  }
  feeds.CheckFused({Sum(Select(choice, x[0], x[1]), {1})});
}

TEST_CASE("choices of choices may be as deep as the graph") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, kShape);
  const Output flip = graph.Placeholder("flip", DType::kBool, kShape);
  Output choice = Greater(x, 0.5);
  for (int i = 0; i < 60'000; ++i) choice = LogicalXor(choice, flip);
  const Output y = Select(choice, x, 2 * x);
  const size_t nodes = graph.nodes().size();
  passes::Fuse(graph);
  CHECK(graph.nodes().size() == nodes);
  CHECK(y.node().Is("Select"));
}

}  // namespace
}  // namespace sluice::testing
