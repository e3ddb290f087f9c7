// Fused steps against the same steps with every node by itself.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <set>

#include "engine/runtime/trace.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/optimizers.h"
#include "models/zoo/mnist_networks.h"

namespace sluice {
namespace {

// Which ops a step ran.
class OpNames final : public Observer {
 public:
  Status AfterInstruction(const RanInstruction& ran) override {
    const std::lock_guard lock(mutex_);
    names_.insert(ran.label.op);
    return {};
  }
  int Count(const std::string& op) const {
    return static_cast<int>(names_.count(op));
  }
  size_t size() const { return names_.size(); }

 private:
  std::mutex mutex_;
  std::multiset<std::string> names_;
};

Tensor Noise(const Shape& shape, uint32_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  for (float& v : tensor.values<float>()) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  return tensor;
}

Tensor Classes(int64_t n, int64_t classes) {
  Tensor tensor(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) tensor.data<int64_t>()[i] = i * 7 % classes;
  return tensor;
}

// A training step: images and labels in, a loss out.
struct Training {
  Graph graph;
  Output image, label, loss;
  Operation step;
};
using Network = std::function<Output(const Scope&, Output image)>;

std::unique_ptr<Training> MakeTraining(const Network& network,
                                       const Optimizer& optimizer,
                                       const Shape& image) {
  auto training = std::make_unique<Training>();
  Graph& graph = training->graph;
  training->image = graph.Placeholder("image", DType::kFloat32, image);
  training->label = graph.Placeholder("label", DType::kInt64, {image[0]});
  const Output logits = network(Scope(graph), training->image);
  training->loss = Mean(SparseSoftmaxCrossEntropy(logits, training->label));
  training->step = optimizer.Minimize(training->loss);
  return training;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<Tensor> variables;
};

Outcome Train(const Training& training, SessionOptions options, int steps,
              OpNames* names = nullptr) {
  options.seed = 3;
  Session session(training.graph, options);
  session.Initialize();
  if (names != nullptr) session.SetObserver(names);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss =
        session.Run({{training.image, Noise(training.image.shape(), 10 + i)},
                     {training.label, Classes(training.image.shape()[0], 5)}},
                    training.loss, {training.step});
    outcome.losses.push_back(loss.At(0));
  }
  for (const Output& variable : training.graph.Variables()) {
    outcome.variables.push_back(session.Read(variable));
  }
  return outcome;
}

// Relative to the largest element of each variable.
void CheckClose(const Training& training, const Outcome& got,
                const Outcome& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    CHECK(got.losses[i] == doctest::Approx(wanted.losses[i]).epsilon(1e-4));
  }
  const std::vector<Output> variables = training.graph.Variables();
  for (size_t i = 0; i < wanted.variables.size(); ++i) {
    INFO(variables[i].name());
    double largest = 1e-3, worst = 0;
    for (int64_t j = 0; j < wanted.variables[i].elements(); ++j) {
      largest = std::max(largest, std::abs(wanted.variables[i].At(j)));
    }
    for (int64_t j = 0; j < wanted.variables[i].elements(); ++j) {
      const double error =
          std::abs(got.variables[i].At(j) - wanted.variables[i].At(j));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error / largest);
    }
    CHECK(worst <= tolerance);
  }
}

void CheckSameBits(const Training& training, const Outcome& got,
                   const Outcome& wanted) {
  const std::vector<Output> variables = training.graph.Variables();
  for (size_t i = 0; i < wanted.variables.size(); ++i) {
    INFO(variables[i].name());
    CHECK(got.variables[i].BitEqual(wanted.variables[i]));
  }
}

// Two residual blocks with batch normalisation, the second with a projection.
Output Residual(const Scope& scope, Output x) {
  auto conv = [&](const char* name, Output in, int64_t filters, int64_t kernel,
                  const layers::Activation& activation) {
    in = layers::Conv2D(
        scope / name, in,
        {.filters = filters, .kernel = kernel, .use_bias = false});
    return layers::BatchNorm(scope / name / "norm", in,
                             {.training = true, .activation = activation});
  };
  x = conv("stem", x, 8, 3, Relu);
  const Output a = conv("a1", x, 8, 3, Relu);
  x = Relu(conv("a2", a, 8, 3, nullptr) + x);
  const Output b = conv("b1", x, 16, 3, Relu);
  x = Relu(conv("b2", b, 16, 3, nullptr) +
           conv("projection", x, 16, 1, nullptr));
  return layers::Dense(scope / "logits", layers::GlobalAvgPool(x),
                       {.units = 5});
}

Output Mlp(const Scope& scope, Output x) {
  return MnistNetwork(scope, "mlp", x, /*training=*/true);
}

Optimizer Decayed(const Optimizer& optimizer) {
  return optimizer.With(gradients::WeightDecay(1e-2, IsBiasOrNorm));
}

TEST_CASE("a residual network trains the same when fused") {
  const auto training =
      MakeTraining(Residual, Decayed(optimizers::Momentum(0.1)), {4, 9, 9, 3});
  OpNames fused, plain;
  const Outcome got = Train(*training, {}, 4, &fused);
  const Outcome wanted = Train(*training, {.fuse = false}, 4, &plain);
  CheckClose(*training, got, wanted, 2e-4);

  CHECK_EQ(plain.Count("BatchNormRelu"), 0);
  CHECK_EQ(fused.Count("BatchNormRelu"), 4 * 3);     // stem, a1, b1
  CHECK_EQ(fused.Count("BatchNormAddRelu"), 4 * 2);  // a2, b2
  CHECK_EQ(fused.Count("BatchNorm"), 4);             // the projection
  CHECK_EQ(fused.Count("ReluGrad"), 0);
  CHECK_EQ(fused.Count("BatchNormAddReluGrad"), 4);   // a2
  CHECK_EQ(fused.Count("BatchNormReluGrad"), 4 * 5);  // the others
  CHECK_EQ(fused.Count("ApplyMomentumList"), 4);
  CHECK(fused.size() < plain.size() * 3 / 5);
}

TEST_CASE("a fused step has the same bits on one thread and two") {
  const auto training =
      MakeTraining(Residual, Decayed(optimizers::Momentum(0.1)), {4, 9, 9, 3});
  SetComputeThreads(1);
  const Outcome one = Train(*training, {.deterministic = true}, 3);
  SetComputeThreads(2);
  const Outcome two = Train(*training, {.deterministic = true}, 3);
  SetComputeThreads(0);
  CheckSameBits(*training, two, one);
}

TEST_CASE("lists of updates have the bits of single ones") {
  for (const char* name :
       {"sgd", "momentum", "nesterov", "rmsprop", "adagrad", "adam", "adamw"}) {
    CAPTURE(name);
    const auto training =
        MakeTraining(Mlp, Decayed(optimizers::ByName(name)), {6, 28, 28, 1});
    OpNames fused;
    const Outcome got = Train(*training, {}, 3, &fused);
    CheckSameBits(*training, got, Train(*training, {.fuse = false}, 3));
    CHECK_EQ(fused.Count("Mul"), 0);
  }
}

TEST_CASE("accumulated gradients are applied the same when fused") {
  const auto training = MakeTraining(
      Mlp, optimizers::Momentum(0.1).With(gradients::Accumulate(2)),
      {6, 28, 28, 1});
  const Outcome got = Train(*training, {}, 4);
  CheckClose(*training, got, Train(*training, {.fuse = false}, 4), 1e-5);
}

// d/dlogits of half its square is ce (softmax(logits) - onehot), here in
// float64.
TEST_CASE("a cross entropy times itself has its gradient, fused or not") {
  constexpr int64_t kRows = 6, kClasses = 5;
  const Tensor given = Noise({kRows, kClasses}, 3);
  const Tensor classes = Classes(kRows, kClasses);
  Graph graph;
  const Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kRows, kClasses});
  const Output label = graph.Placeholder("label", DType::kInt64, {kRows});
  std::vector<Output> gradients;
  for (const Output& ce :
       {SparseSoftmaxCrossEntropy(logits, label),
        SoftmaxCrossEntropy(logits, OneHot(label, kClasses))}) {
    for (const Output& loss :
         {L2Loss(ce), 0.5 * Sum(Square(ce)), Sum(ce * StopGradient(ce))}) {
      gradients.push_back(Gradients({loss}, {logits})[0]);
    }
    gradients.push_back(Gradients({ce}, {logits}, {ce})[0]);
  }
  Session fused(graph), plain(graph, {.fuse = false});
  for (Session* session : {&fused, &plain}) {
    for (size_t g = 0; g < gradients.size(); ++g) {
      CAPTURE(g);
      const Tensor got =
          session->Run({{logits, given}, {label, classes}}, gradients[g]);
      for (int64_t r = 0; r < kRows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < kClasses; ++c) {
          sum += std::exp(given.At(kClasses * r + c));
        }
        const auto label_of_row = static_cast<int64_t>(classes.At(r));
        const auto softmax = [&](int64_t c) {
          return std::exp(given.At(kClasses * r + c)) / sum;
        };
        const double ce = -std::log(softmax(label_of_row));
        for (int64_t c = 0; c < kClasses; ++c) {
          const double wanted = ce * (softmax(c) - (c == label_of_row ? 1 : 0));
          CHECK(std::abs(got.At(kClasses * r + c) - wanted) < 1e-5);
        }
      }
    }
  }
}

// Fused and plain values of some outputs for one feed.
void CheckLarge(const Shape& shape,
                const std::function<std::vector<Output>(Output)>& build) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, shape);
  const std::vector<Output> outputs = build(x);
  const Feed feed = {x, Noise(shape, 5)};
  Session fused(graph), plain(graph, {.fuse = false});
  const std::vector<Tensor> got = fused.Run({feed}, outputs);
  const std::vector<Tensor> wanted = plain.Run({feed}, outputs);
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    double worst = 0;
    for (int64_t j = 0; j < got[i].elements(); ++j) {
      const double w = wanted[i].At(j);
      worst = std::max(worst, std::abs(got[i].At(j) - w) / (1 + std::abs(w)));
    }
    CHECK(worst < 1e-5);
  }
}

// Large enough to be stored past the caches; rows that end within a cache line.
TEST_CASE("large tensors are computed the same when fused") {
  CheckLarge({120'000, 37}, [](const Output& x) -> std::vector<Output> {
    const Output y = Relu(x * 2 - 0.5);
    return {y, Sum(y, {0}) * 1e-3};
  });
  CheckLarge({37, 120'000}, [](const Output& x) -> std::vector<Output> {
    const Output y = Tanh(x + 0.25);
    return {y, Mean(y, {1}), Exp(y)};
  });
  CheckLarge({70'000, 8, 8}, [](const Output& x) -> std::vector<Output> {
    Graph& graph = x.graph();
    auto channels = [&](double value) {
      return graph.Constant(Tensor::Full(DType::kFloat32, {8}, value));
    };
    const BatchNormOutputs norm =
        BatchNorm(x, channels(2), channels(0.25), channels(0), channels(1), {});
    return {Relu(norm.y), norm.mean, norm.new_running_variance};
  });
}

// Of rows and of wholes, in one step: the values with and without lists.
TEST_CASE("assignments of rows are theirs when others become a list") {
  Graph graph;
  std::vector<Output> variables, values;
  std::vector<Feed> feeds;
  std::vector<Operation> writes;
  for (int i = 0; i < 6; ++i) {
    const bool whole = i % 3 == 0;
    const Shape shape = {whole ? 5 : 2, 3};
    const Output v = graph.Variable(fmt::format("v{}", i), Filled(i, {5, 3}));
    const Output x =
        graph.Placeholder(fmt::format("x{}", i), DType::kFloat32, shape);
    Attributes attrs;
    if (!whole) attrs.Set("first_row", int64_t{i % 4});
    writes.emplace_back(&graph.Add({"Assign", {v, x}, attrs}));
    feeds.push_back({x, Noise(shape, static_cast<uint32_t>(i))});
    variables.push_back(v);
  }
  const Operation all = Group(graph, writes);
  Session fused(graph), plain(graph, {.fuse = false});
  for (Session* session : {&fused, &plain}) {
    session->Initialize();
    session->Run(feeds, all);
  }
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    const Tensor got = fused.Read(variables[i]);
    CHECK(got.BitEqual(plain.Read(variables[i])));
    const Tensor given = feeds[static_cast<size_t>(i)].value;
    const int64_t first = i % 3 == 0 ? 0 : i % 4;
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < 3; ++c) {
        const bool written = r >= first && r < first + given.shape()[0];
        CHECK(got.At(3 * r + c) ==
              (written ? given.At(3 * (r - first) + c) : i));
      }
    }
  }
}

TEST_CASE("a list has no more operands than a node may have") {
  constexpr size_t kAssigned = 33'000, kUpdated = 17'000;
  Graph graph;
  const auto variable = [&] {
    const Attributes attrs = {{"dtype", DType::kFloat32}, {"shape", Shape()}};
    return graph.Add({"Variable", {}, attrs}).output(0);
  };
  const Output one = graph.Constant(1, DType::kFloat32);
  const Output step = graph.Constant(1, DType::kInt64);
  for (size_t i = 0; i < kAssigned; ++i) {
    graph.Add({"Assign", {variable(), one}});
  }
  for (size_t i = 0; i < kUpdated; ++i) {
    graph.Add(
        {"ApplyAdam", {variable(), variable(), variable(), one, step, one}});
  }
  passes::Fuse(graph);
  std::set<const Node*> written;
  size_t writes = 0;
  int nodes = 0, most = 0;
  for (const auto& node : graph.nodes()) {
    most = std::max({most, node->num_inputs(), node->num_outputs()});
    nodes += node->mutates() > 0 ? 1 : 0;
    for (int i = 0; i < node->mutates(); ++i, ++writes) {
      written.insert(&node->input(i).node());
    }
  }
  CHECK(most <= kMostOperands);
  CHECK_EQ(nodes, 4);  // two lists of each
  CHECK_EQ(writes, kAssigned + 3 * kUpdated);
  CHECK_EQ(written.size(), writes);
}

// Values and choices of all kinds, made of each other: programs have bools in
// few places, and what is beside them stays a node.
TEST_CASE("random choices are computed the same when fused") {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    CheckLarge({40, 32}, [&](const Output& x) -> std::vector<Output> {
      std::vector<Output> values = {x, x * 0.5 - 0.125};
      std::vector<Output> choices = {Greater(x, 0.25), Less(x, values[1])};
      const auto value = [&] { return values[below(values.size())]; };
      const auto choice = [&] { return choices[below(choices.size())]; };
      for (int i = 0; i < 12; ++i) {
        switch (below(9)) {
          case 0:
            values.push_back(value() * value());
            break;
          case 1:
            values.push_back(Tanh(value() + value()));
            break;
          case 2:
          case 3:
            values.push_back(Select(choice(), value(), value()));
            break;
          case 4:
            choices.push_back(Greater(value(), value()));
            break;
          case 5:
            choices.push_back(Equal(choice(), choice()));
            break;
          case 6:
            choices.push_back(NotEqual(IsNan(value()), choice()));
            break;
          case 7:
            choices.push_back(Select(choice(), choice(), choice()));
            break;
          default:
            choices.push_back(LogicalXor(choice(), LogicalNot(choice())));
        }
      }
      const Output chosen = Cast(choices.back(), DType::kFloat32);
      return {values.back() * 2, Select(choices.back(), value(), value()) * 2,
              chosen + 1};
    });
  }
}

}  // namespace
}  // namespace sluice
