#include "models/train/rate_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "graph/ops/elementwise.h"
#include "models/train/hooks/hooks.h"

namespace sluice {
namespace {

// Remembers about ten steps, a tenth of the usual sweep. fastai's 0.98
// remembers fifty, over which the rate grows ten thousandfold.
constexpr double kDecay = 0.9;

// The loss is taken to have diverged above so many times its least.
constexpr double kDiverged = 4;

double RateAt(const RateSweep& sweep, int64_t step) {
  return sweep.least * std::pow(sweep.most / sweep.least,
                                static_cast<double>(step) /
                                    static_cast<double>(sweep.steps - 1));
}

// RateAt in a graph.
LearningRate Exponential(const RateSweep& sweep) {
  return {fmt::format("{} => {} over {} steps", sweep.least, sweep.most,
                      sweep.steps),
          [sweep](const Output& step) {
            const Output passed = Floor(Cast(step, DType::kFloat64) /
                                        static_cast<double>(sweep.batches)) /
                                  static_cast<double>(sweep.steps - 1);
            return sweep.least *
                   Exp(std::log(sweep.most / sweep.least) * passed);
          }};
}

void Check(const RateSweep& sweep) {
  const auto is_rate = [](double rate) {
    return rate >= std::numeric_limits<float>::min() &&
           rate <= std::numeric_limits<float>::max();
  };
  if (is_rate(sweep.least) && is_rate(sweep.most) && sweep.least < sweep.most &&
      sweep.steps >= 2 && sweep.batches >= 1) {
    return;
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("wanted learning rates from one to a greater one in "
                          "two steps at least, got {} to {} in {} of {} "
                          "batches",
                          sweep.least, sweep.most, sweep.steps, sweep.batches));
}

// The average of the values so far, with weights that fall by kDecay from one
// to the one before. A constant's is that constant, to the last bit.
class Smoothed {
 public:
  double Add(double value) {
    weight_ = 1 + kDecay * weight_;
    average_ += (value - average_) / weight_;
    return average_;
  }

 private:
  double weight_ = 0;  // of all values, that of the last being 1
  double average_ = 0;
};

// Without the first steps, whose average is of few, and the last, where the
// loss may begin to bounce.
std::optional<double> Steepest(const RateCurve& curve) {
  const auto finite =
      std::find_if_not(curve.smoothed.begin(), curve.smoothed.end(),
                       [](double loss) { return std::isfinite(loss); });
  const auto count = static_cast<size_t>(finite - curve.smoothed.begin());
  const size_t first = std::max<size_t>(1, count / 10);
  const size_t ignored = std::max<size_t>(1, count / 20);
  std::optional<double> rate;
  double steepest = 0;
  double least = std::numeric_limits<double>::infinity();  // before i
  // Neighbours are equally far apart in the logarithm of the rate.
  for (size_t i = first; i + ignored < count; ++i) {
    least = std::min(least, curve.smoothed[i - 1]);
    const double fall = least - curve.smoothed[i + 1];
    if (fall > steepest) {
      steepest = fall;
      rate = curve.rates[i];
    }
  }
  return rate;
}

// With fewer than make an update, most steps would change nothing but the rate.
int64_t BatchesOf(const RateSweep& sweep, int64_t accumulates) {
  return std::max(sweep.batches, accumulates);
}

TrainerSpec Sweeping(const TrainerSpec& spec, const RateSweep& sweep) {
  TrainerSpec out = spec;
  out.optimizer = [given = spec.optimizer, sweep](const RunContext& run) {
    const Optimizer optimizer = given ? given(run) : optimizers::Adam();
    RateSweep whole = sweep;
    whole.batches = BatchesOf(sweep, optimizer.accumulates());
    return optimizer.WithLearningRate(Exponential(whole));
  };
  return out;
}

}  // namespace

RateCurve FindRate(const TrainerSpec& spec, const RunContext& run,
                   const TrainingOptions& options, const RateSweep& sweep) {
  Check(sweep);
  RunContext context = run;
  context.mode = Mode::kTrain;
  TrainingOptions unsaved = options;
  unsaved.log_dir.clear();
  const TrainerSpec sweeping = Sweeping(spec, sweep);
  TrainingRun training(sweeping, context, unsaved);
  const Workers& workers = training.workers();
  if (!options.weights.empty() && workers.leads()) training.LoadWeights();
  BeginTogether({}, training);

  const Agreement agreement(workers, options.stop);
  RateCurve curve;
  Smoothed smoothed;
  double least = std::numeric_limits<double>::infinity();
  const int64_t batches = BatchesOf(sweep, training.accumulates());
  // The mean loss of a step's batches; nullopt when it is to end.
  const auto train = [&]() -> std::optional<double> {
    double sum = 0;
    for (int64_t i = 0; i < batches; ++i) {
      if (!agreement.Reason().empty()) return std::nullopt;
      while (!training.Step(/*measure=*/false)) {
        if (!training.between_epochs()) return std::nullopt;
      }
      sum += training.loss();
    }
    return sum / static_cast<double>(batches);
  };
  for (int64_t step = 0; step < sweep.steps && !curve.diverged; ++step) {
    const std::optional<double> loss = train();
    if (!loss) break;
    curve.rates.push_back(RateAt(sweep, step));
    curve.losses.push_back(*loss);
    const double average = smoothed.Add(curve.losses.back());
    curve.smoothed.push_back(average);
    least = std::min(least, average);
    // A loss that may be negative has no multiple that is larger.
    curve.diverged = !std::isfinite(average) ||
                     average - least > (kDiverged - 1) * std::abs(least);
  }
  curve.suggested = Steepest(curve);
  curve.interrupted = agreement.agreed();
  return curve;
}

}  // namespace sluice
