// Learning rates: values at boundaries, and what malformed strings are told.
#include "models/optim/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/ops/elementwise.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

double RateAt(const LearningRate& rate, int64_t step) {
  Graph graph;
  const Output at = graph.Placeholder("step", DType::kInt64, {});
  const Output value = rate.At(at);
  CHECK(value.dtype() == DType::kFloat32);
  CHECK(value.shape().scalar());
  return Evaluate(value, {{at, Tensor::Scalar<int64_t>(step)}})
      .ValueOrThrow()
      .At(0);
}

void CheckRates(const LearningRate& rate,
                std::initializer_list<std::pair<int64_t, double>> wanted) {
  for (const auto& [step, value] : wanted) {
    CAPTURE(rate.description());
    CAPTURE(step);
    CHECK(RateAt(rate, step) == doctest::Approx(value).epsilon(1e-6));
  }
}

std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    CHECK(error.code() == Code::kInvalidArgument);
    return error.what();
  }
  return "(no error)";
}

TEST_CASE("a number is a rate") {
  CheckRates(0.25, {{0, 0.25}, {1'000'000, 0.25}});
  CheckRates(Schedule("0.25", 10.0), {{0, 0.25}, {1'000'000, 0.25}});
  CHECK(LearningRate(0.1).description() == "0.1");
}

TEST_CASE("the schedule string of the documentation") {
  const double steps_per_epoch = 10;
  CheckRates(Schedule("5:0.1->0.4,15:0.4,20:0.04", steps_per_epoch),
             {{0, 0.1},
              {25, 0.25},
              {49, 0.1 + 0.3 * 4.9 / 5},
              {50, 0.4},
              {149, 0.4},
              {150, 0.04},
              {199, 0.04},
              {200, 0.04},
              {5000, 0.04}});
}

TEST_CASE("a schedule times a number") {
  const LearningRate rate = schedules::Scaled(Schedule("2:0.1->0.3", 10.0), 4);
  CheckRates(rate, {{0, 0.4}, {10, 0.8}, {20, 1.2}, {1000, 1.2}});
  CHECK(rate.description() == "4 * 2:0.1->0.3");
}

TEST_CASE("exponential segments, fractions and spaces") {
  const LearningRate rate = Schedule(" 0.5 : 1 => 0.01 , 1:0.5->0 ", 100.0);
  CheckRates(rate, {{0, 1},
                    {25, 0.1},
                    {49, std::pow(0.01, 0.98)},
                    {50, 0.5},
                    {75, 0.25},
                    {100, 0}});
}

// A look for what is no number would blame it, and not what is none.
TEST_CASE("exponential segments are finite on the way, at any epoch") {
  Graph graph;
  const Output step = graph.Placeholder("step", DType::kInt64, {});
  const Output x = graph.Placeholder("x", DType::kFloat32, {});
  const Output rate = Schedule("1:0.001=>1,900:1,901:1=>0.001", 1.0).At(step);
  const Output logarithm = Log(x);
  const Output loss = rate * logarithm;
  Session session(graph, {.fuse = false});
  const auto find = [&](int64_t epoch, float of) {
    return session.FindNonFinite(
        {{step, Tensor::Scalar(epoch)}, {x, Tensor::Scalar(of)}}, {loss});
  };
  for (const int64_t epoch : {0, 500, 900, 5000}) {
    CAPTURE(epoch);
    CHECK(find(epoch, 2) == "");
    CHECK(find(epoch, 0) == logarithm.node().name());
  }
}

TEST_CASE("epochs that are no whole number of steps") {
  CheckRates(Schedule("1:0.1->0.2,2:1", 2.5),
             {{0, 0.1}, {1, 0.14}, {2, 0.18}, {3, 1}, {5, 1}});
}

TEST_CASE("malformed schedules are told where and what") {
  const auto error = [](const char* text) {
    return ErrorOf([=] { Schedule(text, 10.0); });
  };
  CHECK(Contains(error(""), "character 1: wanted an epoch or a rate"));
  CHECK(Contains(error(""), "got the end"));
  CHECK(Contains(error("fast"), "character 1"));
  CHECK(Contains(error("5:x"), "character 3: wanted a learning rate, got 'x'"));
  CHECK(Contains(error("5:0.1->"), "character 8: wanted a learning rate"));
  CHECK(Contains(error("5:0.1,"), "character 7: wanted an epoch"));
  CHECK(Contains(error("5:0.1,5:0.2"), "character 7: wanted an epoch after 5"));
  CHECK(Contains(error("0:0.1"), "character 1: wanted a positive epoch"));
  CHECK(Contains(error("5:0.1 0.2"), "character 7: wanted ',' or the end"));
  CHECK(Contains(error("5;0.1"), "character 2: wanted ':'"));
  CHECK(Contains(error("5:-0.1"), "not negative"));
  CHECK(Contains(error("-0.1"), "not negative"));
  CHECK(Contains(error("5:0=>0.1"), "character 6: wanted positive rates"));
  CHECK(Contains(error("5:nan"), "character 3"));
  CHECK(Contains(error("5:1e999"), "character 3"));
  CHECK(Contains(ErrorOf([] { Schedule("0.1", 0.0); }), "steps per epoch"));
}

TEST_CASE("schedules in steps") {
  using namespace schedules;  // NOLINT
  CheckRates(Piecewise({10, 20}, {1, 0.1, 0.01}),
             {{0, 1}, {9, 1}, {10, 0.1}, {19, 0.1}, {20, 0.01}, {99, 0.01}});
  CheckRates(StepDecay(0.8, 0.5, 10),
             {{0, 0.8}, {9, 0.8}, {10, 0.4}, {39, 0.1}});
  CheckRates(Cosine(1, 100, 0.2), {{0, 1},
                                   {25, 0.2 + 0.4 * (1 + std::sqrt(0.5))},
                                   {50, 0.6},
                                   {100, 0.2},
                                   {500, 0.2}});
  CheckRates(Polynomial(1, 100, 0.2, 2),
             {{0, 1}, {50, 0.4}, {100, 0.2}, {500, 0.2}});
  CheckRates(WarmUp(10, 0.5), {{0, 0}, {5, 0.25}, {10, 0.5}, {99, 0.5}});
  // Warming up joins the schedule where it then is.
  const double joined = 0.5 * (1 + std::cos(0.1 * 3.14159265358979));
  CheckRates(WarmUp(10, Cosine(1, 100), 0.1),
             {{0, 0.1}, {5, 0.5 * (0.1 + joined)}, {10, joined}, {50, 0.5}});
}

// By which a training that goes on knows whether it is another.
TEST_CASE("the description of a schedule in pieces tells others from it") {
  const auto of = [](const std::vector<int64_t>& boundaries,
                     const std::vector<double>& values) {
    return schedules::Piecewise(boundaries, values).description();
  };
  CHECK(of({10, 20}, {1, 0.1, 0.01}) ==
        "piecewise(1 until 10, 0.1 until 20, 0.01)");
  CHECK(of({}, {0.5}) == "piecewise(0.5)");
  std::vector<int64_t> boundaries;
  std::vector<double> values = {1};
  for (int64_t i = 1; i <= 500; ++i) {
    boundaries.push_back(100 * i);
    values.push_back(1 / (1.0 + static_cast<double>(i)));
    std::set<std::string> all = {of(boundaries, values)};
    for (const size_t k :
         {size_t{0}, boundaries.size() / 2, boundaries.size()}) {
      std::vector<double> other = values;
      other[k] = std::nextafter(other[k], 2);
      all.insert(of(boundaries, other));
      if (k == boundaries.size()) continue;
      std::vector<int64_t> moved = boundaries;
      ++moved[k];
      all.insert(of(moved, values));
    }
    CHECK(all.size() == (i == 1 ? 4 : 6));
    for (const std::string& text : all) CHECK(text.size() < 256);
  }
}

TEST_CASE("a plateau's rate is what its variable makes of the schedule's") {
  const LearningRate rate = schedules::Plateau(schedules::Cosine(1, 100, 0.2));
  CHECK(rate.description() == "plateau(cosine(1 to 0.2 over 100 steps))");
  Graph graph;
  CHECK_FALSE(LearningRateFactor(graph).valid());
  const Output step = graph.Placeholder("step", DType::kInt64, {});
  Output value, nested;
  {
    NameScope tower(graph, "tower");
    DeviceScope device(graph, "/cpu:1");
    value = rate.At(step);
    nested = schedules::WarmUp(10, rate).At(step);
  }
  const Output factor = LearningRateFactor(graph);
  REQUIRE(factor.valid());
  CHECK(graph.Variables() == std::vector<Output>{factor});
  CHECK(graph.TrainableVariables().empty());
  CHECK(factor.name() == "learning_rate_factor");
  CHECK(factor.dtype() == DType::kFloat64);
  CHECK(factor.shape().scalar());
  CHECK(factor.node().device().empty());

  const auto at = [&](const Output& of, int64_t n, double times) {
    return Evaluate(of, {{step, Tensor::Scalar<int64_t>(n)},
                         {factor, Tensor::Scalar(times)}})
        .ValueOrThrow()
        .At(0);
  };
  // The product is rounded to float32 once.
  for (const double times : {1.0, 0.1, 0.25, 1e-3, 0.0}) {
    for (const int64_t n : {0, 25, 50, 99, 100, 500}) {
      CAPTURE(times);
      CAPTURE(n);
      const double done = std::min(static_cast<double>(n) / 100, 1.0);
      const double cosine = 0.2 + 0.4 * (1 + std::cos(3.14159265358979 * done));
      CHECK(at(value, n, times) ==
            doctest::Approx(cosine * times).epsilon(1e-6));
      if (n >= 10) CHECK(at(nested, n, times) == at(value, n, times));
    }
  }
  CHECK(at(nested, 5, 0.5) == doctest::Approx(at(value, 10, 0.5) / 2));

  // Through the session: 1 at first.
  Session session(graph, {.devices = {"/cpu:0", "/cpu:1"}});
  session.Initialize();
  const std::vector<Feed> feeds = {{step, Tensor::Scalar<int64_t>(50)}};
  CHECK(session.Run(feeds, value).At(0) == doctest::Approx(0.6));
  session.Write(factor, Tensor::Scalar(0.5));
  CHECK(session.Run(feeds, value).At(0) == doctest::Approx(0.3));
}

// A program's own, and --plateau.
TEST_CASE("a plateau's factor counts once") {
  using namespace schedules;  // NOLINT
  const LearningRate own = WarmUp(10, Plateau(0.5));
  const LearningRate by_hand(
      "by hand", [own](const Output& step) { return own.At64(step) * 2; });
  Graph graph;
  const Output step = graph.Placeholder("step", DType::kInt64, {});
  const auto at = [&](const LearningRate& rate, int64_t n) {
    const Output value = rate.At(step);
    return Evaluate(value, {{step, Tensor::Scalar(n)},
                            {LearningRateFactor(graph), Tensor::Scalar(0.1)}})
        .ValueOrThrow()
        .At(0);
  };
  CHECK(at(Plateau(own), 50) == doctest::Approx(0.05));
  CHECK(at(Plateau(own), 5) == doctest::Approx(0.025));
  CHECK(at(Plateau(Scaled(own, 4)), 50) == doctest::Approx(0.2));
  CHECK(at(Plateau(by_hand), 50) == doctest::Approx(0.1));
  CHECK(at(Plateau(WarmUp(10, 0.5)), 50) == doctest::Approx(0.05));
}

TEST_CASE("another node with the name of a plateau's variable is told") {
  Graph graph;
  const Output step = graph.Placeholder("step", DType::kInt64, {});
  graph.Variable("learning_rate_factor", Ones({}));  // float32
  CHECK(Contains(ErrorOf([&] { schedules::Plateau(0.1).At(step); }),
                 "Variable 'learning_rate_factor'"));
}

TEST_CASE("schedules that make no sense are refused") {
  using namespace schedules;  // NOLINT
  CHECK(Contains(ErrorOf([] { Piecewise({1}, {1}); }), "piecewise"));
  CHECK(Contains(ErrorOf([] { Piecewise({2, 1}, {1, 1, 1}); }), "grow"));
  CHECK(Contains(ErrorOf([] { Cosine(1, 0); }), "positive number of steps"));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // The last is infinite in float32, which optimizers have.
  for (const double bad : {-1.0, kInfinity, std::nan(""), 1e39}) {
    CAPTURE(bad);
    for (const std::string& error : {
             ErrorOf([=] { LearningRate rate = bad; }),
             ErrorOf([=] {
               Piecewise({1}, {1, bad});
             }),
             ErrorOf([=] { Cosine(1, 10, bad); }),
             ErrorOf([=] { Polynomial(bad, 10); }),
         }) {
      CHECK(Contains(error, "finite"));
      CHECK(Contains(error, "not negative"));
    }
    CHECK(Contains(ErrorOf([=] { WarmUp(10, 0.1, bad); }), "wanted a rate"));
    CHECK(Contains(ErrorOf([=] { StepDecay(bad, 1, 1); }), "wanted a rate"));
  }
  CHECK(Contains(ErrorOf([] { Schedule("5:0.1->1e39", 10.0); }),
                 "a finite learning rate"));
  CheckRates(Scaled(0.1, 0), {{0, 0}});
  CheckRates(3e38, {{0, 3e38}});
}

}  // namespace
}  // namespace sluice
