// Weights of classes: balanced, written, and in the loss, against sums in
// double.
#include "models/nn/class_weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "graph/text/text.h"
#include "models/nn/losses.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using doctest::Approx;
using testing::Contains;
using testing::ErrorOf;

TEST_CASE("balanced weights let each class that occurs count the same") {
  // sklearn.utils.class_weight.compute_class_weight("balanced", ...) of
  // [0, 0, 0, 1].
  CHECK(BalancedWeights(std::vector<int64_t>{3, 1}) ==
        std::vector<double>{4.0 / 6, 2});
  CHECK(BalancedWeights(std::vector<int64_t>{3, 0, 1}) ==
        std::vector<double>{4.0 / 6, 1, 2});
  CHECK(BalancedWeights(std::vector<int64_t>{7}) == std::vector<double>{1});
  CHECK(BalancedWeights(std::vector<int64_t>{0, 0}) ==
        std::vector<double>{1, 1});
  CHECK(BalancedWeights({}).empty());
  CHECK(Contains(ErrorOf([] {
                   BalancedWeights(std::vector<int64_t>{1, -2});
                 }),
                 "got -2"));

  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> counts(1 + random() % 10);
    for (int64_t& count : counts) {
      count = random() % 4 == 0 ? 0 : static_cast<int64_t>(random());
    }
    const std::vector<double> weights = BalancedWeights(counts);
    REQUIRE(weights.size() == counts.size());
    const auto examples = std::accumulate(counts.begin(), counts.end(), 0.0);
    const auto absent = std::count(counts.begin(), counts.end(), 0);
    const auto present =
        static_cast<double>(counts.size()) - static_cast<double>(absent);
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) {
        CHECK(weights[i] == 1);
      } else {
        CHECK(weights[i] * static_cast<double>(counts[i]) ==
              Approx(examples / present));
      }
    }
  }
}

TEST_CASE("class weights are written by name or number") {
  const std::vector<std::string> animals = {"cat", "dog", "sea lion"};
  const auto parsed = [&](const char* text) {
    return ParseClassWeights(text, 3, animals);
  };
  using Weights = std::vector<double>;
  CHECK(parsed("2=5,cat=0.5") == Weights{0.5, 1, 5});
  CHECK(parsed("sea lion=0") == Weights{1, 1, 0});
  CHECK(parsed("0=1e-3,1=2.5e1,2=0.1") == Weights{1e-3, 25, 0.1});
  CHECK(parsed("cat=0,dog=0") == Weights{0, 0, 1});
  CHECK(ParseClassWeights("1=2", 2, {}) == Weights{1, 2});
  CHECK(ParseClassWeights("0=3", 1, {}) == Weights{3});

  // A name comes before a number, whatever it looks like.
  const std::vector<std::string> odd = {"1",        "0",    "a=b",
                                        "<&>\"'\n", "\xff", "x,y"};
  CHECK(ParseClassWeights("1=2,0=3", 6, odd) == Weights{2, 3, 1, 1, 1, 1});
  CHECK(ParseClassWeights("a=b=2,<&>\"'\n=3,\xff=4,5=6", 6, odd) ==
        Weights{1, 1, 2, 3, 4, 6});
}

TEST_CASE("class weights that make no sense are told which") {
  const std::vector<std::string> animals = {"cat", "dog", "sea lion", "dog"};
  const auto error = [&](const std::string& text) {
    try {
      ParseClassWeights(text, 4, animals);
    } catch (const Error& thrown) {
      CHECK(thrown.code() == Code::kInvalidArgument);
      return std::string(thrown.what());
    }
    return std::string("(no error)");
  };
  for (const char* text : {"", ",", "cat", "cat=1,", ",cat=1", "cat=1,,2=1"}) {
    CHECK(Contains(error(text), "wanted CLASS=WEIGHT"));
  }
  CHECK(Contains(error("2=2,cat"), "'cat'"));
  for (const char* weight :
       {"", "x", "-1", "nan", "inf", "1e39", "1e999", "1 ", " 1", "1x", "+1"}) {
    const std::string entry = std::string("cat=") + weight;
    CHECK(Contains(error("2=3," + entry),
                   "'" + entry + "': wanted a weight that is a number"));
  }
  CHECK(Contains(error("2=1,cta=1"), "'cta=1': there is no class 'cta'"));
  CHECK(Contains(error("cta=1"), "did you mean 'cat'?"));
  CHECK(Contains(error("Sea Lion=1"), "did you mean 'sea lion'?"));
  CHECK_FALSE(error("elephants=1").find("did you mean") != std::string::npos);
  CHECK(Contains(error("=1"), "there is no class ''"));
  CHECK(Contains(error("4=1"), "'4=1': there is no class 4, only 0 to 3"));
  CHECK(Contains(error("-1=1"), "there is no class -1"));
  CHECK(Contains(error("1.0=1"), "there is no class '1.0'"));
  CHECK(Contains(error("99999999999999999999=1"), "there is no class"));
  CHECK(Contains(error("dog=2"), "several classes are named 'dog'"));
  CHECK(Contains(error("0=2,cat=3"), "'cat=3': class 0 has a weight already"));
  CHECK(Contains(error("3=2,3=2"), "'3=2': class 3 has a weight already"));
  CHECK(Contains(error("0=0,1=0,2=0,3=1e-60"), "not 0"));
  CHECK(
      Contains(ErrorOf([] { ParseClassWeights("0=1", 0, {}); }), "0 classes"));
  CHECK(Contains(ErrorOf([] {
                   ParseClassWeights("0=1", 2, {"a", "b", "c"});
                 }),
                 "2 classes and 3 names"));
  // Names of some: the others have numbers.
  CHECK(ParseClassWeights("a=2,2=3", 3, {"a"}) == std::vector<double>{2, 1, 3});
}

constexpr int64_t kClasses = 5;

struct Batch {
  std::vector<float> logits;  // [n, kClasses]
  std::vector<int64_t> labels;

  Batch(int64_t n, std::mt19937& random) {
    for (int64_t i = 0; i < n; ++i) {
      labels.push_back(static_cast<int64_t>(random() % kClasses));
      for (int64_t c = 0; c < kClasses; ++c) {
        logits.push_back(static_cast<float>(random() % 2001) / 250 - 4);
      }
    }
  }
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  Tensor Logits() const {
    return Tensor::Array<float>({size(), kClasses}, logits);
  }
  Tensor Labels() const { return Tensor::Vector<int64_t>(labels); }
};

std::vector<double> Softmax64(const float* logits) {
  std::vector<double> p(kClasses);
  double sum = 0;
  for (int64_t c = 0; c < kClasses; ++c) sum += p[c] = std::exp(logits[c]);
  for (double& x : p) x /= sum;
  return p;
}

struct LossAndGradient {
  double loss = 0;
  std::vector<double> gradient;  // [n, kClasses]
};

// From the definition, in double. Without smoothing it is PyTorch's:
// sum_n w[y_n] * -log p_n[y_n] / sum_n w[y_n].
LossAndGradient Wanted(const Batch& batch, const std::vector<double>& weights,
                       double smoothing) {
  LossAndGradient wanted;
  wanted.gradient.assign(batch.logits.size(), 0);
  double total = 0;
  for (const int64_t label : batch.labels) total += weights[label];
  if (total == 0) return wanted;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto p = Softmax64(batch.logits.data() + i * kClasses);
    const double share = weights[batch.labels[i]] / total;
    for (int64_t c = 0; c < kClasses; ++c) {
      const double target =
          (c == batch.labels[i] ? 1 - smoothing : 0) + smoothing / kClasses;
      wanted.loss -= share * target * std::log(p[c]);
      wanted.gradient[i * kClasses + c] = share * (p[c] - target);
    }
  }
  return wanted;
}

struct Weighted {
  Graph graph;
  Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kUnknown, kClasses});
  Output labels = graph.Placeholder("labels", DType::kInt64, {kUnknown});
  Output loss, gradient;
  Session session;

  explicit Weighted(const std::vector<double>& weights, double smoothing = 0,
                    const SessionOptions& options = {})
      : loss(losses::SparseSoftmaxCrossEntropy(
            logits, labels, {.label_smoothing = smoothing}, weights)),
        gradient(Gradients({loss}, {logits})[0]),
        session(graph, options) {}

  LossAndGradient Of(const Batch& batch) {
    const std::vector<Tensor> values =
        session.Run({{logits, batch.Logits()}, {labels, batch.Labels()}},
                    std::vector<Output>{loss, gradient});
    LossAndGradient result = {values[0].At(0), {}};
    for (int64_t i = 0; i < values[1].elements(); ++i) {
      result.gradient.push_back(values[1].At(i));
    }
    return result;
  }
};

void CheckEqual(const LossAndGradient& got, const LossAndGradient& wanted) {
  CHECK(got.loss == Approx(wanted.loss).epsilon(1e-5));
  REQUIRE(got.gradient.size() == wanted.gradient.size());
  double worst = 0;
  for (size_t i = 0; i < got.gradient.size(); ++i) {
    REQUIRE(std::isfinite(got.gradient[i]));
    worst = std::max(worst, std::abs(got.gradient[i] - wanted.gradient[i]));
  }
  CHECK(worst < 1e-6);
}

TEST_CASE("the weighted loss and its gradient are those of the definition") {
  std::mt19937 random(3);
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    for (int round = 0; round < 10; ++round) {
      CAPTURE(smoothing);
      CAPTURE(round);
      std::vector<double> weights;
      for (int64_t c = 0; c < kClasses; ++c) {
        weights.push_back(random() % 4 == 0
                              ? 0
                              : std::exp2(static_cast<double>(random() % 20)) /
                                    512);
      }
      weights[random() % kClasses] = 1;
      Weighted model(weights, smoothing);
      for (const int64_t n : {1, 2, 7, 64, 1000}) {
        CAPTURE(n);
        const Batch batch(n, random);
        CheckEqual(model.Of(batch), Wanted(batch, weights, smoothing));
      }
    }
  }
}

TEST_CASE("a batch whose weights are all 0 has no loss and no gradient") {
  std::mt19937 random(4);
  const std::vector<double> weights = {0, 0, 1e-30, 0, 3};
  Weighted model(weights);
  Batch batch(20, random);
  for (int64_t& label : batch.labels) label = label % 2 == 0 ? 1 : 3;
  const LossAndGradient got = model.Of(batch);
  CHECK(got.loss == 0);
  CHECK(got.gradient == std::vector<double>(20 * kClasses, 0));
  // The same step with a weight that is small, and with one as it should be.
  for (const int64_t label : {2, 4}) {
    batch.labels[5] = label;
    CheckEqual(model.Of(batch), Wanted(batch, weights, 0));
  }
  const LossAndGradient empty = model.Of(Batch(0, random));
  CHECK(empty.loss == 0);
  CHECK(empty.gradient.empty());
}

TEST_CASE("a step in half precision weighs the same") {
  std::mt19937 random(5);
  const std::vector<double> weights = {1, 0.5, 1e5, 1e-6, 3};
  const Batch batch(64, random);
  SessionOptions half;
  half.precision = Precision::kFloat16;
  CheckEqual(Weighted(weights, 0.1, half).Of(batch),
             Wanted(batch, weights, 0.1));
}

TEST_CASE("without class weights the graph is what it was") {
  const auto text = [](bool plain) {
    Graph graph;
    const Output logits =
        graph.Placeholder("logits", DType::kFloat32, {kUnknown, kClasses});
    const Output labels =
        graph.Placeholder("labels", DType::kInt64, {kUnknown});
    plain ? Mean(SparseSoftmaxCrossEntropy(logits, labels))
          : losses::SparseSoftmaxCrossEntropy(logits, labels, {}, {});
    return PrintGraph(graph);
  };
  CHECK(text(true) == text(false));
}

TEST_CASE("weights that do not fit the classes are refused") {
  Graph graph;
  const Output logits =
      graph.Placeholder("scores", DType::kFloat32, {kUnknown, kClasses});
  const Output labels = graph.Placeholder("labels", DType::kInt64, {kUnknown});
  const auto error = [&](const std::vector<double>& weights) {
    return ErrorOf([&] {
      losses::SparseSoftmaxCrossEntropy(logits, labels, {}, weights);
    });
  };
  CHECK(Contains(error({1, 2}), "2 class weights for the 5 classes of"));
  CHECK(Contains(error({1, 2}), "class_weights_test.cc"));
  CHECK(Contains(error({1, 2, -1, 1, 1}), "class 2 has -1"));
  CHECK(Contains(error({1, 2, 1, 1, NAN}), "class 4 has nan"));
  CHECK(Contains(error({1, 1e39, 1, 1, 1}), "class 1 has 1e+39"));
  CHECK(Contains(error({0, 0, 0, 0, 0}), "no class has a weight"));
  CHECK(Contains(ErrorOf([&] { losses::ClassWeightsOf(labels, {}); }),
                 "no class has a weight"));
}

TEST_CASE("a label that is no class fails the step") {
  Graph graph;
  const Output labels = graph.Placeholder("labels", DType::kInt32, {kUnknown});
  const Output weights = losses::ClassWeightsOf(labels, {1, 0.25, 3});
  CHECK(weights.dtype() == DType::kFloat32);
  Session session(graph);
  const auto run = [&](std::vector<int32_t> values) {
    return session.Run({{labels, Tensor::Vector<int32_t>(values)}}, weights);
  };
  const Tensor got = run({2, 0, 1, 1});
  CHECK(std::vector<float>(got.data<float>(), got.data<float>() + 4) ==
        std::vector<float>{3, 1, 0.25f, 0.25f});
  CHECK_THROWS_AS(run({0, 3}), Error);
  CHECK_THROWS_AS(run({0, -1}), Error);
}

TEST_CASE("weighted means and both gradients, in double") {
  Graph graph;
  const Output values = graph.Placeholder("v", DType::kFloat64, {kUnknown});
  const Output weights = graph.Placeholder("w", DType::kFloat64, {kUnknown});
  const Output mean = losses::WeightedMean(values, weights);
  const std::vector<Output> gradients = Gradients({mean}, {values, weights});
  Session session(graph);
  std::mt19937 random(6);
  for (const int64_t n : {0, 1, 2, 100}) {
    for (const bool weightless : {false, true}) {
      CAPTURE(n);
      CAPTURE(weightless);
      Tensor v(DType::kFloat64, {n}), w(DType::kFloat64, {n});
      double sum = 0, total = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(random() % 1000) / 100 - 5;
        const double by =
            weightless ? 0 : static_cast<double>(random() % 100 + 1);
        v.data<double>()[i] = x;
        w.data<double>()[i] = by;
        sum += x * by;
        total += by;
      }
      const std::vector<Tensor> got =
          session.Run({{values, v}, {weights, w}},
                      std::vector<Output>{mean, gradients[0], gradients[1]});
      const double wanted = total == 0 ? 0 : sum / total;
      CHECK(got[0].At(0) == Approx(wanted));
      for (int64_t i = 0; i < n; ++i) {
        CHECK(got[1].At(i) == Approx(total == 0 ? 0 : w.At(i) / total));
        if (total == 0) {
          CHECK(std::isfinite(got[2].At(i)));
        } else {
          CHECK(got[2].At(i) == Approx((v.At(i) - wanted) / total));
        }
      }
    }
  }
  const Output other = graph.Placeholder("o", DType::kFloat64, {kUnknown, 1});
  CHECK(Contains(ErrorOf([&] { losses::WeightedMean(values, other); }),
                 "wanted a weight for each value"));
}

}  // namespace
}  // namespace sluice
