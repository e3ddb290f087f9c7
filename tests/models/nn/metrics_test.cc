// Metrics of whole sets against their definitions, over random splits of a set
// into batches.
#include "models/nn/metrics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

constexpr int64_t kClasses = 4;

// A random set; scores are few, so that many are equal.
struct Set {
  std::vector<float> logits;  // [n, kClasses]
  std::vector<int64_t> labels, signs;

  Set(int64_t n, uint32_t seed) {
    std::mt19937 random(seed);
    const int64_t classes = 1 + random() % kClasses;  // that occur
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < kClasses; ++c) {
        logits.push_back(static_cast<float>(random() % 7) / 8 +
                         static_cast<float>(c) * 1e-3f);
      }
      labels.push_back(static_cast<int64_t>(random() % classes));
      signs.push_back(random() % 3 == 0);
    }
  }
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

// A model's metrics, fed batch by batch.
struct Measured {
  Graph graph;
  Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kUnknown, kClasses});
  Output labels = graph.Placeholder("labels", DType::kInt64, {kUnknown});
  Output signs = graph.Placeholder("signs", DType::kInt64, {kUnknown});
  Output score = Sum(
      logits * graph.Constant(Tensor::Array<float>({4}, {1, 0, 0, 0})), {1});
  NamedMetrics metrics = {
      {"accuracy", Accuracy(logits, labels)},
      {"f1", F1(logits, labels)},
      {"auc", AreaUnderCurve(score, signs)},
      {"perplexity", Perplexity(score)},
      {"batch_mean", Mean(score)},
  };
  Session session{graph};

  // With batches of these sizes.
  std::vector<double> Of(const Set& set, const std::vector<int64_t>& sizes) {
    MetricsOverSet over(metrics);
    int64_t at = 0;
    for (const int64_t n : sizes) {
      Tensor x(DType::kFloat32, {n, kClasses}), y(DType::kInt64, {n});
      Tensor s(DType::kInt64, {n});
      std::copy_n(set.logits.data() + at * kClasses, n * kClasses,
                  x.data<float>());
      std::copy_n(set.labels.data() + at, n, y.data<int64_t>());
      std::copy_n(set.signs.data() + at, n, s.data<int64_t>());
      over.Add(session.Run({{logits, x}, {labels, y}, {signs, s}},
                           TensorsOf(metrics)),
               n);
      at += n;
    }
    REQUIRE(at == set.size());
    std::vector<double> values;
    for (const auto& [name, value] : over.Values()) values.push_back(value);
    return values;
  }
};

// From the definitions, by sets and pairs of examples.
std::vector<double> Wanted(const Set& set) {
  const int64_t n = set.size();
  std::vector<int64_t> predicted;
  std::vector<double> scores;
  for (int64_t i = 0; i < n; ++i) {
    const float* row = set.logits.data() + i * kClasses;
    predicted.push_back(std::max_element(row, row + kClasses) - row);
    scores.push_back(row[0]);
  }
  double right = 0, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    right += predicted[i] == set.labels[i];
    sum += scores[i];
  }
  double f1 = 0;
  int classes = 0;
  for (int64_t c = 0; c < kClasses; ++c) {
    double tp = 0, fp = 0, fn = 0;
    for (int64_t i = 0; i < n; ++i) {
      tp += predicted[i] == c && set.labels[i] == c;
      fp += predicted[i] == c && set.labels[i] != c;
      fn += predicted[i] != c && set.labels[i] == c;
    }
    if (tp + fp + fn == 0) continue;
    ++classes;
    const double precision = tp + fp == 0 ? 0 : tp / (tp + fp);
    const double recall = tp + fn == 0 ? 0 : tp / (tp + fn);
    f1 += precision + recall == 0
              ? 0
              : 2 * precision * recall / (precision + recall);
  }
  double won = 0, pairs = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (set.signs[i] != 1 || set.signs[j] != 0) continue;
      ++pairs;
      won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  const auto count = static_cast<double>(n);
  return {right / count, f1 / classes, won / pairs, std::exp(sum / count),
          sum / count};
}

TEST_CASE("metrics of any batches are those of the set") {
  Measured measured;
  int defined = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Set set(1 + random() % 200, seed);
    const std::vector<double> wanted = Wanted(set);
    std::vector<int64_t> sizes;
    for (int64_t left = set.size(); left > 0; left -= sizes.back()) {
      sizes.push_back(std::min<int64_t>(left, random() % 20));
    }
    sizes.push_back(0);
    for (const std::vector<int64_t>& batches :
         {std::vector<int64_t>{set.size()}, sizes}) {
      const std::vector<double> got = measured.Of(set, batches);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        if (std::isnan(wanted[i])) {
          CHECK(std::isnan(got[i]));
        } else {
          ++defined;
          CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-6));
        }
      }
    }
  }
  CHECK(defined > 500);
}

double Value(const Metric& metric, const std::vector<Tensor>& values) {
  const auto state = metric.Begin();
  state->Add(values, values[0].elements());
  return state->Value();
}

TEST_CASE("figures that are not defined, and values that make no sense") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  const Output n = graph.Placeholder("n", DType::kInt64, {kUnknown});
  const Output s = graph.Placeholder("s", DType::kFloat32, {kUnknown});
  const Metric f1 = F1(x, n), curve = AreaUnderCurve(s, n);
  for (const Metric& metric : {f1, curve, Perplexity(s), Metric(s)}) {
    CHECK(std::isnan(metric.Begin()->Value()));
  }
  const auto ints = [](const std::vector<int64_t>& values) {
    Tensor tensor(DType::kInt64, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.data<int64_t>());
    return tensor;
  };
  CHECK(Value(f1, {ints({0, 1}), ints({0, 1})}) == 1);  // of two classes
  CHECK(Contains(ErrorOf([&] {
                   Value(f1, {ints({0}), ints({3})});
                 }),
                 "label 3 is none of 3 classes"));
  CHECK(Contains(ErrorOf([&] {
                   Value(f1, {ints({0}), ints({-1})});
                 }),
                 "label -1"));
  CHECK(Contains(ErrorOf([&] {
                   Value(f1, {ints({0}), ints({0, 1})});
                 }),
                 "1 predictions for 2 labels"));
  const Tensor two = Tensor::Array<float>({2}, {0.5f, 0.25f});
  CHECK(std::isnan(Value(curve, {two, ints({1, 1})})));
  CHECK(Value(curve, {two, ints({1, 0})}) == 1);
  CHECK(Value(curve, {two, ints({0, 1})}) == 0);
  CHECK(Contains(ErrorOf([&] {
                   Value(curve, {two, ints({2, 0})});
                 }),
                 "label 2, wanted 0 or 1"));
  CHECK(std::isnan(
      Value(curve, {Tensor::Array<float>({2}, {NAN, 1}), ints({1, 0})})));
  const Output open =
      graph.Placeholder("open", DType::kFloat32, {kUnknown, kUnknown});
  CHECK(Contains(ErrorOf([&] { F1(open, n); }), "wanted [n, classes]"));
}

TEST_CASE("where logits are no numbers no label is right") {
  for (const int64_t classes : {3, 37, 1000}) {
    Tensor logits(DType::kFloat32, {5, classes});
    float* const x = logits.data<float>();
    for (int64_t i = 0; i < logits.elements(); ++i) {
      x[i] = static_cast<float>(-(i % classes));
    }
    const float nan = std::nanf("");
    std::fill_n(x, classes, nan);
    x[classes] = nan;  // at the label
    x[2 * classes + 1] = nan;
    x[4 * classes - 1] = nan;
    Graph graph;
    const Output labels = graph.Constant(Tensor::Zeros(DType::kInt64, {5}));
    const Tensor right =
        Session(graph).Run({}, Accuracy(graph.Constant(logits), labels));
    for (int i = 0; i < 5; ++i) CHECK(right.At(i) == (i == 4 ? 1 : 0));
  }
}

TEST_CASE("F1: where logits are no numbers nothing is predicted") {
  const float nan = std::nanf("");
  Graph graph;
  const Output logits = graph.Constant(
      Tensor::Array<float>({4, 2}, {nan, nan, nan, 0, 0, 1, 1, 0}));
  const Output labels =
      graph.Constant(Tensor::Array<int64_t>({4}, {0, 0, 1, 0}));
  const NamedMetrics metrics = {{"f1", F1(logits, labels)}};
  MetricsOverSet set(metrics);
  set.Add(Session(graph).Run({}, TensorsOf(metrics)), 4);
  // Of class 0 one of three is found, and no other taken for it: 2 / (2 + 2).
  CHECK(set.Values()[0].second == 0.75);
  // As of another worker's.
  MetricsOverSet merged(metrics);
  merged.Merge(set.State());
  CHECK(merged.Values()[0].second == 0.75);
}

}  // namespace
}  // namespace sluice
