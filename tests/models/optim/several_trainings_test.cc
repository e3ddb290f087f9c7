// Trainings in one graph, each of variables of its own, or several of one, that
// are run in turn.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/dist/collective/ranks.h"
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
  void Run(Session& session, int run, bool overflows,
           std::vector<Feed> feeds = {}) const {
    const int own = static_cast<int>(name_.size());  // each has its gradients
    const float values[] = {
        static_cast<float>((7 * run + 3 * own) % 5) - 1.75F,
        overflows ? kHuge : static_cast<float>((3 * run + own) % 7) - 2.5F};
    feeds.push_back({g_, Tensor::Vector<float>(values)});
    session.Run(feeds, train_);
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
  // Of which there is one.
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
  SUBCASE("schedules") {
    CheckInTurn(sgd.WithLearningRate(schedules::Cosine(1, kRuns)),
                adam.WithLearningRate(schedules::StepDecay(0.1, 0.5, 3)));
    CheckInTurn(sgd.WithLearningRate(schedules::WarmUp(kRuns, 1))
                    .With(gradients::Accumulate(2))
                    .WithLossScaling(scaling),
                sgd.WithLearningRate(schedules::Piecewise({4, 9}, {3, 2, 1})),
                true);
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

// What one training of a variable keeps of it.
struct KeptByAdam {
  double m = 0, v = 0, sum = 0;
  int runs = 0, updates = 0;
  void Run(double gradient, int accumulates, double* w) {
    sum += gradient;
    if (++runs % accumulates != 0) return;
    const double g = sum / accumulates;
    sum = 0;
    ++updates;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    *w -= 0.1 * m / (1 - std::pow(0.9, updates)) /
          (std::sqrt(v / (1 - std::pow(0.999, updates))) + 1e-8);
  }
};

TEST_CASE("each of several trainings of a variable has slots of its own") {
  const std::vector<int> numbers[] = {{1, 1}, {1, 1, 1}, {2, 3, 2}};
  std::mt19937 random(1);
  for (const std::vector<int>& accumulates : numbers) {
    const auto count = accumulates.size();
    CAPTURE(count);
    Graph graph;
    const Output w = graph.Variable("w", Filled(1, {}));
    const Output g = graph.Placeholder("g", DType::kFloat32, {});
    std::vector<Operation> trainings;
    for (const int n : accumulates) {
      trainings.push_back(optimizers::Adam(0.1)
                              .With(gradients::Accumulate(n))
                              .Minimize(w * g, {w}));
    }
    std::vector<KeptByAdam> by_hand(count);
    double wanted = 1;
    Session session(graph);
    session.Initialize();
    for (int run = 0; run < 40; ++run) {
      CAPTURE(run);
      const size_t i = random() % count;
      const double gradient = static_cast<double>(random() % 8) / 4 - 0.75;
      session.Run({{g, Tensor::Scalar(static_cast<float>(gradient))}},
                  trainings[i]);
      by_hand[i].Run(gradient, accumulates[i], &wanted);
      CHECK(session.Read(w).At(0) == doctest::Approx(wanted).epsilon(1e-4));
      for (size_t k = 0; k < count; ++k) {
        CAPTURE(k);
        const std::string number = k == 0 ? "" : "_" + std::to_string(k);
        const auto check = [&](const std::string& slot, double value) {
          CHECK(session.Read(graph.Get("w/" + slot + number)).At(0) ==
                doctest::Approx(value).epsilon(1e-4).scale(0.01));
        };
        check("m", by_hand[k].m);
        check("v", by_hand[k].v);
        if (accumulates[k] == 1) continue;
        check("gradient_sum", by_hand[k].sum);
        CHECK(IsAccumulatedGradient("w/gradient_sum" + number));
      }
    }
  }
  for (const char* name : {"gradient_sum", "w/gradient_sum_", "w/gradient_sums",
                           "w/gradient_sum_1a", "w/gradient_sum/1"}) {
    CAPTURE(name);
    CHECK_FALSE(IsAccumulatedGradient(name));
  }
}

TEST_CASE("of several trainings of a variable one averages it") {
  Graph graph;
  const Output w = graph.Variable("w", Filled(1, {}));
  const Optimizer sgd = optimizers::Sgd(0.1).WithAverages(0.9);
  sgd.Minimize(w * w, {w});
  const std::string error = ErrorOf([&] { sgd.Minimize(-w, {w}); });
  CHECK(Contains(error, "WithAverages: there is 'w/average' already"));
  CHECK(Contains(error, "several_trainings_test.cc:"));
  CHECK_NOTHROW(optimizers::Sgd(0.1).Minimize(-w, {w}));
}

// All trainings of a graph run Graph::updates.
TEST_CASE("what a loss scale leaves out another training does not") {
  std::mt19937 random(1);
  for (const bool scaled_first : {false, true}) {
    CAPTURE(scaled_first);
    Graph graph;
    const Scope root(graph);
    const Output x = graph.Placeholder("x", DType::kFloat32, {4, 1});
    const Output count =
        graph.Variable("count", Zeros({}, DType::kInt64), {.trainable = false});
    layers::BatchNorm(root / "norm", x, {.training = true, .momentum = 0.5});
    graph.AddUpdate(Group(graph, {AssignAdd(count, 1)}));
    const Optimizer sgd = optimizers::Sgd(0.1), scaled = sgd.WithLossScaling();
    const Training first(graph, "d", scaled_first ? scaled : sgd, true);
    const Training second(graph, "gen", scaled_first ? sgd : scaled, true);
    Session session(graph);
    session.Initialize();
    double mean = 0;
    int64_t counted = 0, skipped = 0;
    for (int run = 0; run < 24; ++run) {
      CAPTURE(run);
      const bool scales = random() % 2 == 0;
      const bool overflows = scales && random() % 3 == 0 && skipped < 8;
      Tensor batch(DType::kFloat32, {4, 1});
      double sum = 0;
      for (float& value : batch.values<float>()) {
        value = static_cast<float>(random() % 16) / 4;
        sum += value;
      }
      (scales == scaled_first ? first : second)
          .Run(session, run, overflows, {{x, batch}});
      if (overflows) {
        ++skipped;
      } else {
        mean = 0.5 * mean + 0.5 * (sum / 4);
        ++counted;
      }
      CHECK(session.Read(graph.Get("norm/running_mean")).At(0) ==
            doctest::Approx(mean).epsilon(1e-5));
      CHECK(session.Read(count).IntAt(0) == counted);
    }
    CHECK(skipped > 0);
    CHECK(counted > 8);
    CHECK(session.Read(graph.Get("loss_scale/skipped_steps")).IntAt(0) ==
          skipped);
  }
}

// Because it is not an update by itself, which a training may have twice.
TEST_CASE("what no loss scale can leave out for its training is refused") {
  const Optimizer sgd = optimizers::Sgd(0.1), scaled = sgd.WithLossScaling();
  enum class On { kUpdate, kGradient, kLoss };  // on whose way the write is
  for (const On on : {On::kUpdate, On::kGradient, On::kLoss}) {
    for (const bool scaled_first : {false, true}) {
      const bool listed = on == On::kUpdate;
      CAPTURE(static_cast<int>(on));
      CAPTURE(scaled_first);
      Graph graph;
      const Output w = graph.Variable("w", Filled(1, {}));
      const Output u = graph.Variable("u", Filled(1, {}));
      const auto statistic = [&](const char* name) {
        return graph.Variable(name, Zeros({}), {.trainable = false});
      };
      const Output mean = statistic("mean"), last = statistic("last");
      const Output moved = StopGradient(Assign(mean, mean + 1));
      if (listed) graph.AddUpdate(Assign(last, 2 * moved));
      const auto train = [&](bool scales, const Output& v) {
        if (scales) {
          scaled.Minimize(listed ? v * v : v * v + moved, {v});
        } else {
          sgd.Minimize(listed                ? v * v
                       : on == On::kGradient ? v * moved
                                             : v * v + moved,
                       {v});
        }
      };
      train(scaled_first, w);
      CHECK(Contains(ErrorOf([&] { train(!scaled_first, u); }),
                     "updates 'mean' in several trainings of the graph"));
    }
  }
}

// Whose all-reduces the graph has had before, or has later, is nothing to it:
// what the other alone needs is not fed.
TEST_CASE("trainings that meet in all-reduces are run in turn, each alone") {
  const Optimizer sgd = optimizers::Sgd(0.1).WithAllReduce();
  for (const bool assigns : {false, true}) {
    for (const int scaled : {0, 1, 2}) {  // neither, the first, the second
      CAPTURE(assigns);
      CAPTURE(scaled);
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {4});
      const Output stat =
          graph.Variable("stat", Zeros({}), {.trainable = false});
      graph.AddUpdate(assigns ? Assign(stat, Mean(x))
                              : AssignAdd(stat, Mean(x)));
      const auto train = [&](int place, const char* name) {
        return Training(graph, name,
                        place == scaled ? sgd.WithLossScaling() : sgd, true);
      };
      const Training first = train(1, "d"), second = train(2, "gen");
      Session session(graph);
      session.Initialize();
      float sum = 0;
      for (int run = 0; run < 6; ++run) {
        CAPTURE(run);
        const auto mean = static_cast<float>(run + 2);
        (run % 2 == 0 ? first : second)
            .Run(session, run, false,
                 {{x, Tensor::Array<float>({4},
                                           {mean, mean - 1, mean + 1, mean})}});
        sum += mean;
        CHECK(session.Read(stat).At(0) == (assigns ? mean : sum));
      }
    }
  }
}

// Each rank has gradients of its own: run + rank, times 2 in the second.
TEST_CASE("workers train two losses of a graph in turn, each by its mean") {
  const dist::testing::Watchdog watchdog;
  for (const int workers : {2, 3}) {
    CAPTURE(workers);
    auto groups = dist::testing::JoinAll(workers, {});
    std::vector<std::vector<double>> weights(static_cast<size_t>(workers));
    dist::testing::InThreads(workers, [&](int rank) {
      Graph graph;
      const Optimizer sgd = optimizers::Sgd(0.5).WithAllReduce();
      std::vector<Output> variables, gradients;
      std::vector<Operation> trainings;
      for (const char* name : {"d", "gen"}) {
        const Output w = graph.Variable(name, Filled(1, {}));
        const Output g = graph.Placeholder("g", DType::kFloat32, {});
        variables.push_back(w);
        gradients.push_back(g);
        trainings.push_back(sgd.Minimize(w * g, {w}));
      }
      SessionOptions options;
      options.collective = std::move(groups[static_cast<size_t>(rank)]);
      Session session(graph, options);
      session.Initialize();
      std::mt19937 random(1);  // the same on all
      for (int run = 0; run < 20; ++run) {
        const size_t i = random() % 2;
        const auto own = static_cast<float>((run + rank) * (i == 0 ? 1 : 2));
        session.Run({{gradients[i], Tensor::Scalar(own)}}, trainings[i]);
        for (const Output& w : variables) {
          weights[static_cast<size_t>(rank)].push_back(session.Read(w).At(0));
        }
      }
    });
    std::mt19937 random(1);
    double wanted[] = {1, 1};
    for (int run = 0; run < 20; ++run) {
      const size_t i = random() % 2;
      wanted[i] -= 0.5 * (run + (workers - 1) / 2.0) * (i == 0 ? 1 : 2);
      for (const std::vector<double>& each : weights) {
        const auto at = 2 * static_cast<size_t>(run);
        CHECK(each.at(at) == doctest::Approx(wanted[0]).epsilon(1e-5));
        CHECK(each.at(at + 1) == doctest::Approx(wanted[1]).epsilon(1e-5));
      }
    }
  }
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
                     "variables: pass them as Minimize's second argument"));
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
