// Where models are cut into stages.
#include "graph/compile/cut_stages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

double Longest(const std::vector<double>& cost,
               const std::vector<double>& crossing,
               const std::vector<size_t>& cuts) {
  double longest = 0;
  size_t begin = 0;
  for (size_t s = 0; s <= cuts.size(); ++s) {
    const size_t end = s < cuts.size() ? cuts[s] : cost.size();
    double sum = crossing[begin] + crossing[end];
    for (size_t i = begin; i < end; ++i) sum += cost[i];
    longest = std::max(longest, sum);
    begin = end;
  }
  return longest;
}

// All ways to cut the rest into `stages`.
double BestOf(const std::vector<double>& cost,
              const std::vector<double>& crossing, size_t stages,
              std::vector<size_t>* cuts) {
  if (cuts->size() + 1 == stages) return Longest(cost, crossing, *cuts);
  double best = std::numeric_limits<double>::infinity();
  for (size_t at = cuts->empty() ? 0 : cuts->back(); at <= cost.size(); ++at) {
    cuts->push_back(at);
    best = std::min(best, BestOf(cost, crossing, stages, cuts));
    cuts->pop_back();
  }
  return best;
}

TEST_CASE("cuts are as good as the best of all") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t n = random() % 9, stages = 1 + random() % 4;
    std::vector<double> cost(n), crossing(n + 1);
    for (double& one : cost) one = static_cast<double>(random() % 10);
    for (double& one : crossing) one = static_cast<double>(random() % 6);
    crossing[0] = crossing[n] = 0;
    CAPTURE(trial);
    const std::vector<size_t> cuts = BalancedCuts(cost, crossing, stages);
    REQUIRE(cuts.size() == stages - 1);
    CHECK(std::is_sorted(cuts.begin(), cuts.end()));
    std::vector<size_t> none;
    CHECK(Longest(cost, crossing, cuts) ==
          BestOf(cost, crossing, stages, &none));
  }
}

struct Layers {
  Graph graph;
  Output x, loss;
  explicit Layers(int count) {
    x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 64});
    Output y = x;
    for (int i = 0; i < count; ++i) {
      const Output w = graph.Variable("w" + std::to_string(i),
                                      Filled(0.1, {64, 64}, DType::kFloat32));
      y = Relu(MatMul(y, w));
    }
    loss = Mean(y);
  }
};

TEST_CASE("layers, their variables and their gradients go by stages") {
  const std::vector<std::string> devices = {"/cpu:0", "/cpu:1", "/cpu:2"};
  Layers layers(6);
  REQUIRE(
      CutIntoStages(layers.graph, layers.loss, {{layers.x, {32, 64}}}, devices)
          .ok());
  std::map<std::string, int> variables;
  for (const Output& variable : layers.graph.Variables()) {
    ++variables[variable.node().device()];
  }
  for (const std::string& device : devices) CHECK(variables[device] == 2);
  CHECK(layers.x.node().device() == devices[0]);
  CHECK(layers.loss.node().device() == devices[2]);
  const std::vector<Output> all = layers.graph.Variables();
  const std::vector<Output> gradients = Gradients({layers.loss}, all);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(gradients[i].node().device() == all[i].node().device());
  }
}

TEST_CASE("a model that cannot be cut says so") {
  Layers layers(1);
  const auto cut = [&](size_t stages) {
    return CutIntoStages(layers.graph, layers.loss, {{layers.x, {2, 64}}},
                         std::vector<std::string>(stages, "/cpu:1"))
        .message();
  };
  CHECK(Contains(cut(100), "too few for 100 stages"));
  CHECK(cut(1).empty());
  CHECK(Contains(cut(1), "is placed on /cpu:1"));
}

}  // namespace
}  // namespace sluice
