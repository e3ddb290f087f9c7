// Which tensors are joined, and that each gets its own mean back.
#include "models/optim/reduce_gradients.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>

#include "engine/runtime/collective.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// The other worker's tensors are twice this one's, so that the mean is 1.5 of
// it. Keeps what was reduced.
class Doubled final : public Collective {
 public:
  struct Call {
    DType dtype;
    int64_t count;
  };
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status AllReduce(std::string_view, DType dtype, void* data, int64_t count,
                   Reduction how) override {
    calls.push_back({dtype, count});
    const double factor = how == Reduction::kMean ? 1.5 : 3;
    for (int64_t i = 0; i < count; ++i) {
      if (dtype == DType::kFloat64) {
        static_cast<double*>(data)[i] *= factor;
      } else {
        static_cast<float*>(data)[i] *= static_cast<float>(factor);
      }
    }
    return {};
  }
  Status SumTree(std::string_view, DType, int64_t, std::span<const void* const>,
                 void*, int64_t) override {
    return Internal("not to be called");
  }
  Status ReduceScatter(std::string_view, DType, void*, int64_t, int64_t,
                       Reduction) override {
    return Internal("not to be called");
  }
  Status Broadcast(std::string_view, void*, int64_t, int) override {
    return Internal("not to be called");
  }
  Status AllGather(std::string_view, const void*, int64_t, void*) override {
    return Internal("not to be called");
  }
  Status AllToAll(std::string_view, const void*, int64_t, void*) override {
    return Internal("not to be called");
  }
  Status Barrier(std::string_view) override {
    return Internal("not to be called");
  }
  std::vector<Call> calls;
};

TEST_CASE("each gradient gets its own mean, in buckets of the size") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    Graph graph;
    std::vector<GradientAndVariable> pairs;
    std::vector<Tensor> values;
    const auto count = static_cast<int>(1 + random() % 8);
    size_t largest = 0, total = 0;
    for (int i = 0; i < count; ++i) {
      std::vector<int64_t> dims;
      for (auto rank = random() % 3; rank > 0; --rank) {
        dims.push_back(static_cast<int64_t>(random() % 6));  // none, too
      }
      const DType dtype = random() % 4 == 0 ? DType::kFloat64 : DType::kFloat32;
      const Shape shape(dims);
      Tensor value(dtype, shape);
      for (int64_t e = 0; e < value.elements(); ++e) {
        const auto number = static_cast<double>(random() % 100);
        if (dtype == DType::kFloat64) {
          value.data<double>()[e] = number;
        } else {
          value.data<float>()[e] = static_cast<float>(number);
        }
      }
      pairs.push_back(
          {graph.Constant(value) * 1,
           graph.Variable("v" + std::to_string(i), Zeros(shape, dtype))});
      values.push_back(value);
      largest = std::max(largest, value.bytes());
      total += value.bytes();
    }
    const BucketBytes buckets = {1 + random() % 200, 1 + random() % 200};
    ReduceGradients(pairs, DType::kFloat32, buckets);
    std::vector<Output> fetches;
    for (const auto& pair : pairs) fetches.push_back(pair.gradient);

    SessionOptions options;
    const auto doubled = std::make_shared<Doubled>();
    options.collective = doubled;
    Session session(graph, options);
    const std::vector<Tensor> means = session.Run({}, fetches);
    CAPTURE(trial);
    for (size_t i = 0; i < means.size(); ++i) {
      REQUIRE(means[i].shape() == values[i].shape());
      REQUIRE(means[i].dtype() == values[i].dtype());
      for (int64_t e = 0; e < means[i].elements(); ++e) {
        CHECK(means[i].At(e) == 1.5 * values[i].At(e));
      }
    }
    // Everything went once; large tensors went alone, a bucket ended with the
    // tensor that filled it, and what was left of each dtype made one more.
    const size_t most = std::max(buckets.first, buckets.others);
    size_t reduced = 0, open = 0, wanted = buckets.first;
    for (const auto& [dtype, elements] : doubled->calls) {
      const size_t bytes = static_cast<size_t>(elements) * SizeOf(dtype);
      CHECK(bytes < std::max(2 * most, largest + 1));
      if (bytes < wanted) {
        ++open;
      } else {
        wanted = buckets.others;
      }
      reduced += bytes;
    }
    CHECK(reduced == total);
    CHECK(open <= 2);  // the last
  }
}

TEST_CASE("buckets of no bytes are refused") {
  for (const BucketBytes& buckets : {BucketBytes{0, 1}, BucketBytes{1, 0}}) {
    CHECK_THROWS_AS(
        (void)optimizers::Adam().WithAllReduce({.buckets = buckets}), Error);
  }
}

// The order is that of the graph, so the same in each prepared step.
TEST_CASE("every prepared step has the same buckets") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  Output y = x;
  for (int i = 0; i < 4; ++i) {
    const Output w = graph.Variable("w" + std::to_string(i), Ones({3, 3}));
    y = Tanh(MatMul(y, w));
  }
  const Output loss = Mean(y);
  const Operation train = optimizers::Adam().WithAllReduce().Minimize(loss);
  SessionOptions options;
  const auto doubled = std::make_shared<Doubled>();
  options.collective = doubled;
  Session session(graph, options);
  session.Initialize();
  std::vector<std::vector<int64_t>> counts;
  for (const int64_t rows : {1, 5, 32}) {
    for (const bool measured : {false, true}) {
      doubled->calls.clear();
      std::vector<Output> fetches = {loss};
      if (measured) fetches.push_back(Mean(x));
      session.Run({{x, Tensor::Full(DType::kFloat32, {rows, 3}, 1)}}, fetches,
                  {train});
      counts.emplace_back();
      for (const auto& call : doubled->calls) {
        counts.back().push_back(call.count);
      }
    }
  }
  for (const auto& each : counts) CHECK(each == counts[0]);
  CHECK(counts[0] == std::vector<int64_t>{4 * 9});
}

TEST_CASE("what updates write is averaged, unless it is a whole number") {
  Graph graph;
  const Output w = graph.Variable("w", Ones({2}));
  const Output mean = graph.Variable("mean", Zeros({2}), {.trainable = false});
  const Output count =
      graph.Variable("count", Zeros({}, DType::kInt64), {.trainable = false});
  const Output first = Assign(mean, mean + w);
  graph.AddUpdate(Group(graph, {first, AssignAdd(count, 1)}));
  // Again, and a second update of the same, after the first.
  graph.AddUpdate(first);
  graph.AddUpdate(AssignAdd(mean, first));
  const Operation train =
      optimizers::Sgd(0.5).WithAllReduce().Minimize(Sum(w * w));
  SessionOptions options;
  options.collective = std::make_shared<Doubled>();
  Session session(graph, options);
  session.Initialize();
  session.Run({}, train);
  // 1.5 times what this worker has: gradient 2, statistics 2.
  CHECK(session.Read(w).At(0) == 1 - 0.5 * 3);
  CHECK(session.Read(mean).At(1) == 3);
  CHECK(session.Read(count).IntAt(0) == 1);
}

// By no node that is listed: on the way to another update or to the loss, or as
// the second variable of an op.
TEST_CASE("all that updates and the loss write on their way is averaged") {
  Graph graph;
  const auto statistic = [&](const char* name) {
    return graph.Variable(name, Zeros({2}), {.trainable = false});
  };
  const Output w = graph.Variable("w", Ones({2}));
  const Output mean = statistic("mean"), spread = statistic("spread");
  const Output moment = statistic("moment"), velocity = statistic("velocity");
  const Output centre = statistic("centre");
  const Output moved = Assign(mean, mean + w);
  graph.AddUpdate(Assign(spread, spread + 2 * moved));
  graph.AddUpdate(ApplyMomentum(moment, velocity, 0.5, 2 * w));
  const Output shift = StopGradient(Assign(centre, centre + w));
  const Operation train =
      optimizers::Sgd(0.5).WithAllReduce().Minimize(Sum(w * w) + Sum(shift));
  SessionOptions options;
  options.collective = std::make_shared<Doubled>();
  Session session(graph, options);
  session.Initialize();
  session.Run({}, train);
  // 1.5 times what this worker has.
  CHECK(session.Read(w).At(0) == 1 - 0.5 * 3);
  CHECK(session.Read(mean).At(1) == 1.5);
  CHECK(session.Read(spread).At(1) == 1.5 * 2);
  CHECK(session.Read(velocity).At(1) == 1.5 * 2);
  CHECK(session.Read(moment).At(1) == 1.5 * -1);
  CHECK(session.Read(centre).At(1) == 1.5);
}

TEST_CASE("statistics of a layer that is called twice are averaged once") {
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    Graph graph;
    const Output x = graph.Constant(Tensor::Array<float>({2, 1}, {1, 3}));
    const ReuseVariables again{Scope(graph)};
    Output sum;
    for (int i = 0; i < 2; ++i) {
      const Output y =
          layers::BatchNorm(Scope(graph, "bn"), x + 10 * i, {.training = true});
      sum = i == 0 ? Sum(y) : sum + Sum(y);
    }
    const Operation train =
        optimizers::Sgd(0.0).WithAllReduce({.shared = shared}).Minimize(sum);
    SessionOptions options;
    options.collective = std::make_shared<Doubled>();
    Session session(graph, options);
    session.Initialize();
    session.Run({}, train);
    // Means 2 and 12, one after the other; 1.5 times what this worker has.
    CHECK(session.Read(graph.Get("bn/running_mean")).At(0) ==
          doctest::Approx(1.5 * (0.9 * 0.1 * 2 + 0.1 * 12)));
  }
}

// Though in a step with both it comes after the training's.
TEST_CASE("a later collective by itself writes no statistics") {
  for (const bool scaled : {false, true}) {
    CAPTURE(scaled);
    Graph graph;
    const Scope root(graph);
    const Output x = graph.Placeholder("x", DType::kFloat32, {4, 1});
    const Output apply = graph.Placeholder("apply", DType::kBool, {});
    const Output w = graph.Variable("w", Ones({1, 1}));
    const Output last = graph.Variable("last", Zeros({}), {.trainable = false});
    const Output y = layers::BatchNorm(root / "norm", MatMul(x, w),
                                       {.training = true, .momentum = 0.5});
    const Output update = Assign(last, Max(x));
    MakeConditional(update, apply);
    graph.AddUpdate(update);
    Optimizer optimizer = optimizers::Momentum(0.1).WithAllReduce();
    if (scaled) optimizer = optimizer.WithLossScaling();
    const Operation train = optimizer.Minimize(Mean(Square(y - 1)));
    const Output shown = AllReduce(Mean(x));
    SessionOptions options;
    options.collective = std::make_shared<Doubled>();
    Session session(graph, options);
    session.Initialize();
    const auto feeds = [&](float first, bool applies) -> std::vector<Feed> {
      return {{x, Tensor::Array<float>({4, 1}, {first, 3, 4, 8})},
              {apply, Tensor::Scalar(applies)}};
    };
    const auto values = [&] {
      std::map<std::string, Tensor> read;
      for (const Output& variable : graph.Variables()) {
        read[variable.name()] = session.Read(variable);
      }
      return read;
    };
    const auto check_same = [&](const std::map<std::string, Tensor>& before) {
      for (const auto& [name, value] : values()) {
        CAPTURE(name);
        if (IsLossScaleState(name) || name == "global_step") continue;
        CHECK(value.BitEqual(before.at(name)));
      }
    };

    session.Run(feeds(1, true), train);
    const auto trained = values();
    // 1.5 times what this worker has: batches of mean 4.
    CHECK(trained.at("norm/running_mean").At(0) ==
          doctest::Approx(1.5 * 0.5 * 4));
    CHECK(trained.at("last").At(0) == 1.5 * 8);
    CHECK(session.Run(feeds(9, true), shown).At(0) == doctest::Approx(1.5 * 6));
    check_same(trained);
    CHECK(session.Read(GlobalStep(graph)).IntAt(0) == 1);
    if (scaled) {
      session.Run(feeds(std::numeric_limits<float>::infinity(), true), train);
      check_same(trained);
    }
    session.Run(feeds(1, false), train);
    CHECK(session.Read(last).At(0) == 1.5 * (1.5 * 8));
  }
}

TEST_CASE("a count of a share is refused on the way to an update, too") {
  Graph graph;
  const Output w = graph.Variable("w", Ones({2}));
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  const Output seen =
      graph.Variable("seen", Zeros({}, DType::kInt64), {.trainable = false});
  const Output half = graph.Variable("half", Zeros({}), {.trainable = false});
  const Output counted = AssignAdd(seen, Size(x));
  graph.AddUpdate(Assign(half, Cast(counted, DType::kFloat32) / 2));
  CHECK(Contains(
      ErrorOf([&] { optimizers::Sgd(1).WithAllReduce().Minimize(Sum(w * w)); }),
      "updates 'seen'"));
}

TEST_CASE("an update has its condition where variables are shared, too") {
  for (const bool applies : {false, true}) {
    CAPTURE(applies);
    Graph graph;
    const Output w = graph.Variable("w", Ones({2}));
    const Output mean =
        graph.Variable("mean", Zeros({2}), {.trainable = false});
    const Output apply = graph.Placeholder("apply", DType::kBool, {});
    const Output update = Assign(mean, w);
    MakeConditional(update, apply);
    graph.AddUpdate(update);
    const Operation train = optimizers::Sgd(0.5)
                                .WithAllReduce({.shared = true})
                                .Minimize(Sum(w * w));
    SessionOptions options;
    options.collective = std::make_shared<Doubled>();
    Session session(graph, options);
    session.Initialize();
    session.Run({{apply, Tensor::Scalar(applies)}}, train);
    CHECK(session.Read(w).At(0) == 1 - 0.5 * 3);
    for (const int64_t i : {0, 1}) {
      CHECK(session.Read(mean).At(i) == (applies ? 1.5 : 0));
    }
  }
}

TEST_CASE("where variables are shared no update is of another's new value") {
  Graph graph;
  const Output w = graph.Variable("w", Ones({2}));
  const Output mean = graph.Variable("mean", Zeros({2}), {.trainable = false});
  const Output last = graph.Variable("last", Zeros({2}), {.trainable = false});
  graph.AddUpdate(Assign(last, 2 * Assign(mean, w)));
  CHECK(Contains(
      ErrorOf([&] {
        optimizers::Sgd(1).WithAllReduce({.shared = true}).Minimize(Sum(w * w));
      }),
      "updates 'mean', and another update is of what it wrote"));
}

TEST_CASE("where variables are shared no loss is of what the step writes") {
  Graph graph;
  const Output w = graph.Variable("w", Ones({2}));
  const Output centre = graph.Variable("centre", Zeros({2}));
  const Output noted = StopGradient(Assign(centre, centre + w));
  CHECK(Contains(ErrorOf([&] {
                   optimizers::Sgd(1)
                       .WithAllReduce({.shared = true})
                       .Minimize(Sum(w * w) + Sum(noted), {w});
                 }),
                 "updates 'centre', and the loss is of what it wrote"));
}

}  // namespace
}  // namespace sluice
