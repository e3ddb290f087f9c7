// Kernels and observers are users' code: what they throw is the step's error,
// with the node's name, and the session goes on.
#include <doctest/doctest.h>

#include <stdexcept>

#include "engine/runtime/trace.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// y = x, or what the input's first element asks for.
void Run(const KernelContext& c) {
  const float* x = c.input<float>(0);
  float* y = c.output<float>(0);
  // In pieces, so that other threads throw as well.
  ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
    if (x[0] == 1) throw std::runtime_error("the cat is on the roof");
    if (x[0] == 2 && begin > 50) throw Error(Code::kNotFound, "no such cat");
    if (x[0] == 3 && begin == 63) throw 7;
    std::copy(x + begin, x + end, y + begin);
  });
}

Output Throwing(const Output& x) {
  static const bool registered = [] {
    OpTable::Global().Register({.name = "Throwing",
                                .doc = "Throws what it is told to.",
                                .inputs = {{"x"}},
                                .gradient = NotDifferentiable,
                                .probes = {{.inputs = {{.shape = {64}}}}}});
    KernelTable::Global().Register(
        {.op = "Throwing", .make = [](const KernelSpec&) -> Result<KernelPtr> {
           return KernelOf(Run);
         }});
    return true;
  }();
  CHECK(registered);
  return x.graph().Add({"Throwing", {x}}).output(0);
}

Tensor Filled64(float first) {
  return Tensor::Full(DType::kFloat32, {64}, first);
}

TEST_CASE("a kernel that throws ends the step with its name") {
  for (const ExecutorMode mode :
       {ExecutorMode::kSerial, ExecutorMode::kDataflow,
        ExecutorMode::kChecked}) {
    for (const bool two_devices : {false, true}) {
      CAPTURE(static_cast<int>(mode));
      CAPTURE(two_devices);
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {64});
      Output y;
      {
        DeviceScope elsewhere(graph, two_devices ? "/cpu:1" : "/cpu:0");
        y = Throwing(x);
      }
      const Output z = Neg(y) + Exp(x);
      SessionOptions options;
      options.devices = {"/cpu:0", "/cpu:1"};
      options.executor = mode;
      Session session(graph, options);
      const auto run = [&](float first) {
        return ErrorOf([&] { session.Run({{x, Filled64(first)}}, z); });
      };
      CHECK(Contains(run(1), "Throwing 'throwing': the cat is on the roof"));
      CHECK(Contains(run(1), "thrown_test.cc"));
      CHECK(Contains(run(2), "Throwing 'throwing': no such cat"));
      CHECK(Contains(run(3), "Throwing 'throwing': an exception"));
      CHECK(run(0) == "(no error)");
    }
  }
}

TEST_CASE("a kernel that throws while constants are folded, or when made") {
  Graph graph;
  const Output y = Throwing(graph.Constant(Filled64(1)));
  Session session(graph);
  CHECK(Contains(ErrorOf([&] { session.Run({}, y); }),
                 "Throwing 'throwing': the cat is on the roof"));
  OpTable::Global().Register({.name = "ThrowingMake",
                              .doc = "Cannot be made.",
                              .inputs = {{"x"}},
                              .gradient = NotDifferentiable,
                              .probes = {{.inputs = {{.shape = {64}}}}}});
  KernelTable::Global().Register(
      {.op = "ThrowingMake",
       .make = [](const KernelSpec&) -> Result<KernelPtr> {
         throw std::runtime_error("no such kernel today");
       }});
  for (const bool constant : {true, false}) {
    Graph other;
    const Output x = other.Placeholder("x", DType::kFloat32, {64});
    const Output z =
        other
            .Add({"ThrowingMake",
                  {constant ? other.Constant(Filled64(1)) : Output(x)}})
            .output(0);
    Session failing(other);
    CHECK(Contains(ErrorOf([&] {
                     failing.Run({{x, Filled64(1)}}, z);
                   }),
                   "no such kernel today"));
  }
}

class ThrowingObserver final : public Observer {
 public:
  Status AfterInstruction(const RanInstruction& ran) override {
    if (ran.label.op == "Neg") {
      throw std::runtime_error("the observer's pen broke");
    }
    return {};
  }
};

TEST_CASE("an observer that throws ends the step, too") {
  for (const ExecutorMode mode :
       {ExecutorMode::kSerial, ExecutorMode::kDataflow}) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {64});
    const Output y = Neg(x);
    Session session(graph, {.executor = mode, .fuse = false});
    ThrowingObserver observer;
    session.SetObserver(&observer);
    CHECK(Contains(ErrorOf([&] {
                     session.Run({{x, Filled64(0)}}, y);
                   }),
                   "Neg 'neg': the observer's pen broke"));
    session.SetObserver(nullptr);
    CHECK(session.Run({{x, Filled64(1)}}, y).At(63) == -1);
  }
}

TEST_CASE("ParallelFor throws what a piece threw, once all have ended") {
  ThreadPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ran{0};
    CHECK_THROWS_AS(pool.ParallelFor(100, 1,
                                     [&](int64_t begin, int64_t) {
                                       ran.fetch_add(1);
                                       if (begin % 10 == 3) {
                                         throw std::runtime_error("piece");
                                       }
                                     }),
                    std::runtime_error);
    CHECK(ran.load() > 0);
    ran = 0;
    pool.ParallelFor(100, 1, [&](int64_t, int64_t) { ran.fetch_add(1); });
    CHECK(ran.load() == 100);
  }
}

}  // namespace
}  // namespace sluice
