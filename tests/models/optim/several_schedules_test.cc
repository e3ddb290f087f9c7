// The learning rates of several trainings in one graph, each by its own runs,
// against sums in double; and two trainings in one run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "engine/status.h"
#include "graph/builder.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/session/session.h"
#include "io/checkpoints/checkpoint.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;

constexpr int64_t kLength = 10;  // of the cosine, in runs

double CosineAt(int64_t run) {
  const double progress =
      std::min(static_cast<double>(run) / static_cast<double>(kLength), 1.0);
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

// Trainings of a and b, whose gradients are 1; b's adds up two runs.
struct Two {
  Graph graph;
  Output a, b;
  Operation train_a, train_b;
  std::unique_ptr<Session> session;

  explicit Two(int64_t accumulate = 1)
      : a(graph.Variable("a", Zeros({}))), b(graph.Variable("b", Zeros({}))) {
    const Optimizer sgd = optimizers::Sgd(schedules::Cosine(1, kLength));
    train_a = sgd.Minimize(1 * a, {a});
    train_b = sgd.With(gradients::Accumulate(accumulate)).Minimize(1 * b, {b});
    session = std::make_unique<Session>(graph);
    session->Initialize();
  }
  double At(const Output& variable) const {
    return session->Read(variable).At(0);
  }
};

// What a checkpoint holds, as a training that is started again has it.
void Resume(const Two& from, const Two& to) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint.safetensors";
  Checkpoint checkpoint;
  for (const Output& variable : from.graph.Variables()) {
    checkpoint.tensors.push_back(
        {variable.name(), from.session->Read(variable)});
  }
  REQUIRE(WriteCheckpoint(path, checkpoint).ok());
  const Result<Checkpoint> read = ReadCheckpoint(path);
  REQUIRE(read.ok());
  for (const NamedTensor& named : read->tensors) {
    to.session->Write(to.graph.Get(named.name), named.tensor);
  }
}

TEST_CASE("each of several trainings has its learning rate by its own runs") {
  SUBCASE("in turn, to the end of the schedule") {
    const Two two;
    double wanted = 0;
    for (int64_t run = 0; run < kLength; ++run) {
      CAPTURE(run);
      two.session->Run({}, two.train_a);
      two.session->Run({}, two.train_b);
      wanted -= CosineAt(run);
      CHECK(two.At(two.a) == doctest::Approx(wanted).epsilon(1e-6));
      CHECK(two.At(two.b) == doctest::Approx(wanted).epsilon(1e-6));
    }
    CHECK(wanted == doctest::Approx(-5.5));  // PyTorch's CosineAnnealingLR
  }
  SUBCASE("one oftener than the other, and resumed in between") {
    constexpr int64_t kAccumulate = 2;
    for (const unsigned seed : {1U, 2U, 3U}) {
      CAPTURE(seed);
      std::mt19937 random(seed);
      auto two = std::make_unique<Two>(kAccumulate);
      double wanted_a = 0, wanted_b = 0;
      int64_t runs_a = 0, runs_b = 0;
      for (int run = 0; run < 30; ++run) {
        CAPTURE(run);
        if (run % 8 == 7) {
          auto again = std::make_unique<Two>(kAccumulate);
          Resume(*two, *again);
          two = std::move(again);
        }
        if (random() % 3 == 0) {
          two->session->Run({}, two->train_a);
          wanted_a -= CosineAt(runs_a++);
        } else {
          two->session->Run({}, two->train_b);
          const double rate = CosineAt(runs_b++);
          if (runs_b % kAccumulate == 0) wanted_b -= rate;
        }
        CHECK(two->At(two->a) == doctest::Approx(wanted_a).epsilon(1e-6));
        CHECK(two->At(two->b) == doctest::Approx(wanted_b).epsilon(1e-6));
        CHECK(two->session->Read(GlobalStep(two->graph)).IntAt(0) ==
              runs_a + runs_b);
      }
      CHECK(runs_a != runs_b);
    }
  }
}

TEST_CASE("two trainings in one run are ordered by a ControlScope") {
  Graph graph;
  const Output a = graph.Variable("a", Zeros({}));
  const Output b = graph.Variable("b", Filled(2, {}));
  // Of the latter the gradient reads a again.
  const Output loss_a = 1 * a, loss_b = Tanh(0.1 * a * b);
  const Optimizer sgd = optimizers::Sgd(schedules::Cosine(1, kLength));
  const Operation train_a = sgd.Minimize(loss_a, {a});
  const Operation apart = sgd.Minimize(loss_b, {b});
  Operation both;
  {
    const ControlScope after(graph, {train_a});
    both = sgd.Minimize(loss_b, {b});
  }
  Session session(graph);
  session.Initialize();
  const std::string error = ErrorOf([&] {
    session.Run({}, Group(graph, {train_a, apart}));
  });
  CHECK(Contains(error, "variable 'global_step'"));
  CHECK(Contains(error, "build the one inside a ControlScope of the other"));

  double wanted_a = 0, wanted_b = 2;
  int64_t runs_a = 0, runs_both = 0;
  for (int run = 0; run < 12; ++run) {
    CAPTURE(run);
    const double before = wanted_a;
    wanted_a -= CosineAt(runs_a++);
    if (run % 3 == 0) {
      session.Run({}, train_a);
    } else {
      session.Run({}, both);
      const double tanh = std::tanh(0.1 * before * wanted_b);
      wanted_b -= CosineAt(runs_both++) * 0.1 * before * (1 - tanh * tanh);
    }
    CHECK(session.Read(a).At(0) == doctest::Approx(wanted_a).epsilon(1e-6));
    CHECK(session.Read(b).At(0) == doctest::Approx(wanted_b).epsilon(1e-6));
    CHECK(session.Read(GlobalStep(graph)).IntAt(0) == runs_a + runs_both);
  }
}

}  // namespace
}  // namespace sluice
