// Frozen sessions: variables that became constants.
#include <doctest/doctest.h>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

TEST_CASE("a frozen session computes the same with fewer nodes") {
  Graph graph;
  const Scope root(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 6, 6, 3});
  Output y = layers::Conv2D(root / "conv", x, {.filters = 8});
  y = layers::BatchNorm(root / "norm", y, {.activation = Relu});
  y = layers::Dense(root / "logits", layers::Flatten(y), {.units = 4});
  Session session(graph);
  session.Initialize();
  // Statistics that matter.
  for (const Output& variable : graph.Variables()) {
    Tensor value = session.Read(variable);
    for (int64_t i = 0; i < value.elements(); ++i) {
      value.data<float>()[i] += 0.1f + 0.05f * static_cast<float>(i % 7);
    }
    session.Write(variable, value);
  }
  const Tensor image = Ramp({2, 6, 6, 3});
  const PreparedStep before = session.Prepare({{x, image.shape()}}, {y});
  const Tensor wanted = session.Run({{x, image}}, y);

  session.Freeze();
  const Tensor got = session.Run({{x, image}}, y);
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    CHECK(got.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-5));
  }
  const StepInfo info = session.Prepare({{x, image.shape()}}, {y}).info();
  CHECK(info.constant_bytes > 0);
  CHECK(info.nodes <= before.info().nodes);

  const Output filter = graph.Variables()[0];
  CHECK(Contains(ErrorOf([&] { session.Write(filter, session.Read(filter)); }),
                 "frozen"));
  const Operation train = optimizers::Sgd(0.1).Minimize(Sum(y));
  const std::string message = ErrorOf([&] {
    session.Run({{x, image}}, train);
  });
  CHECK(Contains(message, "frozen"));
  CHECK(Contains(message, "freeze_test.cc"));
}

// The frozen steps' constants are what the variables were.
TEST_CASE("nothing writes to a frozen session's variables") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 6});
  const Output y = layers::Dense(Scope(graph, "dense"), x, {.units = 4}) + 0.5;
  const Operation train = optimizers::Sgd(0.1).Minimize(Sum(y));
  Session session(graph);
  session.Initialize();
  const Tensor image = Ramp({2, 6});
  PreparedStep prepared = session.Prepare({{x, image.shape()}}, {}, {train});
  prepared.Run(std::vector<Tensor>{image}, {});
  session.Freeze();
  const Tensor wanted = session.Run({{x, image}}, y);
  CHECK(Contains(ErrorOf([&] { prepared.Run(std::vector<Tensor>{image}, {}); }),
                 "frozen"));
  for (const Output& variable : graph.Variables()) {
    if (variable.shape().rank() == 0) continue;
    CAPTURE(variable.name());
    const Tensor row = session.Read(variable).Rows(0, 1).Clone();
    CHECK(Contains(ErrorOf([&] { session.WriteRows(variable, 0, row); }),
                   "frozen"));
    CHECK(Contains(
        ErrorOf([&] { session.Write(variable, session.Read(variable)); }),
        "frozen"));
  }
  CHECK(Contains(ErrorOf([&] { session.Initialize(); }), "frozen"));
  for (const Output& none : {Output(), x}) {
    CHECK(Contains(ErrorOf([&] { session.Write(none, image); }),
                   "is not a variable"));
  }
  CHECK(session.Run({{x, image}}, y).BitEqual(wanted));
}

}  // namespace
}  // namespace sluice
