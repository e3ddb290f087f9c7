#include "models/train/run/evaluation_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace sluice {
namespace {

int64_t AsCount(double evaluations) {
  return static_cast<int64_t>(std::clamp(evaluations, 0.0, 1e18));
}

double StepsBetween(const TrainingRun& run) {
  return run.options().evaluate_every * run.context().steps_per_epoch;
}

// After how many steps the n-th evaluation is wanted, which is due at the
// nearest one; of two as near, at the later.
double StepsUntil(const TrainingRun& run, double n) {
  return n * StepsBetween(run) - run.StepsAhead();
}

// How many are due up to that step or, where epochs end with the input, in so
// many epochs.
int64_t EvaluationsBy(const TrainingRun& run, int64_t step, double epochs) {
  const double every = run.knows_total_steps() ? StepsBetween(run)
                                               : run.options().evaluate_every;
  if (!(every > 0)) return 0;
  if (!run.knows_total_steps()) return AsCount(std::floor(epochs / every));
  const auto by = static_cast<double>(step);
  double n = std::max(0.0, std::floor((by + run.StepsAhead() + 0.5) / every));
  // One wanted after half a step is due behind it; and the division rounds.
  if (n > 0 && std::round(StepsUntil(run, n)) > by) --n;
  if (std::round(StepsUntil(run, n + 1)) <= by) ++n;
  return AsCount(n);
}

}  // namespace

// An older checkpoint, or one that counts by other epochs, is taken to have had
// all but one that was due after its last step, unless it was evaluated.
void CountEarlierEvaluations(TrainingRun& run) {
  if (run.evaluations()) return;
  const bool missed = run.step() > 0 && !run.evaluated();
  const int64_t steps = missed ? run.steps_at_once() : 0;
  const double epochs = missed && run.between_epochs() ? 1 : 0;
  run.set_evaluations(EvaluationsBy(
      run, std::max<int64_t>(run.step() - steps, 0), run.epoch() - epochs));
}

bool EvaluationIsDue(const TrainingRun& run) {
  const int64_t done = run.evaluations().value_or(0);
  const bool passed = EvaluationsBy(run, run.step(), run.epoch()) > done;
  if (!run.knows_total_steps()) return passed;
  // One wanted behind the last step but one is that of the last.
  return run.done() ||
         (passed && StepsUntil(run, static_cast<double>(done) + 1) <=
                        static_cast<double>(run.total_steps() - 1));
}

void CountEvaluations(TrainingRun& run) {
  run.set_evaluations(EvaluationsBy(run, run.step(), run.epoch()));
}

// What is asked for by default goes without saying.
void NoteEvaluations(const TrainingRun& run) {
  const double every = run.options().evaluate_every;
  if (!(every > 0) || every == 1 || run.context().knows_epochs()) return;
  std::string when;
  if (!run.knows_total_steps()) {
    if (every == std::floor(every)) return;
    when = "at ends of epochs alone";
  } else if (every > 1) {
    when = "at the end alone";
  } else {
    const auto steps = static_cast<double>(run.total_steps());
    when = fmt::format("every {:g} of all {:g} steps", every * steps, steps);
  }
  run.options().Note(
      fmt::format("--evaluate-every {:g}: how many examples an epoch has is "
                  "not known; evaluations are {}",
                  every, when));
}

}  // namespace sluice
