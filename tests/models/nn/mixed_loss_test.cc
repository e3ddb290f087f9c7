// The loss of mixed examples, against that of soft labels summed up in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/losses.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using doctest::Approx;
using testing::Contains;
using testing::ErrorOf;
using testing::Random;
using Weights = std::vector<double>;

constexpr int64_t kClasses = 5;

struct Batch {
  std::vector<float> logits;  // [n, kClasses]
  std::vector<int64_t> labels, others;
  std::vector<float> shares;

  Batch(int64_t n, Random& random) {
    for (int64_t i = 0; i < n; ++i) {
      labels.push_back(random.Between(0, kClasses - 1));
      others.push_back(random.Between(0, kClasses - 1));
      const auto share = static_cast<float>(random.Real(0, 1));
      shares.push_back(random.Chance(5) ? std::round(share) : share);
      for (int64_t c = 0; c < kClasses; ++c) {
        logits.push_back(static_cast<float>(random.Real(-5, 5)));
      }
    }
  }
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

struct LossAndGradient {
  double loss = 0;
  std::vector<double> gradient;  // [n, kClasses]
};

// -sum(target * log(softmax)) of one example, times `factor`, added.
void AddCrossEntropy(const float* logits, const std::vector<double>& target,
                     double factor, double* loss, double* gradient) {
  double sum = 0, whole = 0;
  for (int64_t c = 0; c < kClasses; ++c) {
    sum += std::exp(logits[c]);
    whole += target[c];
  }
  for (int64_t c = 0; c < kClasses; ++c) {
    const double p = std::exp(logits[c]) / sum;
    *loss -= factor * target[c] * std::log(p);
    gradient[c] += factor * (whole * p - target[c]);
  }
}

// Smoothed probabilities of an example's two labels, which have `weights`.
LossAndGradient Wanted(const Batch& batch, const Weights& weights,
                       double smoothing) {
  LossAndGradient wanted;
  wanted.gradient.assign(batch.logits.size(), 0);
  double total = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    std::vector<double> soft(kClasses);
    soft[batch.labels[i]] += (1.0 - batch.shares[i]) * weights[batch.labels[i]];
    soft[batch.others[i]] += 1.0 * batch.shares[i] * weights[batch.others[i]];
    const double weight = std::accumulate(soft.begin(), soft.end(), 0.0);
    total += weight;
    for (double& p : soft) {
      p = (1 - smoothing) * p + smoothing * weight / kClasses;
    }
    AddCrossEntropy(batch.logits.data() + i * kClasses, soft, 1, &wanted.loss,
                    wanted.gradient.data() + i * kClasses);
  }
  if (total == 0) total = 1;
  wanted.loss /= total;
  for (double& g : wanted.gradient) g /= total;
  return wanted;
}

struct Mixed {
  Graph graph;
  DType dtype;
  Output logits = graph.Placeholder("logits", dtype, {kUnknown, kClasses});
  Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  Output other = graph.Placeholder("other", DType::kInt64, {kUnknown});
  Output share = graph.Placeholder("share", DType::kFloat32, {kUnknown});
  Output loss, gradient;
  Session session;

  Mixed(const Weights& weights, double smoothing, DType of = DType::kFloat32)
      : dtype(of),
        loss(losses::MixedSoftmaxCrossEntropy(
            logits, {.label = label, .other = other, .share = share},
            {.label_smoothing = smoothing}, weights)),
        gradient(Gradients({loss}, {logits})[0]),
        session(graph) {}

  void CheckAgainst(const Batch& batch, const LossAndGradient& wanted) {
    const int64_t n = batch.size();
    Tensor values(dtype, {n, kClasses});
    for (int64_t i = 0; i < values.elements(); ++i) {
      if (dtype == DType::kFloat32) {
        values.data<float>()[i] = batch.logits[i];
      } else {
        values.data<double>()[i] = batch.logits[i];
      }
    }
    const std::vector<Tensor> got =
        session.Run({{logits, values},
                     {label, Tensor::Vector<int64_t>(batch.labels)},
                     {other, Tensor::Vector<int64_t>(batch.others)},
                     {share, Tensor::Vector<float>(batch.shares)}},
                    std::vector<Output>{loss, gradient});
    CHECK(got[0].At(0) == Approx(wanted.loss).epsilon(1e-5));
    REQUIRE(got[1].elements() == std::ssize(wanted.gradient));
    for (int64_t i = 0; i < got[1].elements(); ++i) {
      REQUIRE(got[1].At(i) ==
              Approx(wanted.gradient[i]).scale(1).epsilon(1e-6));
    }
  }
};

TEST_CASE("the loss of mixtures is that of soft labels") {
  Random random(1);
  const Weights none(kClasses, 1.0);
  for (const double smoothing : {0.0, 0.1, 0.7}) {
    Mixed plain({}, smoothing), in_double({}, smoothing, DType::kFloat64);
    const Weights uneven = {0.25, 3, 0, 1, 17};
    Mixed even(none, smoothing), weighted(uneven, smoothing);
    for (int round = 0; round < 40; ++round) {
      const Batch batch(random.Between(1, 20), random);
      const LossAndGradient wanted = Wanted(batch, none, smoothing);
      plain.CheckAgainst(batch, wanted);
      in_double.CheckAgainst(batch, wanted);
      even.CheckAgainst(batch, wanted);
      weighted.CheckAgainst(batch, Wanted(batch, uneven, smoothing));
    }
  }
}

TEST_CASE("mixtures with nothing have the loss of their labels") {
  Random random(2);
  const Weights weights = {0.25, 3, 0.5, 1, 17};
  for (const Weights& of : {Weights(), weights}) {
    Mixed mixed(of, 0.1);
    const Output sparse = losses::SparseSoftmaxCrossEntropy(
        mixed.logits, mixed.label, {.label_smoothing = 0.1}, of);
    Batch batch(9, random);
    std::fill(batch.shares.begin(), batch.shares.end(), 0.0F);
    const std::vector<Tensor> got =
        Session(mixed.graph)
            .Run({{mixed.logits,
                   Tensor::Array<float>({9, kClasses}, batch.logits)},
                  {mixed.label, Tensor::Vector<int64_t>(batch.labels)},
                  {mixed.other, Tensor::Vector<int64_t>(batch.others)},
                  {mixed.share, Tensor::Vector<float>(batch.shares)}},
                 std::vector<Output>{mixed.loss, sparse});
    CHECK(got[0].At(0) == Approx(got[1].At(0)).epsilon(1e-6));
  }
}

// The third class is masked: its loss is infinite.
TEST_CASE("what a mixture has nothing of may be infinite") {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  Random random(3);
  Batch batch(0, random);
  batch.logits = {0, 1, kMasked, 0.5F, 2, 1, 0, kMasked, 2, 1};
  batch.labels = {0, 2};
  batch.others = {2, 1};
  batch.shares = {0, 1};
  // The losses of class 0 and class 1 of the two examples.
  const auto loss = [&](int64_t row, int64_t label) {
    double sum = 0;
    for (int64_t c = 0; c < kClasses; ++c) {
      sum += std::exp(static_cast<double>(batch.logits[row * kClasses + c]));
    }
    return std::log(sum) - batch.logits[row * kClasses + label];
  };
  const double of_0 = loss(0, 0), of_1 = loss(1, 1);
  for (const Weights& weights : {Weights(), Weights{2, 3, 4, 1, 1}}) {
    Mixed mixed(weights, 0);
    const double wanted =
        weights.empty() ? (of_0 + of_1) / 2 : (2 * of_0 + 3 * of_1) / 5;
    const std::vector<Tensor> got = mixed.session.Run(
        {{mixed.logits, Tensor::Array<float>({2, kClasses}, batch.logits)},
         {mixed.label, Tensor::Vector<int64_t>(batch.labels)},
         {mixed.other, Tensor::Vector<int64_t>(batch.others)},
         {mixed.share, Tensor::Vector<float>(batch.shares)}},
        std::vector<Output>{mixed.loss, mixed.gradient});
    CHECK(got[0].At(0) == Approx(wanted).epsilon(1e-6));
    for (int64_t i = 0; i < got[1].elements(); ++i) {
      CHECK(std::isfinite(got[1].At(i)));
    }
  }
}

TEST_CASE("shares are one for each example, or one for all") {
  Graph graph;
  const auto of = [&](const Shape& shape) {
    return ErrorOf([&] {
      const auto placeholder = [&](const char* name, DType dtype,
                                   const Shape& of_it) {
        return graph.Placeholder(graph.UniqueName(name), dtype, of_it);
      };
      (void)losses::MixedSoftmaxCrossEntropy(
          placeholder("logits", DType::kFloat32, {kUnknown, kClasses}),
          {placeholder("label", DType::kInt64, {kUnknown}),
           placeholder("other", DType::kInt64, {kUnknown}),
           placeholder("share", DType::kFloat32, shape)});
    });
  };
  CHECK(of({kUnknown}) == "(no error)");
  CHECK(of({}) == "(no error)");
  CHECK(Contains(of({kUnknown, 1}), "one for all, got [?,1]"));
}

TEST_CASE("weights for other classes are told") {
  CHECK(Contains(ErrorOf([] {
                   Mixed({1, 2}, 0);
                 }),
                 "MixedSoftmaxCrossEntropy: 2 class weights for the 5"));
}

}  // namespace
}  // namespace sluice
