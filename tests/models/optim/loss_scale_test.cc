// Dynamic loss scaling: what a step does whose gradients overflow, when the
// scale moves, and that otherwise training is as without.
#include "models/optim/loss_scale.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "engine/runtime/trace.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

constexpr float kHuge = 1e38f;  // times any scale of 8 or more: infinite

// loss = sum(w x), so that w's gradient is x; beside it a running statistic.
struct Line {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {2});
  Output w = graph.Variable("w", Filled(1, {2}));
  Output last = graph.Variable("last", Zeros({2}), {.trainable = false});
  Output loss = Sum(w * x);
  Operation train;
  Session session{graph};

  explicit Line(const Optimizer& optimizer) {
    graph.AddUpdate(Assign(last, x * 2));
    train = optimizer.Minimize(loss);
    session.Initialize();
  }
  void Step(float a, float b) {
    const float values[] = {a, b};
    session.Run({{x, Tensor::Vector<float>(values)}}, train);
  }
  double At(const std::string& name, int64_t i = 0) {
    return session.Read(graph.Get(name)).At(i);
  }
  double scale() { return At("loss_scale/scale"); }
};

TEST_CASE("a step that overflows changes nothing but the scale") {
  Line line(optimizers::Adam(0.5).WithAverages(0.9).WithLossScaling(
      {.initial = 1024, .window = 2}));
  line.Step(1, 2);
  std::map<std::string, Tensor> before;
  for (const Output& v : line.graph.Variables()) {
    before[v.name()] = line.session.Read(v);
  }
  CHECK(line.At("last", 1) == 4);
  CHECK(line.At("loss_scale/good_steps") == 1);

  line.Step(1, kHuge);
  int64_t same = 0;
  for (const Output& v : line.graph.Variables()) {
    CAPTURE(v.name());
    if (IsLossScaleState(v.name()) || v.name() == "global_step") continue;
    CHECK(line.session.Read(v).BitEqual(before.at(v.name())));
    ++same;
  }
  CHECK(same == 5);  // w, its average, m and v, last
  CHECK(line.scale() == 512);
  CHECK(line.At("loss_scale/good_steps") == 0);
  CHECK(line.At("loss_scale/skipped_steps") == 1);
  CHECK(line.At("global_step") == 2);

  // The next is the second update: as if the skipped one had not been.
  line.Step(3, -1);
  Line whole(optimizers::Adam(0.5).WithAverages(0.9));
  whole.Step(1, 2);
  whole.Step(3, -1);
  for (const char* name : {"w", "w/m", "w/v", "w/average", "last"}) {
    CAPTURE(name);
    CHECK(line.session.Read(line.graph.Get(name))
              .BitEqual(whole.session.Read(whole.graph.Get(name))));
  }
}

// In nodes that nobody has listed: on the way to an update, or to the loss.
TEST_CASE("nor does it change what is written on the way") {
  Graph graph;
  const auto statistic = [&](const char* name) {
    return graph.Variable(name, Zeros({2}), {.trainable = false});
  };
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output w = graph.Variable("w", Filled(1, {2}));
  const Output mean = statistic("mean"), spread = statistic("spread");
  const Output seen = statistic("seen"), twice = statistic("twice");
  const Output noted = statistic("noted");
  const Output moved = Assign(mean, 0.5f * (mean + x));
  graph.AddUpdate(Assign(spread, Abs(x - moved)));
  graph.AddUpdate(Identity(AssignAdd(seen, x)));
  graph.AddUpdate(AssignAdd(twice, Assign(twice, x)));
  const Output loss = Sum(w * x) + Sum(StopGradient(Assign(noted, x)));
  const Operation train =
      optimizers::Sgd(0.5).WithLossScaling({.initial = 1024}).Minimize(loss);
  Session session(graph);
  session.Initialize();
  const auto step = [&](float a, float b) {
    const float values[] = {a, b};
    session.Run({{x, Tensor::Vector<float>(values)}}, loss, {train});
    std::map<std::string, Tensor> after;
    for (const Output& v : {w, mean, spread, seen, twice, noted}) {
      after[v.name()] = session.Read(v);
    }
    return after;
  };
  const auto check = [](const std::map<std::string, Tensor>& after,
                        const std::string& name, double a, double b) {
    CAPTURE(name);
    CHECK(after.at(name).At(0) == a);
    CHECK(after.at(name).At(1) == b);
  };
  const auto good = step(1, 2);
  check(good, "mean", 0.5, 1);
  check(good, "spread", 0.5, 1);
  check(good, "seen", 1, 2);
  check(good, "twice", 2, 4);
  check(good, "noted", 1, 2);
  for (const auto& [name, value] : step(1, kHuge)) {
    CAPTURE(name);
    CHECK(value.BitEqual(good.at(name)));
  }
  const auto next = step(3, -1);
  check(next, "mean", 1.75, 0);
  check(next, "spread", 1.25, 1);
  check(next, "seen", 4, 1);
  check(next, "twice", 6, -2);
  check(next, "noted", 3, -1);
}

TEST_CASE("gradients of what the step has written are refused") {
  for (const bool listed : {true, false}) {
    CAPTURE(listed);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2});
    const Output w = graph.Variable("w", Ones({2}));
    const Output centre =
        graph.Variable("centre", Zeros({2}), {.trainable = false});
    const Output moved = Assign(centre, 0.5f * (centre + x));
    if (listed) graph.AddUpdate(moved);
    const Output loss = Mean(Square(w * (x - StopGradient(moved))));
    CHECK(Contains(
        ErrorOf([&] { optimizers::Sgd(0.5).WithLossScaling().Minimize(loss); }),
        "updates 'centre', and gradients are of what it wrote: not "
        "with loss scaling"));
  }
}

TEST_CASE("averages are the variables while all steps overflow") {
  for (const int64_t accumulate : {1, 2}) {
    CAPTURE(accumulate);
    Line line(optimizers::Sgd(0.5)
                  .With(gradients::Accumulate(accumulate))
                  .WithAverages(0.9)
                  .WithLossScaling());
    for (int run = 1; run < 2 * accumulate; ++run) {
      line.Step(1, kHuge);
      CHECK(line.At("w/average") == line.At("w"));
    }
    CHECK(line.At("w/average") == 1);
  }
}

TEST_CASE("NaN in the forward pass does not reach running statistics") {
  Line line(optimizers::Sgd(0.5).WithLossScaling());
  line.Step(1, 2);
  line.Step(std::numeric_limits<float>::quiet_NaN(), 1);
  CHECK(line.At("last", 0) == 2);
  CHECK(line.At("last", 1) == 4);
  CHECK(line.At("w", 0) == 0.5);
  CHECK(line.scale() == 16384);
}

TEST_CASE("good steps in a row double the scale") {
  Line line(optimizers::Sgd(0.5).WithLossScaling({.initial = 64, .window = 3}));
  const auto good = [&](int n) {
    for (int i = 0; i < n; ++i) line.Step(1, 1);
  };
  good(2);
  CHECK(line.scale() == 64);
  good(1);
  CHECK(line.scale() == 128);
  CHECK(line.At("loss_scale/good_steps") == 0);
  good(2);
  line.Step(kHuge, 1);  // begins to count again
  CHECK(line.scale() == 64);
  good(2);
  CHECK(line.scale() == 64);
  good(1);
  CHECK(line.scale() == 128);
  CHECK(LossScaleOptions().initial == std::pow(2, 15));
  CHECK(LossScaleOptions().window == 2000);
}

TEST_CASE("the scale is at most what gradients can be divided by, and 1") {
  Line up(
      optimizers::Sgd(0.5).WithLossScaling({.initial = 0x1p126, .window = 1}));
  for (int i = 0; i < 3; ++i) up.Step(1e-20f, 1e-20f);
  CHECK(up.scale() == kMostLossScale);
  CHECK(up.At("loss_scale/skipped_steps") == 0);

  Line down(optimizers::Sgd(0.5).WithLossScaling({.initial = 4}));
  for (int i = 0; i < 5; ++i) {
    down.Step(std::numeric_limits<float>::infinity(), 1);
  }
  CHECK(down.scale() == 1);
  CHECK(down.At("loss_scale/skipped_steps") == 5);
}

// The reciprocal of 2^127 is denormal, which is taken for 0.
TEST_CASE("the largest scale trains as any other") {
  Line line(
      optimizers::Sgd(0.5).WithLossScaling({.initial = 0x1p126, .window = 1}));
  for (const double wanted : {0.5, 0.0, -0.5}) {
    line.Step(1, 1);
    CHECK(line.At("w") == wanted);
  }
  // What an earlier version had come to.
  line.session.Write(line.graph.Get("loss_scale/scale"),
                     Tensor::Scalar(0x1p127F));
  line.Step(1, 1);
  CHECK(line.scale() == 0x1p126);
  const double before = line.At("w");
  line.Step(1, 1);
  CHECK(line.At("w") == before - 0.5);
}

TEST_CASE("hooks see gradients without the scale") {
  // A norm of 0.5 is not clipped to 1, a value of 0.5 not to 0.75.
  Line line(optimizers::Sgd(1)
                .With(gradients::ClipByGlobalNorm(1))
                .With(gradients::ClipByValue(0.75))
                .With(gradients::WeightDecay(0.25))
                .WithLossScaling());
  line.Step(0.5f, 0);
  CHECK(line.At("w", 0) == 1 - (0.5 + 0.25));
  CHECK(line.At("w", 1) == 1 - 0.25);
}

TEST_CASE("of accumulated gradients those that overflow are left out") {
  Line line(
      optimizers::Sgd(1).With(gradients::Accumulate(3)).WithLossScaling());
  line.Step(3, 6);
  line.Step(kHuge, 1);
  CHECK(line.At("w/gradient_sum", 0) == 3);
  CHECK(line.At("w", 0) == 1);
  CHECK(line.At("last", 0) == 6);  // the last finite one's
  line.Step(6, 3);
  CHECK(line.At("w", 0) == 1 - 3);
  CHECK(line.At("w", 1) == 1 - 3);
  CHECK(line.At("w/gradient_sum", 0) == 0);
}

TEST_CASE("a power of two changes no bits") {
  for (const char* name :
       {"sgd", "momentum", "rmsprop", "adagrad", "adamw", "lars", "lamb"}) {
    CAPTURE(name);
    Line scaled(optimizers::ByName(name).WithLossScaling());
    Line plain(optimizers::ByName(name));
    for (int i = 1; i < 6; ++i) {
      for (Line* line : {&scaled, &plain}) {
        line->Step(0.1f * static_cast<float>(i), -0.7f);
      }
    }
    CHECK(scaled.session.Read(scaled.w).BitEqual(plain.session.Read(plain.w)));
  }
}

// Which ops a step ran.
class OpsRun final : public Observer {
 public:
  Status AfterInstruction(const RanInstruction& ran) override {
    const std::lock_guard lock(mutex_);
    ops_.insert(ran.label.op);
    return {};
  }
  size_t Count(const std::string& op) const { return ops_.count(op); }

 private:
  std::mutex mutex_;
  std::multiset<std::string> ops_;
};

// Two variables, whose gradients are x and |x|.
struct Pair {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {3});
  Output a = graph.Variable("a", Filled(0.7, {3}));
  Output b = graph.Variable("b", Filled(-0.3, {3}));
  Operation train;

  explicit Pair(const Optimizer& optimizer) {
    train = optimizer.Minimize(Sum(a * x) + Sum(b * Abs(x)));
  }
  // All variables after steps of which one overflows.
  std::vector<Tensor> Trained(bool fuse, OpsRun* ops) {
    Session session(graph, {.fuse = fuse});
    session.Initialize();
    for (float v : {0.1f, kHuge, -0.7f}) {
      if (v < 0) session.SetObserver(ops);
      const float values[] = {v, 0.3f, -1.7f};
      session.Run({{x, Tensor::Vector<float>(values)}}, train);
    }
    std::vector<Tensor> all;
    for (const Output& v : graph.Variables()) all.push_back(session.Read(v));
    return all;
  }
};

TEST_CASE("fused, the update and the check multiply: no product is left") {
  for (const char* name : {"sgd", "momentum", "adamw"}) {
    CAPTURE(name);
    // Not a power of two: products are rounded.
    Pair pair(optimizers::ByName(name).WithLossScaling({.initial = 1000}));
    OpsRun fused, plain;
    const auto got = pair.Trained(true, &fused);
    const auto wanted = pair.Trained(false, &plain);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].BitEqual(wanted[i]));
    CHECK(plain.Count("AllFinite") == 1);
    CHECK(fused.Count("AllFinite") == 0);
    CHECK(fused.Count("AllFiniteScaled") == 1);
  }
}

TEST_CASE("products that a hook reads are made once") {
  Pair pair(optimizers::Sgd(0.5)
                .With(gradients::ClipByGlobalNorm(0.01))
                .WithLossScaling({.initial = 1000}));
  OpsRun fused;
  pair.Trained(true, &fused);
  CHECK(fused.Count("AllFiniteScaled") == 0);
  CHECK(fused.Count("AllFinite") == 1);
}

// A rule of the user's, made of several writes.
Optimizer Own() {
  return {1, {"own", {{"seen"}, {"last"}}, [](const Update& u) {
                const Output seen = AssignAdd(u.slots[0], Abs(u.gradient));
                ControlScope after(u.variable.graph(),
                                   {Assign(u.slots[1], u.gradient)});
                return AssignSub(u.variable, u.gradient / (seen + 1));
              }}};
}

TEST_CASE("every write of a rule is skipped") {
  Line line(Own().WithLossScaling());
  line.Step(1, 3);
  line.Step(kHuge, 3);
  CHECK(line.At("w/seen", 0) == 1);
  CHECK(line.At("w/seen", 1) == 3);
  CHECK(line.At("w/last", 1) == 3);
  CHECK(line.At("w", 0) == 0.5);
  CHECK(line.At("w", 1) == 0.25);
  line.Step(1, 4);
  CHECK(line.At("w/last", 1) == 4);
  CHECK(line.At("w", 1) == 0.25 - 0.5);
}

TEST_CASE("what cannot be skipped, and scales that are none, are told") {
  OpTable::Global().Register({.name = "TestDouble",
                              .doc = "variable *= 2.",
                              .inputs = {{"variable"}},
                              .gradient = NotDifferentiable,
                              .stateful = true,
                              .mutates = 1});
  const auto doubling = [](const Update& u) {
    return u.variable.graph().Add({"TestDouble", {u.variable}}).output(0);
  };
  CHECK(
      Contains(ErrorOf([&] {
                 Line(Optimizer(1, {"double", {}, doubling}).WithLossScaling());
               }),
               "the op has no operand that could make it conditional"));
  CHECK(Contains(ErrorOf([] {
                   Line(optimizers::Sgd(1).WithLossScaling({.initial = 0.5}));
                 }),
                 "wanted a scale from 1 to 2^126"));
  CHECK(
      Contains(ErrorOf([] {
                 Line(optimizers::Sgd(1).WithLossScaling({.initial = 0x1p127}));
               }),
               "wanted a scale from 1 to 2^126"));
}

}  // namespace
}  // namespace sluice
