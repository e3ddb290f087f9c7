// The search for a learning rate, against loops over scalars.
#include "models/train/rate_finder.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

using LossFn = std::function<Output(const Output& w)>;

// One float32 variable "w" that begins with 1; no data matters.
TrainerSpec ScalarSpec(const LossFn& loss) {
  return {.name = "scalar",
          .input =
              [](const RunContext& run) {
                Dataset data = datasets::FromTensors(
                    {{"x", Tensor::Full(DType::kFloat32, {8}, 1)}});
                if (run.training()) data = data.Repeat();
                return data.Batch(run.batch_size);
              },
          .model =
              [loss](Scope& scope, const Features& in, const RunContext&) {
                const Output w = scope.graph().Variable("w", Ones({}));
                return ModelSpec{.loss = loss(w) + 0 * Mean(in["x"])};
              },
          .optimizer =
              [](const RunContext&) {
                // Its rate is another's business.
                return optimizers::Sgd(123);
              }};
}

// 0.5 c w^2, for which gradient descent diverges at rates above 2 / c.
TrainerSpec Quadratic(double c) {
  return ScalarSpec([c](const Output& w) { return 0.5 * c * Square(w); });
}

RunContext Run() {
  RunContext run;
  run.batch_size = 4;
  return run;
}

struct Reference {
  std::vector<double> rates, losses, smoothed;
  bool diverged = false;
  double suggested = 0;
};

// The whole sweep on 0.5 c w^2, w in float32.
Reference QuadraticReference(double c, const RateSweep& sweep) {
  Reference out;
  float w = 1;
  double sum = 0, power = 1, least = HUGE_VAL;
  for (int64_t i = 0; i < sweep.steps && !out.diverged; ++i) {
    const double place =
        static_cast<double>(i) / static_cast<double>(sweep.steps - 1);
    const double rate = std::exp((1 - place) * std::log(sweep.least) +
                                 place * std::log(sweep.most));
    const double loss = 0.5 * c * static_cast<double>(w) * w;
    w -= static_cast<float>(rate * c) * w;
    sum = 0.9 * sum + 0.1 * loss;
    power *= 0.9;
    out.rates.push_back(rate);
    out.losses.push_back(loss);
    out.smoothed.push_back(sum / (1 - power));
    least = std::min(least, out.smoothed.back());
    out.diverged = out.smoothed.back() > 4 * least;
  }
  double steepest = 0;
  const size_t n = out.rates.size();
  for (size_t i = std::max<size_t>(1, n / 10);
       i + std::max<size_t>(1, n / 20) < n; ++i) {
    const double slope = (out.smoothed[i + 1] - out.smoothed[i - 1]) /
                         std::log(out.rates[i + 1] / out.rates[i - 1]);
    if (slope < steepest) {
      steepest = slope;
      out.suggested = out.rates[i];
    }
  }
  return out;
}

TEST_CASE("a quadratic's rate is found, whatever its curvature") {
  for (const double c : {0.5, 1.0, 3.0, 40.0, 1e3, 1e4}) {
    for (const int64_t steps : {50, 100, 400}) {
      CAPTURE(c);
      CAPTURE(steps);
      const RateSweep sweep{.least = 1e-7, .most = 10, .steps = steps};
      const RateCurve curve = FindRate(Quadratic(c), Run(), {}, sweep);
      const Reference wanted = QuadraticReference(c, sweep);

      REQUIRE(curve.rates.size() == wanted.rates.size());
      REQUIRE(curve.losses.size() == wanted.rates.size());
      REQUIRE(curve.smoothed.size() == wanted.rates.size());
      CHECK(curve.diverged == wanted.diverged);
      for (size_t i = 0; i < curve.rates.size(); ++i) {
        CAPTURE(i);
        CHECK(curve.rates[i] == doctest::Approx(wanted.rates[i]).epsilon(1e-9));
        // 1 - rate c has few digits where it crosses 0.
        CHECK(std::abs(curve.losses[i] - wanted.losses[i]) <=
              1e-3 * wanted.losses[i] + 1e-5 * c);
        CHECK(std::abs(curve.smoothed[i] - wanted.smoothed[i]) <=
              1e-3 * wanted.smoothed[i] + 1e-5 * c);
      }
      // In closed form: below where it diverges, and not by much.
      REQUIRE(curve.suggested.has_value());
      CHECK(*curve.suggested < 2 / c);
      CHECK(*curve.suggested > 2 / c / 1000);
      const double steps_off = std::log(*curve.suggested / wanted.suggested) /
                               std::log(curve.rates[1] / curve.rates[0]);
      CHECK(std::abs(steps_off) < 1.5);
    }
  }
}

TEST_CASE("the rates are those that steps are taken with") {
  // w falls by the rate, so that losses are sums of rates.
  const RateSweep sweep{.least = 1e-3, .most = 1, .steps = 20};
  const RateCurve curve = FindRate(
      ScalarSpec([](const Output& w) { return 100 + w; }), Run(), {}, sweep);
  REQUIRE(curve.rates.size() == 20);
  CHECK(curve.rates.front() == 1e-3);
  CHECK(curve.rates.back() == doctest::Approx(1).epsilon(1e-12));
  double w = 1;
  for (size_t i = 0; i < 20; ++i) {
    CHECK(curve.losses[i] == doctest::Approx(100 + w).epsilon(1e-6));
    w -= curve.rates[i];
  }
  CHECK(!curve.diverged);
}

TEST_CASE("a negative loss that falls has not diverged") {
  const RateSweep sweep{.least = 1e-3, .most = 10, .steps = 40};
  const RateCurve curve = FindRate(
      ScalarSpec([](const Output& w) { return w - 2; }), Run(), {}, sweep);
  CHECK(curve.rates.size() == 40);
  CHECK(!curve.diverged);
  CHECK(curve.suggested.has_value());
}

TEST_CASE("a loss that jumps and comes back has not fallen") {
  // Slowly down, up at step 61, and back by step 66 to what it had been before.
  const auto loss = [](const Output& w) {
    const Output step = Cast(GlobalStep(w.graph()), DType::kFloat32);
    const Output late = Select(Less(step, 66), 0 * step + 3, 0 * step + 1.2);
    return Select(Less(step, 61), 2 - step / 60, late) + 0 * w;
  };
  const RateCurve curve = FindRate(ScalarSpec(loss), Run(), {});
  REQUIRE(curve.rates.size() == 100);
  CHECK(curve.losses[63] == 3);
  REQUIRE(curve.suggested.has_value());
  CHECK(*curve.suggested < curve.rates[62]);
}

TEST_CASE("of several batches to a step the mean counts, at one rate") {
  TrainerSpec spec = Quadratic(2);
  spec.optimizer = [](const RunContext&) {
    return optimizers::Sgd(1).With(gradients::Accumulate(3));
  };
  // Also where the optimizer alone says that there are several.
  for (const int64_t batches : {3, 1}) {
    CAPTURE(batches);
    const RateSweep sweep = {
        .least = 1e-3, .most = 1e-1, .steps = 20, .batches = batches};
    const RateCurve curve = FindRate(spec, Run(), {}, sweep);
    double w = 1;
    REQUIRE(curve.rates.size() == 20);
    for (int i = 0; i < 20; ++i) {
      CHECK(curve.rates[i] ==
            doctest::Approx(1e-3 * std::pow(100, i / 19.0)).epsilon(1e-6));
      CHECK(curve.losses[i] == doctest::Approx(w * w).epsilon(1e-5));
      w -= curve.rates[i] * 2 * w;
    }
  }
}

TEST_CASE("a loss that never falls suggests nothing") {
  // Constant but for its gradient, which is 1.
  const auto constant = [](const Output& w) {
    return 0.3 + (w - StopGradient(w));
  };
  const RateCurve flat = FindRate(ScalarSpec(constant), Run(), {});
  CHECK(flat.rates.size() == 100);
  CHECK(!flat.diverged);
  CHECK(!flat.suggested.has_value());
  for (const double loss : flat.smoothed) CHECK(loss == flat.losses[0]);

  // Every step goes uphill.
  const auto rising = [](const Output& w) { return 2 * StopGradient(w) - w; };
  const RateCurve up = FindRate(ScalarSpec(rising), Run(), {});
  CHECK(!up.suggested.has_value());
}

TEST_CASE("it ends where the loss is no number") {
  // log w, which gradient descent makes smaller until w is below 0.
  const RateCurve curve =
      FindRate(ScalarSpec([](const Output& w) { return 10 + Log(w); }), Run(),
               {}, {.least = 1e-3, .most = 10, .steps = 60});
  CHECK(curve.diverged);
  REQUIRE(curve.losses.size() < 60);
  REQUIRE(curve.losses.size() > 2);
  CHECK(!std::isfinite(curve.losses.back()));
  CHECK(!std::isfinite(curve.smoothed.back()));
  for (size_t i = 0; i + 1 < curve.losses.size(); ++i) {
    CHECK(std::isfinite(curve.losses[i]));
  }
  REQUIRE(curve.suggested.has_value());
  CHECK(*curve.suggested < curve.rates.back());

  const RateCurve none = FindRate(
      ScalarSpec([](const Output& w) { return Log(w - 2); }), Run(), {});
  CHECK(none.diverged);
  CHECK(none.losses.size() == 1);
  CHECK(!none.suggested.has_value());
}

// Ends after so many questions.
class StopAfter : public StopToken {
 public:
  explicit StopAfter(int64_t steps) : left_(steps) {}
  std::string Reason() const override { return left_-- > 0 ? "" : "enough"; }

 private:
  mutable int64_t left_;
};

TEST_CASE("it ends when it is told to, and with the input") {
  const StopAfter stop(7);
  TrainingOptions options;
  options.stop = &stop;
  CHECK(FindRate(Quadratic(1), Run(), options).rates.size() == 7);
  const StopAfter at_once(0);
  options.stop = &at_once;
  const RateCurve none = FindRate(Quadratic(1), Run(), options);
  CHECK(none.rates.empty());
  CHECK(!none.suggested.has_value());
  CHECK(!none.diverged);

  TrainerSpec once = Quadratic(1);
  once.input = [](const RunContext& run) {
    return datasets::FromTensors(
               {{"x", Tensor::Full(DType::kFloat32, {20}, 1)}})
        .Batch(run.batch_size);
  };
  const RateCurve five = FindRate(once, Run(), {});
  CHECK(five.rates.size() == 5);
  // As if the sweep had gone on.
  CHECK(five.rates[4] ==
        doctest::Approx(1e-7 * std::pow(1e8, 4.0 / 99)).epsilon(1e-9));
}

TEST_CASE("a network, with its own optimizer, from weights, in any precision") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.log_dir = folder / "log";
  options.restart = true;
  const RateCurve curve = FindRate(ToySpec(), ToyRun(1), options);
  CHECK(!std::filesystem::exists(folder / "log"));  // nothing is saved
  REQUIRE(curve.suggested.has_value());
  CHECK(*curve.suggested > 1e-4);
  CHECK(*curve.suggested < 10);

  options.session.precision = Precision::kFloat16;
  const RateCurve half = FindRate(ToySpec(), ToyRun(1), options);
  REQUIRE(half.suggested.has_value());
  CHECK(half.losses[0] == doctest::Approx(curve.losses[0]).epsilon(0.05));

  TrainingOptions saving;
  saving.log_dir = folder / "trained";
  const TrainingResult trained = Trainer(ToySpec(), ToyRun(20), saving).Train();
  TrainingOptions from;
  from.weights = trained.checkpoint;
  const RateCurve tuned = FindRate(ToySpec(), ToyRun(1), from);
  const RateCurve fresh = FindRate(ToySpec(), ToyRun(1), {});
  for (size_t i = 0; i < 20; ++i) {
    CHECK(tuned.losses[i] < fresh.losses[i]);
  }
  // The model has learnt: much too small a rate leaves it so.
  CHECK(tuned.smoothed[20] == doctest::Approx(tuned.smoothed[10]).epsilon(0.3));

  TrainerSpec plain = ToySpec();
  plain.optimizer = nullptr;  // Adam
  CHECK(FindRate(plain, ToyRun(1), {}).suggested.has_value());
}

TEST_CASE("sweeps that are none") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const RateSweep& sweep :
       std::vector<RateSweep>{{.least = 0},
                              {.least = -1},
                              {.least = 10, .most = 10},
                              {.least = 11, .most = 10},
                              {.least = nan},
                              {.most = nan},
                              {.most = inf},
                              {.least = 1e-50},
                              {.most = 1e50},
                              {.steps = 1},
                              {.steps = 0},
                              {.steps = -5}}) {
    CHECK(Contains(ErrorOf([&] { FindRate(Quadratic(1), Run(), {}, sweep); }),
                   "wanted learning rates"));
  }
  CHECK(FindRate(Quadratic(1), Run(), {}, {.steps = 2}).rates.size() == 2);
}

// Of which rank 0 alone has the weights.
TEST_CASE("several workers find what one does") {
  TemporaryFolder folder;
  TrainingOptions training;
  training.log_dir = folder.path();
  const std::string weights =
      Trainer(testing::PlainSpec(), ToyRun(1), training).Train().checkpoint;
  const auto search = [&](int workers, const StopToken* stop, int told) {
    std::vector<RateCurve> curves(static_cast<size_t>(workers));
    testing::Task task{.spec = [](int) { return testing::PlainSpec(); },
                       .run = ToyRun(10)};
    task.options = [&](int rank) {
      TrainingOptions options;
      options.weights = rank == 0 ? weights : folder / "none";
      if (rank == told) options.stop = stop;
      return options;
    };
    const auto errors = testing::InWorkers(
        workers, task, [&](int rank, const TrainingOptions& options) {
          curves[static_cast<size_t>(rank)] =
              FindRate(task.spec(rank), task.run, options,
                       {.least = 1e-4, .most = 1e3, .steps = 60});
        });
    for (const std::string& error : errors) REQUIRE(error == "");
    return curves;
  };
  const RateCurve one = search(1, nullptr, 0)[0];
  REQUIRE(one.suggested.has_value());
  CHECK(one.interrupted == "");
  for (const RateCurve& each : search(3, nullptr, 0)) {
    CHECK(each.rates == one.rates);
    CHECK(each.diverged == one.diverged);
    REQUIRE(each.losses.size() == one.losses.size());
    // Rounding grows where it diverges.
    for (size_t i = 0; i < one.losses.size() / 2; ++i) {
      CHECK(each.losses[i] == doctest::Approx(one.losses[i]).epsilon(1e-3));
    }
    CHECK(*each.suggested == doctest::Approx(*one.suggested).epsilon(0.5));
  }
  for (const int told : {0, 2}) {
    const testing::ToldAtQuestion stop(5);
    for (const RateCurve& each : search(3, &stop, told)) {
      CHECK(each.rates.size() == 5);
      CHECK(each.interrupted ==
            (told == 0 ? "told to" : "rank 2 of 3: told to"));
    }
  }
}

}  // namespace
}  // namespace sluice
