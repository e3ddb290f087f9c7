// Sessions end to end: values, variables, devices, errors, allocation.
#include "graph/session/session.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <thread>

#include "engine/threads.h"
#include "graph/builder.h"
#include "tests/support/checked.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace {

// Counts allocations between Start and Stop, in all threads.
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* CountedNew(size_t bytes, size_t alignment) {
  if (counting) ++allocations;
  void* p = alignment > 16
                ? std::aligned_alloc(alignment, (bytes + alignment - 1) /
                                                    alignment * alignment)
                : std::malloc(bytes ? bytes : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(size_t bytes) {
  return CountedNew(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (counting) ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

// What is made below a write is not what reads its value.
TEST_CASE("a variable of a control scope is read without its writes") {
  Graph graph;
  const Output u = graph.Variable("u", Filled(1, {}));
  const Operation w = AssignAdd(u, 1);
  Output v;
  {
    ControlScope after(graph, {w});
    v = graph.Variable("v", Filled(5, {}));
  }
  const Output y = v + u;
  Session session(graph);
  session.Initialize();
  for (int i = 0; i < 3; ++i) {
    CHECK(session.Run({}, y).At(0) == 6);
    CHECK(session.Read(u).At(0) == 1);
  }
}

TEST_CASE("a step computes what was asked, for any batch") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  Output w = graph.Variable(
      "w", CopyOf(Tensor::Array<float>({3, 2}, {1, 2, 3, 4, 5, 6})));
  Output y = MatMul(x, w) + 0.5f;
  Session session(graph);
  session.Initialize();
  for (int64_t batch : {1, 4, 1, 7}) {
    Tensor ones = Tensor::Full(DType::kFloat32, {batch, 3}, 1);
    Tensor got = session.Run({{x, ones}}, y);
    CHECK(got.shape() == Shape{batch, 2});
    for (int64_t i = 0; i < batch; ++i) {
      CHECK(got.At(2 * i) == 9.5);
      CHECK(got.At(2 * i + 1) == 12.5);
    }
  }
}

TEST_CASE("softmax regression by hand learns") {
  Graph graph;
  Output image = graph.Placeholder("image", DType::kFloat32, {kUnknown, 4});
  Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  Output weights = graph.Variable("weights", Zeros({4, 3}));
  Output bias = graph.Variable("bias", Zeros({3}));
  Output loss =
      Mean(SparseSoftmaxCrossEntropy(MatMul(image, weights) + bias, label));
  std::vector<Output> gradients = Gradients({loss}, {weights, bias});
  Operation train = Group(graph, {AssignSub(weights, gradients[0] * 0.5f),
                                  AssignSub(bias, gradients[1] * 0.5f)});
  Session session(graph);
  session.Initialize();
  const Tensor images =
      Tensor::Array<float>({3, 4}, {1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1});
  const Tensor labels = Tensor::Array<int64_t>({3}, {0, 1, 2});
  const double first =
      session.Run({{image, images}, {label, labels}}, loss).At(0);
  CHECK(first == doctest::Approx(std::log(3.0)));
  double last = first;
  for (int i = 0; i < 100; ++i) {
    last = session.Run({{image, images}, {label, labels}}, loss, {train}).At(0);
  }
  CHECK(last < 0.1);
}

TEST_CASE("a read sees the start of the step unless it depends on a write") {
  Graph graph;
  Output v = graph.Variable("v", Filled(1, {2}));
  Output before = v * 10.0f;
  Output written = AssignAdd(v, OnesLike(v));
  Output after = written * 10.0f;
  Output ordered;
  {
    ControlScope scope(graph, {written});
    ordered = v * 100.0f;
  }
  for (ExecutorMode mode : {ExecutorMode::kSerial, ExecutorMode::kDataflow}) {
    SessionOptions options;
    options.executor = mode;
    Session session(graph, options);
    session.Initialize();
    for (int step = 1; step <= 5; ++step) {
      std::vector<Tensor> got =
          session.Run({}, {v, before, written, after, ordered});
      CHECK(got[0].At(0) == step);
      CHECK(got[1].At(0) == 10 * step);
      CHECK(got[2].At(0) == step + 1);
      CHECK(got[3].At(0) == 10 * (step + 1));
      CHECK(got[4].At(0) == 100 * (step + 1));
    }
  }
}

TEST_CASE("two unordered writes of a variable are refused") {
  Graph graph;
  Output v = graph.Variable("v", Zeros({2}));
  Output a = AssignAdd(v, OnesLike(v));
  Output b = Assign(v, OnesLike(v));
  Session session(graph);
  session.Initialize();
  const std::string message = ErrorOf([&] {
    session.Run({}, std::vector<Output>{}, {a, b});
  });
  CHECK(Contains(message, "v"));
  CHECK(Contains(message, a.node().name()));
  CHECK(Contains(message, b.node().name()));
  // One at a time is fine.
  session.Run({}, a);
  session.Run({}, b);
}

// A small network with branches, its loss and its gradients.
struct Network {
  Graph graph;
  Output x, loss;
  std::vector<Output> fetches;
  explicit Network(const std::string& second_device) {
    x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 20});
    Output a = graph.Variable("a", CopyOf(Ramp({20, 30})));
    Output hidden = Tanh(MatMul(x, a));
    Output loss_term;
    {
      DeviceScope device(graph, second_device);
      Output b = graph.Variable("b", CopyOf(Ramp({30, 5})));
      loss_term = Mean(Square(MatMul(hidden, b)));
    }
    loss = loss_term + Mean(Exp(hidden));
    fetches = {loss};
    for (Output g : Gradients({loss}, graph.TrainableVariables())) {
      fetches.push_back(g);
    }
  }
};

TEST_CASE("split over two devices gives the same bits as one") {
  Network whole("");
  Network split("/cpu:1");
  SessionOptions two;
  two.devices = {"/cpu:0", "/cpu:1"};
  Session one_session(whole.graph);
  Session two_session(split.graph, two);
  one_session.Initialize();
  two_session.Initialize();
  for (int run = 0; run < 50; ++run) {
    const Tensor input = Ramp({1 + run % 3, 20});
    const auto expected = one_session.Run({{whole.x, input}}, whole.fetches);
    const auto got = two_session.Run({{split.x, input}}, split.fetches);
    for (size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(got[i].BitEqual(expected[i]));
    }
  }
}

TEST_CASE("serial, dataflow and unsimplified steps agree bit for bit") {
  Network network("");
  const Tensor input = Ramp({6, 20});
  std::vector<Tensor> expected;
  for (ExecutorMode mode : {ExecutorMode::kSerial, ExecutorMode::kDataflow}) {
    for (bool simplify : {true, false}) {
      for (int threads : {1, 2, 5}) {
        SetComputeThreads(threads);
        SessionOptions options;
        options.executor = mode;
        options.simplify = simplify;
        Session session(network.graph, options);
        session.Initialize();
        for (int run = 0; run < 20; ++run) {
          auto got = session.Run({{network.x, input}}, network.fetches);
          if (expected.empty()) expected = got;
          for (size_t i = 0; i < expected.size(); ++i) {
            REQUIRE(got[i].BitEqual(expected[i]));
          }
        }
      }
    }
  }
  SetComputeThreads(0);
}

TEST_CASE("an error on one device ends the step on all and names the node") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  Output label = graph.Placeholder("label", DType::kInt64, {2});
  Output y;
  {
    DeviceScope device(graph, "/cpu:1");
    y = SparseSoftmaxCrossEntropy(x, label);
  }
  Output z = Sum(y) + 1.0f;
  SessionOptions options;
  options.devices = {"/cpu:0", "/cpu:1"};
  Session session(graph, options);
  const Tensor images = Ramp({2, 3});
  for (int i = 0; i < 20; ++i) {
    const std::string message = ErrorOf([&] {
      session.Run({{x, images}, {label, Tensor::Array<int64_t>({2}, {0, 9})}},
                  z);
    });
    CHECK(Contains(message, y.node().name()));
    CHECK(Contains(message, "9"));
    // The next step works.
    session.Run({{x, images}, {label, Tensor::Array<int64_t>({2}, {0, 2})}}, z);
  }
}

TEST_CASE("bad requests say what was given and what was wanted") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  Output y = x + 1.0f;
  Output v = graph.Variable("v", Zeros({2}));
  Session session(graph);
  std::string message = ErrorOf([&] { session.Run({}, y); });
  CHECK(Contains(message, "'x'"));
  CHECK(Contains(message, "fed"));
  message = ErrorOf([&] { session.Run({{x, Ramp({2, 4})}}, y); });
  CHECK(Contains(message, "[2,4]"));
  CHECK(Contains(message, "[?,3]"));
  message = ErrorOf([&] {
    session.Run({{x, Tensor::Zeros(DType::kInt32, {2, 3})}}, y);
  });
  CHECK(Contains(message, "int32"));
  CHECK(Contains(message, "float32"));
  message = ErrorOf([&] { session.Run({}, v); });
  CHECK(Contains(message, "'v'"));
  CHECK(Contains(message, "not initialised"));
  message = ErrorOf([&] { session.Run({}, Output()); });
  CHECK(Contains(message, "empty"));
  message = ErrorOf([&] { session.Write(v, Ramp({3})); });
  CHECK(Contains(message, "[3]"));
  SessionOptions options;
  options.devices = {"/tpu:0"};
  message = ErrorOf([&] { Session bad(graph, options); });
  CHECK(Contains(message, "/tpu:0"));
  Graph other;
  Output foreign = other.Placeholder("f", DType::kFloat32, {1});
  message = ErrorOf([&] { session.Run({}, foreign); });
  CHECK(Contains(message, "another graph"));
}

TEST_CASE("any tensor can be fed, fetched feeds come back") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {2});
  Output y = x * 2.0f;
  Output z = y + 1.0f;
  Session session(graph);
  auto got = session.Run({{y, Tensor::Full(DType::kFloat32, {2}, 10)}},
                         std::vector<Output>{z, y});
  CHECK(got[0].At(1) == 11);
  CHECK(got[1].At(1) == 10);
}

TEST_CASE("a prepared step allocates nothing") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 64});
  Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  Output w = graph.Variable("w", CopyOf(Ramp({64, 32})));
  Output b = graph.Variable("b", Zeros({32}));
  Output velocity = graph.Variable("velocity", Zeros({64, 32}), {false});
  Output loss =
      Mean(SparseSoftmaxCrossEntropy(BiasAdd(MatMul(Relu(x), w), b), label));
  auto g = Gradients({loss}, {w, b});
  Output rate = graph.Constant(0.1, DType::kFloat32);
  Operation train = Group(
      graph, {ApplyMomentum(w, velocity, rate, g[0]), ApplySgd(b, rate, g[1])});
  for (ExecutorMode mode : {ExecutorMode::kSerial, ExecutorMode::kDataflow}) {
    SessionOptions options;
    options.executor = mode;
    Session session(graph, options);
    session.Initialize();
    PreparedStep step =
        session.Prepare({{x, {40, 64}}, {label, {40}}}, {loss}, {train});
    const std::vector<Tensor> feeds = {Ramp({40, 64}),
                                       Tensor::Zeros(DType::kInt64, {40})};
    std::vector<Tensor> fetches = step.MakeFetches();
    step.Run(feeds, fetches);
    const float before = fetches[0].data<float>()[0];
    allocations = 0;
    counting = true;
    for (int i = 0; i < 20; ++i) step.Run(feeds, fetches);
    counting = false;
    CHECK(allocations == 0);
    CHECK(fetches[0].data<float>()[0] < before);
  }
}

TEST_CASE("a run that waits for other devices allocates nothing, either") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {64});
  const Output a = Exp(x), b = a * 3, y = b + a;
  b.node().set_device("/cpu:1");
  SessionOptions options;
  options.devices = {"/cpu:0", "/cpu:1"};
  options.executor = ExecutorMode::kSerial;  // a checked one copies operands
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {64}}}, {y});
  const std::vector<Tensor> feeds = {Ramp({64})};
  std::vector<Tensor> fetches = step.MakeFetches();
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      step.Start(feeds, fetches).Wait();
      step.Run(feeds, fetches);
    }
  };
  run(20);
  allocations = 0;
  counting = true;
  run(200);
  counting = false;
  CHECK(allocations == 0);
}

TEST_CASE("concurrent runs are correct and take turns") {
  Graph graph;
  Output count = graph.Variable("count", Zeros({1}, DType::kInt64));
  Output x = graph.Placeholder("x", DType::kFloat32, {100});
  Output next = AssignAdd(count, OnesLike(count));
  Output sum = Sum(x);
  Session session(graph);
  session.Initialize();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const double value = t + 1;
        auto got =
            session.Run({{x, Tensor::Full(DType::kFloat32, {100}, value)}},
                        std::vector<Output>{sum, next});
        wrong += got[0].At(0) != 100 * value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(session.Read(count).IntAt(0) == 400);
}

TEST_CASE("random ops follow seed and step, not time or order") {
  Graph graph;
  Output noise = RandomUniform(graph, Shape{8});
  Operation target = noise;
  Session a(graph), b(graph);
  const Tensor a0 = a.Run({}, noise, {target});
  const Tensor a1 = a.Run({}, noise, {target});
  CHECK_FALSE(a0.BitEqual(a1));
  b.set_step(1);
  CHECK(b.Run({}, noise, {target}).BitEqual(a1));
  CHECK(b.step() == 2);
  b.set_step(0);
  CHECK(b.Run({}, noise).BitEqual(a0));
  CHECK(b.step() == 0);  // neither targets nor updates
}

TEST_CASE("a null device plans but does not compute") {
  Network network("");
  SessionOptions options;
  options.devices = {"/null:0"};
  Session session(network.graph, options);
  PreparedStep step =
      session.Prepare({{network.x, {1000, 20}}}, network.fetches);
  CHECK(step.info().nodes > 5);
  CHECK(step.info().arena_bytes >= step.info().arena_lower_bound);
  CHECK(step.info().arena_lower_bound >= 1000u * 30 * 4);
}

TEST_CASE("buffers are reused: a deep chain needs few of them") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {1000});
  Output y = x;
  for (int i = 0; i < 50; ++i) y = Tanh(y);
  Session session(graph);
  PreparedStep step = session.Prepare({{x, {1000}}}, {y});
  if (testing::StepsAreChecked()) return;
  CHECK(step.info().arena_bytes <= 2 * 4096);
}

TEST_CASE("the plan cache is bounded and prepared steps survive it") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  Output y = Sum(x);
  SessionOptions options;
  options.plan_cache_size = 2;
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {3}}}, {y});
  for (int64_t n = 1; n < 10; ++n) {
    CHECK(session.Run({{x, Tensor::Full(DType::kFloat32, {n}, 1)}}, y).At(0) ==
          static_cast<double>(n));
  }
  std::vector<Tensor> feeds = {Tensor::Full(DType::kFloat32, {3}, 2)};
  std::vector<Tensor> fetches = step.MakeFetches();
  step.Run(feeds, fetches);
  CHECK(fetches[0].At(0) == 6);
}

TEST_CASE("a deadline and a cancel end a step; the session goes on") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {400, 400});
  Output y = x;
  for (int i = 0; i < 2000; ++i) y = Tanh(MatMul(y, x));
  SessionOptions options;
  options.deadline = std::chrono::milliseconds(50);
  Session session(graph, options);
  const Tensor value = Ramp({400, 400});
  try {
    session.Run({{x, value}}, y);
    FAIL("no deadline");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kDeadlineExceeded);
  }
  Output quick = Sum(x);
  CHECK_NOTHROW(session.Run({{x, value}}, quick));
  options.deadline = std::chrono::milliseconds::max();  // the clock's is nearer
  CHECK_NOTHROW(Session(graph, options).Run({{x, value}}, quick));

  Session slow(graph);
  PreparedStep step = slow.Prepare({{x, {400, 400}}}, {y});
  std::vector<Tensor> feeds = {value};
  std::vector<Tensor> fetches = step.MakeFetches();
  std::atomic<bool> done{false};
  std::thread canceller([&] {
    while (!done) {
      slow.Cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const Status status = step.TryRun(feeds, fetches);
  done = true;
  canceller.join();
  CHECK(status.code() == Code::kCancelled);
}

}  // namespace
}  // namespace sluice
