// Losses and metrics of predictions and targets: a target for each prediction,
// or one for all; other shapes, which would broadcast, are refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace sluice
