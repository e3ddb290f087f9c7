#include "models/train/run/evaluation_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace sluice {

bool EvaluationFalls(const TrainingRun& run, double epochs) {
  const double every = run.options().evaluate_every;
  return every > 0 &&
         std::floor(run.epoch() / every) > std::floor(epochs / every);
}

int64_t NextEvaluation(const TrainingRun& run, int64_t step) {
  if (!run.knows_total_steps()) return INT64_MAX;
  const double every =
      run.options().evaluate_every * run.context().steps_per_epoch;
  if (!(every > 0)) return run.total_steps();
  const double ahead = run.StepsAhead();
  const double passed =
      std::floor((static_cast<double>(step) + ahead + 0.5) / every);
  const double wanted = (passed + 1) * every - ahead;
  if (wanted > static_cast<double>(run.total_steps() - 1)) {
    return run.total_steps();  // which is rounded up
  }
  const auto next =
      std::max(step + 1, static_cast<int64_t>(std::llround(wanted)));
  return std::min(next, run.total_steps());
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
