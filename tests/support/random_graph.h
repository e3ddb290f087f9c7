// Random graphs of elementwise, broadcasting and reducing ops and of writes,
// for tests that run them in two ways.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_GRAPH_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_GRAPH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice::testing {

// Builds graphs from a seed. Values stay moderate, so that rounding does.
class RandomGraph {
 public:
  RandomGraph(Graph& graph, uint32_t seed) : graph_(graph), random_(seed) {
    rows_ = Pick({1, 3, 64});
    columns_ = Pick({5, 64, 700});
    const DType dtype = Pick({0, 1}) == 0 ? DType::kFloat32 : DType::kFloat64;
    for (const Shape& shape :
         {Shape{rows_, columns_}, Shape{columns_}, Shape{rows_, 1}, Shape{}}) {
      feeds_.push_back(
          graph.Placeholder("x" + std::to_string(feeds_.size()), dtype, shape));
      values_.push_back(feeds_.back());
    }
    variable_ = graph.Variable("v", Filled(0.5, {rows_, columns_}, dtype));
    values_.push_back(variable_);
  }

  void Build(int nodes) {
    for (int i = 0; i < nodes; ++i) values_.push_back(Next());
    for (int i = 0; i < 3; ++i) fetches_.push_back(AnyValue());
    fetches_.push_back(values_.back());
  }

  const std::vector<Output>& fetches() const { return fetches_; }
  const std::vector<Operation>& targets() const { return targets_; }
  const Output& variable() const { return variable_; }

  std::vector<Feed> Feeds() const {
    std::vector<Feed> feeds;
    uint32_t state = 1;
    for (const Output& feed : feeds_) {
      Tensor value(DType::kFloat64, feed.shape());
      for (double& v : value.values<double>()) {
        state = state * 1664525u + 1013904223u;
        v = static_cast<double>(state >> 8) * 0x1p-23 - 1;
      }
      feeds.push_back({feed, value.Cast(feed.dtype())});
    }
    return feeds;
  }

 private:
  int64_t Pick(std::initializer_list<int64_t> from) {
    return from.begin()[random_() % from.size()];
  }
  // Mostly among the latest.
  Output AnyValue() {
    const size_t n = values_.size();
    const size_t back = random_() % 3 == 0 ? n : std::min<size_t>(n, 4);
    return values_[n - 1 - random_() % back];
  }

  Output Next() {
    const Output a = AnyValue(), b = AnyValue();
    switch (random_() % 16) {
      case 0:
        return Tanh(a);
      case 1:
        return Sigmoid(a) * 0.5;
      case 2:
        return Relu(a);
      case 3:
        return LeakyRelu(a, 0.25);
      case 4:
        return Clip(a, -0.5, 0.75);
      case 5:
        return Select(Greater(a, b), a, 0.5);
      case 6:
        return Maximum(a, b) - 0.125;
      case 7:
        return Sin(a) + b * 0.25;
      case 8:
        return Sum(Tanh(a), LastAxis(a), true) * 0.01;
      case 9:
        return Mean(a * b);
      case 10:
        return SumToShapeOf(Tanh(a), values_[3]) * 0.001;
      case 11:
        return BroadcastToShapeOf(Tanh(b), values_[0]);
      case 12:
        return Write(a);
      case 13:
        return Select(LogicalAnd(Greater(a, -0.5), Less(a, 0.5)), a, b * 0.5);
      case 14:
        return AddN({Tanh(a), Tanh(a), Relu(a)}) * 0.3;
      default:
        return Tanh(a + b);
    }
  }

  Axes LastAxis(const Output& x) {
    return x.shape().rank() == 0 ? Axes{} : Axes{-1};
  }

  // Moves the variable, after the last move; the result is a read after that.
  Output Write(const Output& a) {
    const Output moved = Tanh(a) + BroadcastToShapeOf(values_[3], variable_);
    if (moved.shape() != variable_.shape()) return moved;
    ControlScope after(graph_, targets_.empty()
                                   ? std::vector<Operation>{}
                                   : std::vector<Operation>{targets_.back()});
    targets_.push_back(AssignAdd(variable_, moved * 0.1));
    ControlScope behind(graph_, {targets_.back()});
    return variable_ * 0.5;
  }

  Graph& graph_;
  std::mt19937 random_;
  int64_t rows_ = 0, columns_ = 0;
  std::vector<Output> feeds_, values_, fetches_;
  Output variable_;
  std::vector<Operation> targets_;
};

// The fetches, then the variable.
inline std::vector<Tensor> RunGraph(const Graph& graph,
                                    const RandomGraph& random,
                                    SessionOptions options) {
  Session session(graph, options);
  session.Initialize();
  std::vector<Tensor> values =
      session.Run(random.Feeds(), random.fetches(), random.targets());
  values.push_back(session.Read(random.variable()));
  return values;
}

// The largest difference, relative above 1.
inline double Distance(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double error = std::abs(a.At(i) - b.At(i)) / (1 + std::abs(b.At(i)));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_GRAPH_H_
