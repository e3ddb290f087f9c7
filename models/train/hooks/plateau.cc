#include "models/train/hooks/plateau.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "models/optim/schedule.h"
#include "models/train/hooks/hooks.h"
#include "models/train/values/hook_state.h"

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t CountIn(const JsonObject& state, const std::string& name,
                int64_t least) {
  const int64_t count = state.Int(name).ValueOrThrow();
  if (count >= least) return count;
  throw Error(Code::kInvalidArgument,
              fmt::format("\"{}\" is {}, less than {}", name, count, least));
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(const PlateauOptions& options)
    : options_(options) {
  const auto& [patience, factor, threshold, cooldown, least] = options_;
  if (patience >= 0 && factor > 0 && factor < 1 && threshold >= 0 &&
      threshold < 1 && cooldown >= 0 && least >= 0 && least <= 1) {
    return;
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("reduce on plateau: wanted a patience and a cooldown that "
                  "are not negative, a factor in (0, 1), a threshold in "
                  "[0, 1) and a least factor in [0, 1], got {}, {}, {}, {} "
                  "and {}",
                  patience, cooldown, factor, threshold, least));
}

void ReduceOnPlateau::Begin(TrainingRun& run) {
  if (LearningRateFactor(run.graph()).valid()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("reduce on plateau: the optimizer's learning rate "
                          "is not schedules::Plateau, but {}",
                          run.learning_rate().description()));
}

void ReduceOnPlateau::AfterEvaluation(TrainingRun& run,
                                      const Evaluation& evaluation) {
  if (!evaluation.due) return;
  // A training that is taken up where it had ended evaluates again.
  if (evaluation.step <= judged_step_) return;
  judged_step_ = evaluation.step;
  if (IsBetter(run.spec(), evaluation)) {
    best_ = JudgedBy(run.spec(), evaluation);
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  Reduce(run, evaluation.step);
  cooldown_ = options_.cooldown;
  bad_ = 0;
}

// best_ and the value are negated where lower is better, which turns "below
// best * (1 - threshold)" into "above" and leaves the products' bits.
bool ReduceOnPlateau::IsBetter(const TrainerSpec& spec,
                               const Evaluation& evaluation) const {
  const bool higher = evaluation.values.size() > 1 && spec.higher_is_better;
  const double margin =
      higher ? 1 + options_.threshold : 1 - options_.threshold;
  return JudgedBy(spec, evaluation) > best_ * margin;
}

void ReduceOnPlateau::Reduce(TrainingRun& run, int64_t step) const {
  if (!run.owns_variables()) return;  // another worker does it
  const Output factor = LearningRateFactor(run.graph());
  if (!std::as_const(run).session().CanRead(factor)) return;
  const double before = std::as_const(run).session().Read(factor).At(0);
  const double now = std::max(before * options_.factor, options_.least);
  if (!(now < before)) return;
  run.session().Write(factor, Tensor::Scalar(now));
  // From an older one NanStop would run the steps to come again at the rate
  // before. One that is being saved is renewed by what saves it. With servers
  // no steps are run again: what is gone on from there, where one ends, is
  // renewed when the other hooks have had the evaluation, too.
  if (!run.snapshot_held() && !run.options().servers.any()) {
    run.RenewSnapshot();
  }
  run.options().Note(fmt::format(
      "the learning rate is multiplied by {:g} from step {}: no better for {} "
      "evaluation{}; it is now {:g} times its schedule",
      now / before, step + 1, bad_, bad_ == 1 ? "" : "s", now));
}

std::string ReduceOnPlateau::StateName() const {
  return "reduce_on_plateau";
}

std::string ReduceOnPlateau::SaveState() const {
  Json state = {{"bad", bad_}};
  state["best"] = BestAsJson(best_);
  state["cooldown"] = cooldown_;
  state["step"] = judged_step_;
  return state.Text();
}

void ReduceOnPlateau::RestoreState(const std::string& state) {
  const JsonObject json = JsonObject::Parse(state).ValueOrThrow();
  const int64_t step = CountIn(json, "step", -1);
  const int64_t bad = CountIn(json, "bad", 0);
  const int64_t cooldown = CountIn(json, "cooldown", 0);
  const double best = BestIn(json).value_or(-kInfinity);
  best_ = best;
  judged_step_ = step;
  bad_ = bad;
  cooldown_ = cooldown;
}

}  // namespace sluice
