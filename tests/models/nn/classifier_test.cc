// Classifiers whose classes are cut over workers, which are threads, against
// loops over all examples and classes in double.
#include "models/nn/classifier.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/ceil_div.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "models/nn/parts.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using dist::testing::Groups;
using dist::testing::InThreads;
using dist::testing::JoinAll;
using dist::testing::Watchdog;
using testing::Contains;

// Examples of all workers, by rank, and the classifier as a whole.
struct Problem {
  int workers = 2;
  int64_t classes = 0, features = 0, share = 0;
  double smoothing = 0;
  int64_t k = 1;                  // of TopKAccuracy
  std::vector<int64_t> examples;  // of each worker
  std::vector<double> x;          // [all, features]
  std::vector<int64_t> labels;
  std::vector<double> coefficients;  // of the losses
  std::vector<double> weights, bias;

  int64_t all() const {
    return std::accumulate(examples.begin(), examples.end(), int64_t{0});
  }
  int64_t first(int rank) const {
    return std::accumulate(examples.begin(), examples.begin() + rank,
                           int64_t{0});
  }
};

Problem RandomProblem(std::mt19937& random, int workers, int64_t classes,
                      int64_t features, int64_t share) {
  std::normal_distribution<double> normal;
  Problem p;
  p.workers = workers;
  p.classes = classes;
  p.features = features;
  p.share = share;
  p.smoothing = random() % 2 == 0 ? 0 : 0.1;
  p.k = 1 + static_cast<int64_t>(random() % 3);
  for (int rank = 0; rank < workers; ++rank) {
    p.examples.push_back(static_cast<int64_t>(random() % (share + 1)));
  }
  const auto fill = [&](std::vector<double>* values, int64_t count,
                        double scale) {
    for (int64_t i = 0; i < count; ++i) {
      // Of few digits, so that some logits are equal.
      values->push_back(std::round(normal(random) * 4) / 4 * scale);
    }
  };
  fill(&p.x, p.all() * features, 1);
  fill(&p.coefficients, p.all(), 1);
  // Far from 0 now and then, where a softmax without care overflows.
  fill(&p.weights, features * classes, random() % 4 == 0 ? 100 : 1);
  fill(&p.bias, classes, 1);
  for (int64_t i = 0; i < p.all(); ++i) {
    p.labels.push_back(static_cast<int64_t>(random() % classes));
  }
  return p;
}

struct Answer {
  std::vector<double> losses, accuracy, top;  // of each example
  std::vector<double> dx, dweights, dbias;
};

Answer Reference(const Problem& p) {
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  Answer a;
  a.dx.assign(p.x.size(), 0);
  a.dweights.assign(p.weights.size(), 0);
  a.dbias.assign(p.bias.size(), 0);
  std::vector<double> z(at(p.classes));
  for (int64_t i = 0; i < p.all(); ++i) {
    for (int64_t c = 0; c < p.classes; ++c) {
      double sum = p.bias[at(c)];
      for (int64_t f = 0; f < p.features; ++f) {
        sum += p.x[at(i * p.features + f)] * p.weights[at(f * p.classes + c)];
      }
      z[at(c)] = sum;
    }
    const double most = *std::max_element(z.begin(), z.end());
    double powers = 0, smoothed = 0;
    for (const double logit : z) {
      powers += std::exp(logit - most);
      if (p.smoothing > 0) {
        smoothed += p.smoothing * logit / static_cast<double>(p.classes);
      }
    }
    const int64_t label = p.labels[at(i)];
    const double of_label = z[at(label)];
    a.losses.push_back(most + std::log(powers) - (1 - p.smoothing) * of_label -
                       smoothed);
    int64_t above = 0;
    bool first = true;
    for (int64_t c = 0; c < p.classes; ++c) {
      above += z[at(c)] > of_label ? 1 : 0;
      first = first && !(c < label && z[at(c)] == of_label);
    }
    a.accuracy.push_back(above == 0 && first ? 1 : 0);
    a.top.push_back(above < p.k ? 1 : 0);
    for (int64_t c = 0; c < p.classes; ++c) {
      const double target = p.smoothing / static_cast<double>(p.classes) +
                            (c == label ? 1 - p.smoothing : 0);
      const double dz =
          p.coefficients[at(i)] * (std::exp(z[at(c)] - most) / powers - target);
      a.dbias[at(c)] += dz;
      for (int64_t f = 0; f < p.features; ++f) {
        a.dx[at(i * p.features + f)] += dz * p.weights[at(f * p.classes + c)];
        a.dweights[at(f * p.classes + c)] += dz * p.x[at(i * p.features + f)];
      }
    }
  }
  return a;
}

Tensor TensorOf(DType dtype, const Shape& shape,
                std::span<const double> values) {
  return Tensor::Array<double>(shape, values).Cast(dtype);
}

// What a worker's session makes of its examples: losses, accuracy, top, dx, its
// parts of dweights and dbias.
std::vector<Tensor> RunOn(const Problem& p, DType dtype, int rank,
                          std::shared_ptr<Collective> group,
                          size_t* variable_bytes) {
  Graph graph;
  const Output x = graph.Placeholder("x", dtype, {kUnknown, p.features});
  const Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  const Output coefficients =
      graph.Placeholder("coefficients", dtype, {kUnknown});
  const layers::Classifier classifier(
      Scope(graph, "fc"), x,
      {.classes = p.classes, .workers = p.workers, .share = p.share});
  REQUIRE(classifier.is_cut());
  const Output losses =
      classifier.CrossEntropy(label, {.label_smoothing = p.smoothing});
  const Output accuracy = classifier.Accuracy(label);
  const Output top = classifier.TopKAccuracy(label, p.k);
  const Output weights = graph.Get("fc/weights"), bias = graph.Get("fc/bias");
  const std::vector<Output> gradients =
      Gradients({Sum(losses * coefficients)}, {x, weights, bias});
  SessionOptions options;
  options.collective = std::move(group);
  Session session(graph, options);
  session.Write(
      weights, PartOf(TensorOf(dtype, {p.features, p.classes}, p.weights), rank,
                      p.workers));
  session.Write(bias,
                PartOf(TensorOf(dtype, {p.classes}, p.bias), rank, p.workers));
  const auto n = p.examples[static_cast<size_t>(rank)];
  const auto of = [&](const std::vector<double>& all, int64_t each) {
    return std::span(all).subspan(static_cast<size_t>(p.first(rank) * each),
                                  static_cast<size_t>(n * each));
  };
  const Tensor labels = Tensor::Vector<int64_t>(std::span(p.labels).subspan(
      static_cast<size_t>(p.first(rank)), static_cast<size_t>(n)));
  std::vector<Tensor> results = session.Run(
      {{x, TensorOf(dtype, {n, p.features}, of(p.x, p.features))},
       {label, labels},
       {coefficients, TensorOf(dtype, {n}, of(p.coefficients, 1))}},
      {losses, accuracy, top, gradients[0], gradients[1], gradients[2]});
  if (variable_bytes != nullptr) *variable_bytes = session.variable_bytes();
  return results;
}

void CheckAgainst(const Problem& p, DType dtype, double tolerance,
                  size_t* variable_bytes = nullptr) {
  const Watchdog watchdog;
  Groups groups = JoinAll(p.workers);
  std::vector<std::vector<Tensor>> got(static_cast<size_t>(p.workers));
  InThreads(p.workers, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    got[i] = RunOn(p, dtype, rank, std::move(groups[i]),
                   rank == 0 ? variable_bytes : nullptr);
  });
  const Answer wanted = Reference(p);
  const auto check = [&](const Tensor& mine, const double* all) {
    for (int64_t i = 0; i < mine.elements(); ++i) {
      CHECK(std::abs(mine.At(i) - all[i]) <=
            tolerance * (1 + std::abs(all[i])));
    }
  };
  Tensor dweights = Tensor::Zeros(dtype, {p.features, p.classes});
  Tensor dbias = Tensor::Zeros(dtype, {p.classes});
  for (int rank = 0; rank < p.workers; ++rank) {
    CAPTURE(rank);
    const std::vector<Tensor>& mine = got[static_cast<size_t>(rank)];
    const auto first = static_cast<size_t>(p.first(rank));
    REQUIRE(mine[0].elements() == p.examples[static_cast<size_t>(rank)]);
    check(mine[0], wanted.losses.data() + first);
    check(mine[1], wanted.accuracy.data() + first);
    check(mine[2], wanted.top.data() + first);
    check(mine[3], wanted.dx.data() + first * static_cast<size_t>(p.features));
    PutPart(mine[4], rank, p.workers, &dweights);
    PutPart(mine[5], rank, p.workers, &dbias);
  }
  check(dweights, wanted.dweights.data());
  check(dbias, wanted.dbias.data());
}

TEST_CASE("a cut classifier is the whole one") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 40; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    const Problem p = RandomProblem(
        random, workers, workers + static_cast<int64_t>(random() % 9),
        1 + static_cast<int64_t>(random() % 5),
        1 + static_cast<int64_t>(random() % 4));
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(p.classes);
    CAPTURE(p.smoothing);
    CheckAgainst(p, DType::kFloat64, 1e-10);
  }
}

TEST_CASE("of many classes gradients are those in double, memory is halved") {
  std::mt19937 random(2);
  for (const int64_t classes : {10'000, 10'001}) {
    const int workers = classes % 2 == 0 ? 2 : 3;
    Problem p = RandomProblem(random, workers, classes, 16, 4);
    for (double& weight : p.weights) weight /= 16;
    CAPTURE(classes);
    size_t bytes = 0;
    CheckAgainst(p, DType::kFloat32, 1e-5, &bytes);
    const auto whole = static_cast<size_t>((16 + 1) * classes) * sizeof(float);
    CHECK(bytes <= whole / static_cast<size_t>(workers) + 17 * sizeof(float));
  }
}

TEST_CASE("losses keep their digits however large all logits are") {
  std::mt19937 random(5);
  for (const double smoothing : {0.0, 0.1}) {
    for (const double offset : {1e6, -1e6}) {
      Problem p = RandomProblem(random, 3, 10, 4, 3);
      p.smoothing = smoothing;
      // Of quarters, of which float32 has what they add up to.
      for (double& weight : p.weights) weight = std::clamp(weight, -1.0, 1.0);
      for (double& bias : p.bias) bias += offset;
      CAPTURE(smoothing);
      CAPTURE(offset);
      CheckAgainst(p, DType::kFloat32, 1e-5);
    }
  }
}

TEST_CASE("classes that are masked count nothing, cut anywhere") {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  std::mt19937 random(6);
  for (int trial = 0; trial < 30; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    Problem p = RandomProblem(random, workers, workers + 5, 3, 3);
    p.smoothing = 0;  // else the loss is infinite
    const auto kept = static_cast<int64_t>(random() % p.classes);
    // From none to all but one: of one worker, of several.
    const auto begin = static_cast<int64_t>(random() % p.classes);
    const auto end =
        begin + static_cast<int64_t>(random() % (p.classes - begin + 1));
    for (int64_t c = trial == 0 ? 0 : begin; c < (trial == 0 ? p.classes : end);
         ++c) {
      if (c != kept) p.bias[static_cast<size_t>(c)] = kMasked;
    }
    for (int64_t& label : p.labels) {
      if (p.bias[static_cast<size_t>(label)] == kMasked) label = kept;
    }
    CAPTURE(trial);
    CAPTURE(begin);
    CAPTURE(end);
    CheckAgainst(p, DType::kFloat64, 1e-10);
  }
}

TEST_CASE("where logits are no numbers no label is right, cut or whole") {
  const double nan = std::nan("");
  Problem p;
  p.classes = 4;
  p.features = 1;
  p.share = 2;
  p.examples = {2, 1};
  p.x = {1, 1, nan};
  p.labels = {2, 0, 0};  // NaN there, elsewhere, everywhere
  p.coefficients = {1, 1, 1};
  p.weights = {4, 1, 1, 1};
  p.bias = {0, 0, nan, 0};

  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 1});
  const Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  const layers::Classifier whole(Scope(graph, "fc"), x, {.classes = 4});
  Session session(graph);
  session.Write(graph.Get("fc/weights"),
                TensorOf(DType::kFloat32, {1, 4}, p.weights));
  session.Write(graph.Get("fc/bias"), TensorOf(DType::kFloat32, {4}, p.bias));
  const std::vector<Tensor> of_whole =
      session.Run({{x, TensorOf(DType::kFloat32, {3, 1}, p.x)},
                   {label, Tensor::Vector<int64_t>(p.labels)}},
                  {whole.Accuracy(label), whole.TopKAccuracy(label, p.k)});

  const Watchdog watchdog;
  Groups groups = JoinAll(2);
  std::vector<std::vector<Tensor>> of_cut(2);
  InThreads(2, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    of_cut[i] = RunOn(p, DType::kFloat32, rank, std::move(groups[i]), nullptr);
  });
  for (const size_t metric : {0, 1}) {  // accuracy, top 1
    CAPTURE(metric);
    for (int64_t i = 0; i < 3; ++i) CHECK(of_whole[metric].At(i) == 0);
    for (const std::vector<Tensor>& results : of_cut) {
      const Tensor& right = results[1 + metric];
      for (int64_t i = 0; i < right.elements(); ++i) CHECK(right.At(i) == 0);
    }
    CHECK(of_cut[0][1 + metric].elements() == 2);
  }
}

// Of a classifier and its optimizer's slots, with all of it and cut.
TEST_CASE("first values are those of the whole") {
  for (const int workers : {2, 3}) {
    for (const int64_t classes : {7, 12}) {
      const auto build = [&](Graph& graph, int64_t cut) {
        const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 5});
        const layers::Classifier layer(Scope(graph, "fc"), x,
                                       {.classes = classes,
                                        .bias = initializers::Uniform(-1, 1),
                                        .workers = cut,
                                        .share = 2});
      };
      Graph whole;
      build(whole, 1);
      Session one(whole, {.seed = 5});
      one.Initialize();
      Groups groups = JoinAll(workers);
      for (const char* name : {"fc/weights", "fc/bias"}) {
        const Tensor wanted = one.Read(whole.Get(name));
        for (int rank = 0; rank < workers; ++rank) {
          Graph graph;
          build(graph, workers);
          SessionOptions options{.seed = 5};
          options.collective = std::shared_ptr<Collective>(
              std::shared_ptr<void>(), groups[static_cast<size_t>(rank)].get());
          Session session(graph, options);
          session.Initialize();
          CHECK(session.Read(graph.Get(name))
                    .BitEqual(PartOf(wanted, rank, workers)));
        }
      }
    }
  }
}

TEST_CASE("a label that is no class fails the step of who has it") {
  for (const int64_t label : {int64_t{-1}, int64_t{7}, int64_t{1} << 40}) {
    std::mt19937 random(4);
    Problem p = RandomProblem(random, 2, 7, 3, 2);
    p.examples = {1, 1};
    p.x.assign(6, 1);
    p.coefficients = {1, 1};
    p.labels = {0, label};
    const Watchdog watchdog;
    Groups groups = JoinAll(2);
    std::vector<std::string> errors(2);
    InThreads(2, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      const std::shared_ptr<dist::Group> group = std::move(groups[i]);
      try {
        RunOn(p, DType::kFloat32, rank, group, nullptr);
      } catch (const Error& error) {
        errors[i] = error.what();
        group->Leave(Status(Code::kUnavailable, "left"));
      }
    });
    CAPTURE(errors[1]);
    CHECK(errors[0] != "");
    CHECK(Contains(errors[1], std::to_string(label)));
    CHECK(Contains(errors[1], "7"));
  }
}

TEST_CASE("what cannot be is refused") {
  const auto error = [](const layers::ClassifierOptions& options) {
    return testing::ErrorOf([&] {
      Graph graph;
      const layers::Classifier layer(
          Scope(graph, "fc"),
          graph.Placeholder("x", DType::kFloat32, {kUnknown, 3}), options);
      (void)layer.Logits();
    });
  };
  CHECK(error({.classes = 4}) == "(no error)");
  CHECK(Contains(error({.classes = 0}), "classes must be positive, got 0"));
  CHECK(Contains(error({.classes = 2, .workers = 3, .share = 1}),
                 "2 classes cannot be cut over 3 workers"));
  CHECK(Contains(error({.classes = 4, .workers = 3}),
                 "share of a batch must be positive, got 0"));
  CHECK(Contains(error({.classes = 4, .workers = 2, .share = 1}),
                 "of which none has all logits"));

  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  const Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  const layers::Classifier layer(Scope(graph, "fc"), x,
                                 {.classes = 4, .workers = 2, .share = 1});
  const Output column =
      graph.Placeholder("column", DType::kInt64, {kUnknown, 1});
  CHECK(Contains(testing::ErrorOf([&] { (void)layer.CrossEntropy(column); }),
                 "a label for each example, [n], got [?,1]"));
  const Output losses = layer.CrossEntropy(label);
  Session alone(graph);
  alone.Initialize();
  const auto run = [&](int64_t n) {
    return testing::ErrorOf([&] {
      alone.Run({{x, Tensor::Zeros(DType::kFloat32, {n, 3})},
                 {label, Tensor::Zeros(DType::kInt64, {n})}},
                losses);
    });
  };
  CHECK(Contains(run(1), "is made for 2 workers, of which the step has 1"));
  CHECK(Contains(run(2), "missing_from_share_of_1"));
}

}  // namespace
}  // namespace sluice
