// Losses and metrics of predictions and targets: a target for each prediction,
// or one for all; other shapes, which would broadcast, are refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Random;

struct Loss {
  std::string name;
  std::function<Output(Operand, Operand)> of;
  double (*each)(double distance);
};
const std::vector<Loss>& Losses() {
  static const std::vector<Loss> losses = {
      {"MeanSquaredError", MeanSquaredError, [](double d) { return d * d; }},
      {"Huber", [](Operand a, Operand b) { return losses::Huber(a, b, 1); },
       [](double d) { return d <= 1 ? d * d / 2 : d - 0.5; }},
      {"AbsoluteError", AbsoluteError, [](double d) { return d; }}};
  return losses;
}

Tensor Values(const Shape& shape, Random& random) {
  Tensor values(DType::kFloat32, shape);
  for (float& v : values.values<float>()) {
    v = static_cast<float>(random.Between(-9, 9));
  }
  return values;
}

double MeanOf(const Tensor& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.elements(); ++i) sum += x.At(i);
  return sum / static_cast<double>(x.elements());
}

// One line that says who it is, and both shapes.
void CheckRefused(const std::string& error, const std::string& who,
                  const Shape& a, const Shape& b) {
  CHECK(error.starts_with(who + ": "));
  CHECK(Contains(error, a.ToString()));
  CHECK(Contains(error, b.ToString()));
  CHECK(Contains(error, "target_shapes_test.cc:"));
  CHECK(error.find('\n') == error.npos);
}

const Shape kShapes[] = {{3}, {3, 1}, {1, 3}, {1}, {4}, {3, 2}, {3, 2, 1}, {}};

TEST_CASE("predictions and targets have one shape, or there is one target") {
  Random random(3);
  for (const Loss& loss : Losses()) {
    for (const Shape& given : kShapes) {
      for (const Shape& wanted : kShapes) {
        CAPTURE(loss.name);
        CAPTURE(given.ToString());
        CAPTURE(wanted.ToString());
        Graph graph;
        const Tensor x = Values(given, random), t = Values(wanted, random);
        const Output predictions = graph.Constant(x);
        const Output targets = graph.Constant(t);
        if (!wanted.scalar() && !(given == wanted)) {
          CheckRefused(ErrorOf([&] { loss.of(predictions, targets); }),
                       loss.name, given, wanted);
          continue;
        }
        double sum = 0;
        for (int64_t i = 0; i < x.elements(); ++i) {
          sum += loss.each(std::abs(x.At(i) - t.At(wanted.scalar() ? 0 : i)));
        }
        Session session(graph);
        CHECK(MeanOf(session.Run({}, loss.of(predictions, targets))) ==
              doctest::Approx(sum / static_cast<double>(x.elements())));
      }
    }
    Graph graph;
    const Output batch =
        graph.Placeholder("batch", DType::kFloat32, {kUnknown, 1});
    const Output flat = graph.Placeholder("flat", DType::kFloat32, {kUnknown});
    CheckRefused(ErrorOf([&] { loss.of(batch, flat); }), loss.name,
                 batch.shape(), flat.shape());
    CHECK_NOTHROW(loss.of(batch, batch));
    CHECK_NOTHROW(loss.of(batch, 0.5));
  }
}

TEST_CASE("accuracy is of one label for each row of logits") {
  Graph graph;
  const Output logits =
      graph.Constant(Tensor::Array<float>({3, 2}, {1, 2, 4, 3, 5, 6}));
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.ToString());
      const Output labels = graph.Constant(Tensor::Full(dtype, shape, 1));
      if (shape == Shape{3}) {
        const Tensor right = Session(graph).Run({}, Accuracy(logits, labels));
        CHECK(right.shape() == Shape{3});
        CHECK(MeanOf(right) == doctest::Approx(2. / 3));
      } else {
        CheckRefused(ErrorOf([&] { Accuracy(logits, labels); }), "Accuracy",
                     logits.shape(), shape);
      }
    }
  }
}

// Placeholders whose lengths are not known, and what is fed: [3,5] or [3,1].
struct Fed {
  Graph graph;
  Output all = graph.Placeholder("all", DType::kFloat32, {kUnknown, kUnknown});
  Output one = graph.Placeholder("one", DType::kFloat32, {kUnknown, 1});
  Tensor many, few, others;
  explicit Fed(Random& random)
      : many(Values({3, 5}, random)),
        few(Values({3, 1}, random)),
        others(Values({3, 1}, random)) {}
  // y of `few` and `others`. Of `many` and `few` the step fails, by y's line.
  Tensor Run(const Output& y) {
    Session session(graph);
    const std::string error = ErrorOf([&] {
      session.Run({{all, many}, {one, few}}, y);
    });
    CHECK(Contains(error, "[3,5]"));
    CHECK(Contains(error, "[3,1]"));
    CHECK(Contains(error, "target_shapes_test.cc:"));
    return session.Run({{all, few}, {one, others}}, y);
  }
};

TEST_CASE("lengths that are known when a step is fed are the same") {
  Random random(7);
  for (const Loss& loss : Losses()) {
    CAPTURE(loss.name);
    for (const bool turned : {false, true}) {
      Fed fed(random);
      const Tensor got = fed.Run(turned ? loss.of(fed.one, fed.all)
                                        : loss.of(fed.all, fed.one));
      double sum = 0;
      for (int i = 0; i < 3; ++i) {
        sum += loss.each(std::abs(fed.few.At(i) - fed.others.At(i)));
      }
      CHECK(MeanOf(got) == doctest::Approx(sum / 3));
    }
  }
  for (const bool turned : {false, true}) {
    Fed fed(random);
    for (float& weight : fed.few.values<float>()) weight = std::abs(weight) + 1;
    for (float& weight : fed.others.values<float>()) {
      weight = std::abs(weight) + 1;
    }
    const Tensor got = fed.Run(turned ? losses::WeightedMean(fed.one, fed.all)
                                      : losses::WeightedMean(fed.all, fed.one));
    double sum = 0, total = 0;
    for (int i = 0; i < 3; ++i) {
      sum += fed.few.At(i) * fed.others.At(i);
      total += (turned ? fed.few : fed.others).At(i);
    }
    CHECK(got.At(0) == doctest::Approx(sum / total));
  }
}

TEST_CASE("gradients of what is known when a step is fed") {
  Random random(9);
  Fed fed(random);
  const Output loss = MeanSquaredError(fed.all, fed.one);
  const std::vector<Output> gradients = Gradients({loss}, {fed.all, fed.one});
  Session session(fed.graph);
  const std::vector<Tensor> got =
      session.Run({{fed.all, fed.few}, {fed.one, fed.others}}, gradients);
  for (int i = 0; i < 3; ++i) {
    const double slope = 2 * (fed.few.At(i) - fed.others.At(i)) / 3;
    CHECK(got[0].At(i) == doctest::Approx(slope));
    CHECK(got[1].At(i) == doctest::Approx(-slope));
  }
}

TEST_CASE("labels and shares of as many examples as are fed") {
  Graph graph;
  const Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kUnknown, 2});
  const Output labels = graph.Placeholder("labels", DType::kInt64, {kUnknown});
  const Output share = graph.Placeholder("share", DType::kFloat32, {kUnknown});
  const Output right = Accuracy(logits, labels);
  const Output mixed =
      losses::MixedSoftmaxCrossEntropy(logits, {labels, labels, share});
  const Tensor three = Tensor::Array<float>({3, 2}, {1, 2, 4, 3, 5, 6});
  const Tensor ones = Tensor::Full(DType::kInt64, {3}, 1);
  const Tensor one = Tensor::Full(DType::kInt64, {1}, 1);
  Session session(graph);
  CHECK(MeanOf(session.Run({{logits, three}, {labels, ones}}, right)) ==
        doctest::Approx(2. / 3));
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{logits, three}, {labels, one}}, right);
                 }),
                 "target_shapes_test.cc:"));
  const auto run_mixed = [&](const Tensor& shares) {
    return session.Run({{logits, three}, {labels, ones}, {share, shares}},
                       mixed);
  };
  // Of one label twice, the loss of that one: log(1 + exp(d)), d being by how
  // much the other logit is larger.
  const double wanted =
      (2 * std::log1p(std::exp(-1)) + std::log1p(std::exp(1))) / 3;
  CHECK(run_mixed(Tensor::Full(DType::kFloat32, {3}, 0.25)).At(0) ==
        doctest::Approx(wanted));
  CHECK(Contains(
      ErrorOf([&] { run_mixed(Tensor::Full(DType::kFloat32, {1}, 0.25)); }),
      "target_shapes_test.cc:"));
}

}  // namespace
}  // namespace sluice
