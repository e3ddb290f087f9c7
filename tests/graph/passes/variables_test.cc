// What reads of variables see beside writes in the same step: the value at its
// start unless they depend on a write, on one device and over two, in both
// executors.
#include <doctest/doctest.h>

#include <cmath>

#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

// Where the variable is, and where everything else is.
struct Setting {
  const char* others;
  ExecutorMode mode;
};
constexpr Setting kSettings[] = {{"/cpu:0", ExecutorMode::kSerial},
                                 {"/cpu:0", ExecutorMode::kDataflow},
                                 {"/cpu:1", ExecutorMode::kSerial},
                                 {"/cpu:1", ExecutorMode::kDataflow}};

class Step {
 public:
  explicit Step(const Setting& setting) : setting_(setting) {}
  Graph& graph() { return graph_; }
  Output Variable(const std::string& name, double value) {
    DeviceScope device(graph_, "/cpu:0");
    return graph_.Variable(name, Filled(value, {3}));
  }
  Output Constant(double value) {
    return graph_.Constant(Tensor::Full(DType::kFloat32, {3}, value));
  }
  // The first elements of what is fetched; a fresh session, one step.
  std::vector<double> Run(const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets = {}) {
    SessionOptions options;
    options.devices = {"/cpu:0", "/cpu:1"};
    options.executor = setting_.mode;
    Session session(graph_, options);
    session.Initialize();
    std::vector<double> values;
    for (const Tensor& value : session.Run({}, fetches, targets)) {
      values.push_back(value.At(2));
    }
    for (const Output& variable : graph_.Variables()) {
      values.push_back(session.Read(variable).At(2));
    }
    return values;
  }

 private:
  Graph graph_;
  Setting setting_;
};

using Values = std::vector<double>;

template <typename Body>
void ForEachSetting(Body body) {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.others);
    CAPTURE(static_cast<int>(setting.mode));
    Step step(setting);
    DeviceScope device(step.graph(), setting.others);
    body(step);
  }
}

TEST_CASE("independent reads see the value at the start of the step") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 5);
    const Output w = AssignAdd(v, step.Constant(2));
    const Output doubled = v * 2.0;
    const Output viewed = Neg(Reshape(Identity(v), {3, 1}));
    CHECK_EQ(step.Run({v, doubled, Reshape(viewed, {3})}, {w}),
             Values{5, 10, -5, 7});
  });
}

TEST_CASE("reads behind a write see what it wrote") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 5);
    const Output w = AssignAdd(v, step.Constant(2));
    ControlScope behind(step.graph(), {w});
    CHECK_EQ(step.Run({Identity(v), v * 2.0, Neg(w)}), Values{7, 14, -7, 7});
  });
}

TEST_CASE("old and new value in one expression") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 5);
    const Output old = Identity(v);
    const Output w = AssignAdd(v, step.Constant(2));
    CHECK_EQ(step.Run({w * 10.0 + old}), Values{75, 7});
  });
}

TEST_CASE("two variables swap") {
  ForEachSetting([](Step& step) {
    const Output a = step.Variable("a", 1);
    const Output b = step.Variable("b", 2);
    const Output to_a = Assign(a, b);
    const Output to_b = Assign(b, a);
    CHECK_EQ(step.Run({}, {to_a, to_b}), Values{2, 1});
  });
}

TEST_CASE("a view of an old value may wait for another variable's write") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 3);
    const Output other = step.Variable("other", 5);
    const Output to_other = AssignAdd(other, step.Constant(1));
    const Output old = WithDependencies({to_other}, v);
    const Output to_v = Assign(v, step.Constant(7));
    const ControlScope behind(step.graph(), {to_v});
    CHECK_EQ(step.Run({other * 2.0, Neg(Identity(old)), Exp(old * 0.0)},
                      {to_v, to_other}),
             Values{10, -3, 1, 7, 6});
  });
}

TEST_CASE("views of two old values that wait for each other's writes") {
  ForEachSetting([](Step& step) {
    const Output a = step.Variable("a", 3), b = step.Variable("b", 5);
    const Output to_a = Assign(a, step.Constant(7));
    const Output to_b = Assign(b, step.Constant(9));
    const Output old_a = WithDependencies({to_b}, a);
    const Output old_b = WithDependencies({to_a}, b);
    const auto behind = [&](const Output& write, const Output& old) {
      const ControlScope scope(step.graph(), {write});
      return Neg(old);
    };
    CHECK_EQ(step.Run({behind(to_a, old_a), behind(to_b, old_b)}),
             Values{-3, -5, 7, 9});
  });
}

TEST_CASE("a chain of writes, read in between") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 1);
    const Output first = AssignAdd(v, step.Constant(1));
    const Output between = Neg(first);
    Output second, late;
    {
      ControlScope behind(step.graph(), {first});
      late = v + 100.0;
      second = AssignAdd(v, step.Constant(10));
    }
    CHECK_EQ(step.Run({v, between, late, second}), Values{1, -2, 102, 12, 12});
  });
}

// `second` comes after `first`, and so after the write; who reads the variable
// beside it does not depend on that write for it.
TEST_CASE("the order of collectives changes no read") {
  ForEachSetting([](Step& step) {
    const Output v = step.Variable("v", 5);
    const Output first = AllReduce(AssignAdd(v, step.Constant(2)));
    const Output second = AllReduce(step.Constant(3));
    const Output read = second * v;
    CHECK_EQ(step.Run({first, read}), Values{7, 15, 7});
    CHECK_EQ(step.Run({read}), Values{15, 5});
    CHECK_EQ(step.Run({first, AllReduce(read)}), Values{7, 15, 7});
  });
}

TEST_CASE("a conditional write that does not take place changes nothing") {
  for (bool apply : {false, true}) {
    ForEachSetting([apply](Step& step) {
      const Output v = step.Variable("v", 1), w = step.Variable("w", 1);
      const Output condition = step.graph().Constant(Tensor::Scalar(apply));
      const Output assigned = Assign(v, step.Constant(std::nan("")));
      const Output added = AssignAdd(w, step.Constant(2));
      MakeConditional(Group(step.graph(), {assigned, added}), condition);
      MakeConditional(added, condition);  // twice is once
      const Values got = step.Run({added}, {assigned});
      CHECK(got[0] == (apply ? 3 : 1));
      CHECK(std::isnan(got[1]) == apply);
      CHECK(got[2] == (apply ? 3 : 1));
    });
  }
}

TEST_CASE("a variable without a value needs an unconditional write") {
  Graph graph;
  const Output v = graph.Variable("v", Filled(1, {2}));
  const Output apply = graph.Placeholder("apply", DType::kBool, {});
  const Output other =
      Assign(v, graph.Constant(Tensor::Full(DType::kFloat32, {2}, 3)));
  MakeConditional(other, apply);
  Session session(graph);
  CHECK_THROWS_AS(session.Run({{apply, Tensor::Scalar(true)}}, other), Error);
}

TEST_CASE("writes without an order are refused") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({3}));
  const Output one = graph.Constant(Tensor::Full(DType::kFloat32, {3}, 1));
  const Output a = AssignAdd(v, one), b = AssignSub(v, one);
  Session session(graph);
  session.Initialize();
  CHECK_THROWS_AS(session.Run({}, std::vector<Output>{}, {a, b}), Error);
  // Each alone is fine: they are alternatives.
  session.Run({}, a);
  session.Run({}, a);
  session.Run({}, b);
  CHECK_EQ(session.Read(v).At(0), 1);
}

TEST_CASE("writes made one node still give variables their first value") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {3});
  const Output a = graph.Variable("a", Zeros({3}));
  const Output b = graph.Variable("b", Zeros({3}));
  const Operation both = Group(graph, {Assign(a, Exp(x)), Assign(b, Exp(-x))});
  Session session(graph);  // not initialised
  session.Run({{x, Tensor::Full(DType::kFloat32, {3}, 1)}},
              std::vector<Output>(), {both});
  CHECK(session.Read(a).At(2) == doctest::Approx(std::exp(1)));
  CHECK(session.Read(b).At(2) == doctest::Approx(std::exp(-1)));
}

TEST_CASE("conditional writes made one node do not") {
  Graph graph;
  const Output apply = graph.Placeholder("apply", DType::kBool, {});
  const Output x = graph.Placeholder("x", DType::kFloat32, {});
  const Output a = graph.Variable("a", Zeros({}));
  const Output b = graph.Variable("b", Zeros({}));
  const Operation both = Group(graph, {Assign(a, Exp(x)), Assign(b, Exp(-x))});
  MakeConditional(both, apply);
  Session session(graph);
  const auto run = [&](bool applies) {
    session.Run({{x, Tensor::Scalar(1.0f)}, {apply, Tensor::Scalar(applies)}},
                std::vector<Output>(), {both});
  };
  CHECK_THROWS_AS(run(true), Error);
  session.Initialize();
  run(false);
  CHECK(session.Read(b).At(0) == 0);
  run(true);
  CHECK(session.Read(b).At(0) == doctest::Approx(std::exp(-1)));
}

}  // namespace
}  // namespace sluice
