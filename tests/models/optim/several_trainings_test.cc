// Trainings in one graph, each of variables of its own, that are run in turn.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

constexpr int kRuns = 14;
constexpr float kHuge = 1e38F;  // times any scale of 8 or more: infinite

// loss = sum(w g), so that w's gradient is what is fed as g.
class Training {
 public:
  Training(Graph& graph, std::string name, const Optimizer& optimizer,
           bool of_several)
      : name_(std::move(name)),
        g_(graph.Placeholder(name_ + "_gradient", DType::kFloat32, {2})) {
    const Output w = graph.Variable(name_, Filled(1, {2}));
    const Output loss = Sum(w * g_);
    train_ =
        of_several ? optimizer.Minimize(loss, {w}) : optimizer.Minimize(loss);
  }
  void Run(Session& session, int run, bool overflows) const {
    const int own = static_cast<int>(name_.size());  // each has its gradients
    const float values[] = {
        static_cast<float>((7 * run + 3 * own) % 5) - 1.75F,
        overflows ? kHuge : static_cast<float>((3 * run + own) % 7) - 2.5F};
    session.Run({{g_, Tensor::Vector<float>(values)}}, train_);
  }

 private:
  std::string name_;
  Output g_;
  Operation train_;
};

// Where there is to be an overflow.
bool Overflows(int run) {
  return run == 3 || run == 4;
}

// The variable, its slots and its average.
void CheckSame(const Session& session, const Graph& graph,
               const Session& alone_session, const Graph& alone,
               const std::string& name) {
  int64_t compared = 0;
  for (const Output& variable : alone.Variables()) {
    if (variable.name() != name && !variable.name().starts_with(name + "/")) {
      continue;
    }
    CAPTURE(variable.name());
    const Tensor is = session.Read(graph.Get(variable.name()));
    const Tensor wanted = alone_session.Read(variable);
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      CHECK(is.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-6));
    }
    ++compared;
  }
  CHECK(compared > 0);
}

struct Alone {
  Graph graph;
  Training training;
  Session session{graph};
  Alone(const std::string& name, const Optimizer& optimizer)
      : training(graph, name, optimizer, false) {
    session.Initialize();
  }
};

// `overflow`: of the first. A graph has one loss scale.
void CheckInTurn(const Optimizer& first, const Optimizer& second,
                 bool overflow = false) {
  Graph graph;
  const Training d(graph, "d", first, true);
  const Training gen(graph, "gen", second, true);
  Session session(graph);
  session.Initialize();
  Alone only_d("d", first), only_gen("gen", second);
  const auto step = [&](const Training& training, Alone& alone,
                        const std::string& name, int run) {
    const bool overflows = overflow && name == "d" && Overflows(run);
    training.Run(session, run, overflows);
    alone.training.Run(alone.session, run, overflows);
    CheckSame(session, graph, alone.session, alone.graph, name);
  };
  for (int run = 0; run < kRuns; ++run) {
    CAPTURE(run);
    step(d, only_d, "d", run);
    step(gen, only_gen, "gen", run);
  }
  // By which schedules go, and of which there is one.
  CHECK(session.Read(GlobalStep(graph)).IntAt(0) == 2 * kRuns);
  CHECK(only_d.session.Read(GlobalStep(only_d.graph)).IntAt(0) == kRuns);
}

TEST_CASE("of two trainings in a graph each is as if it were alone") {
  const LossScaleOptions scaling = {.initial = 1024, .window = 3};
  const Optimizer adam = optimizers::Adam(0.1), sgd = optimizers::Sgd(0.1);
  SUBCASE("the number of updates") {
    CheckInTurn(adam, adam);
  }
  SUBCASE("accumulated gradients") {
    CheckInTurn(sgd.With(gradients::Accumulate(2)),
                adam.With(gradients::Accumulate(3)));
  }
  SUBCASE("averages") {
    CheckInTurn(sgd.WithAverages(0.9), adam.WithAverages(0.99));
  }
  SUBCASE("updates that are left out") {
    CheckInTurn(adam.WithLossScaling(scaling), adam, true);
    CheckInTurn(adam.WithAverages(0.9).WithLossScaling(scaling),
                sgd.WithAverages(0.9), true);
    CheckInTurn(sgd.With(gradients::Accumulate(2)).WithLossScaling(scaling),
                sgd.With(gradients::Accumulate(2)), true);
  }
}

TEST_CASE("two losses of one variable may be trained on in turn") {
  Graph graph;
  const Output w = graph.Variable("w", Filled(3, {}));
  const Optimizer sgd = optimizers::Sgd(0.5);
  const Operation to_one = sgd.Minimize((w - 1) * (w - 1), {w});
  const Operation to_five = sgd.Minimize((w - 5) * (w - 5) * 0.5, {w});
  Session session(graph);
  session.Initialize();
  session.Run({}, to_one);
  CHECK(session.Read(w).At(0) == 1);
  session.Run({}, to_five);
  CHECK(session.Read(w).At(0) == 3);
}

// It would take the other's runs for its own, whichever comes first.
TEST_CASE("of several trainings each names its variables") {
  const Optimizer adam = optimizers::Adam(0.1).WithAverages(0.9);
  for (const bool named_first : {false, true}) {
    for (const bool named_then : {false, true}) {
      CAPTURE(named_first);
      CAPTURE(named_then);
      Graph graph;
      const Training d(graph, "d", adam, named_first);
      const Output w = graph.Variable("w", Filled(1, {}));
      const int line = __LINE__ + 3;
      const std::string error = ErrorOf([&] {
        const std::vector<Output> variables = {w};
        named_then ? adam.Minimize(w * w, variables) : adam.Minimize(w * w);
      });
      if (named_first && named_then) {
        CHECK(error == "(no error)");
        continue;
      }
      CHECK(Contains(error,
                     "of several trainings in a graph each names its "
                     "variables"));
      CHECK(
          Contains(error, "several_trainings_test.cc:" + std::to_string(line)));
      // Nothing of it is left.
      CHECK(graph.Find("w/average") == nullptr);
    }
  }
}

TEST_CASE("of several trainings one has a loss scale") {
  Graph graph;
  const Optimizer sgd = optimizers::Sgd(0.1).WithLossScaling();
  const Training d(graph, "d", sgd, true);
  const Output w = graph.Variable("w", Filled(1, {}));
  CHECK(Contains(ErrorOf([&] { sgd.Minimize(w * w, {w}); }),
                 "a graph has one loss scale"));
  CHECK_NOTHROW(optimizers::Sgd(0.1).Minimize(w * w, {w}));
}

}  // namespace
}  // namespace sluice
