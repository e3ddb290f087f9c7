// What a training keeps of itself: snapshots, and how they are put back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/optim/contributions.h"
#include "models/optim/loss_scale.h"
#include "models/train/run/scattered_variables.h"
#include "models/train/run/served_tables.h"
#include "models/train/run/training_run.h"
#include "models/train/run/training_terms.h"

namespace sluice {
namespace {

// A checkpoint fits at any precision, and with and without a plateau schedule:
// state of these begins anew where the checkpoint has none, and is left aside
// where this training has none.
void WithoutOptionalState(std::vector<Output>* variables,
                          std::vector<NamedTensor>* tensors) {
  for (bool (*optional)(std::string_view) :
       {IsLossScaleState, IsLearningRateFactor}) {
    const auto in_variables = [&](const Output& variable) {
      return optional(variable.name());
    };
    const auto in_tensors = [&](const NamedTensor& tensor) {
      return optional(tensor.name);
    };
    const bool here =
        std::any_of(variables->begin(), variables->end(), in_variables);
    const bool there =
        std::any_of(tensors->begin(), tensors->end(), in_tensors);
    if (!there) std::erase_if(*variables, in_variables);
    if (!here) std::erase_if(*tensors, in_tensors);
  }
}

// Those that a checkpoint has: not contributions to steps, where there are such
// (`backed`), nor what schedules are ahead by, where they may be (`shifted`),
// which comes from its state. Elsewhere who has such a name is the model's.
std::vector<Output> Saved(std::vector<Output> variables, bool backed,
                          bool shifted) {
  if (backed) variables = WithoutContributions(std::move(variables));
  std::erase_if(variables, [&](const Output& variable) {
    return shifted && IsLearningRateShift(variable.name());
  });
  return variables;
}

// In the state of a snapshot which has but a worker's own parts: whose.
constexpr char kPartsOf[] = "parts_of";

// The same of TrainingRun::evaluations, with what they go by: an epoch has so
// many examples, or all steps are one, or it ends with the input (0).
constexpr char kEvaluations[] = "evaluations";
std::string EvaluationsText(const TrainingRun& run, int64_t done) {
  const int64_t examples = run.input().examples_per_epoch();
  return fmt::format("{} every {} epochs of {}", done,
                     run.options().evaluate_every,
                     examples >= 0 ? examples : run.context().steps);
}

}  // namespace

// Another worker that is gone leaves the state of the step before or, where all
// was exchanged already, of this one.
void TrainingRun::StepOrNothing(bool measure) {
  const int64_t step = step_, examples = examples_;
  committed_ = false;
  try {
    TrainOnBatch(measure);
  } catch (const Error& error) {
    if (workers_.AreGone(error)) {
      sound_ = true;
      step_failed_ = !committed_;
      if (step_failed_) {
        step_ = step;
        examples_ = examples;
      }
    }
    throw;
  }
}

TrainingTerms TrainingRun::Terms() const {
  return {.seed = context_.seed,
          .class_names = class_names_,
          .virtual_workers = options_.virtual_workers,
          .accumulates = accumulates_,
          .batch_size = batch_size(),
          .batch_by_workers = options_.batch_by_workers};
}

// Where a number of steps was asked for, schedules are of these.
void TrainingRun::CountEpochsOn() {
  if (!options_.batch_by_workers) return;
  const Output shift = LearningRateShift(graph_);
  if (!shift.valid() || !owns_variables() || !session_->CanRead(shift)) return;
  const double ahead = context_.steps > 0 ? 0 : StepsAhead();
  session_->Write(shift, Tensor::Scalar<int64_t>(std::llround(ahead)));
}

// After a step that failed: from before it.
std::string TrainingRun::Position() const {
  return step_failed_ ? position_before_ : batches_[0].SavePosition();
}

void TrainingRun::RenewSnapshot() {
  Finish();
  if (!snapshot_is_old_ || !together_ || !owns_variables()) return;
  if (scattered_->any() && gathered_step_ != step_) return;
  // Of variables that may be gone with a server the one before is kept.
  const bool beside = snapshot_ == nullptr || snapshot_held() ||
                      options_.servers.any() || scattered_->any();
  const std::shared_ptr<Checkpoint> renewed =
      beside ? std::make_shared<Checkpoint>() : snapshot_;
  TrainingState& state = renewed->state;
  state = {};  // of step 0 until it is whole
  Terms().Save(examples_before_ + (step_ - steps_before_) * batch_size(),
               &state);
  state.dataset_position = Position();
  state.schedule = learning_rate_.description();
  // For who looks at the file; Restore takes it from the variables.
  state.loss_scale = loss_scale().value_or(1);
  state.extra["program"] = spec_.name;
  if (evaluations_) {
    state.extra[kEvaluations] = EvaluationsText(*this, *evaluations_);
  }
  if (scattered_->any() && !workers_.leads()) {
    state.extra[kPartsOf] = workers_.Name(workers_.rank());
  }
  ReadVariables(*session_,
                Saved(tables_->Others(scattered_->others()), backed_,
                      options_.batch_by_workers),
                &renewed->tensors);
  const std::vector<NamedTensor> gathered = scattered_->Gathered(*session_);
  renewed->tensors.insert(renewed->tensors.end(), gathered.begin(),
                          gathered.end());
  state.step = step_;
  snapshot_ = renewed;
  snapshot_is_old_ = false;
}

void TrainingRun::AddToSnapshot(
    const std::map<std::string, std::string>& extra) {
  SLUICE_CHECK(snapshot_ != nullptr);
  for (const auto& [key, value] : extra) snapshot_->state.extra[key] = value;
}

bool TrainingRun::IsTable(const std::string& variable) const {
  return tables_->Has(variable);
}

std::vector<RowsTensor> TrainingRun::TablesToSave() const {
  return tables_->ToSave(*session_);
}

bool TrainingRun::scatters_variables() const {
  return scattered_->any();
}

bool TrainingRun::IsScattered(const std::string& variable) const {
  const Node* const node = graph_.Find(variable);
  if (node == nullptr || !node->IsVariable()) return false;
  const std::vector<Output>& others = scattered_->others();
  return std::find(others.begin(), others.end(), node->output(0)) ==
         others.end();
}

Tensor TrainingRun::ValueOf(const Output& variable) const {
  if (!IsScattered(variable.name()) || scattered_->HasWhole(variable)) {
    return session_->Read(variable);
  }
  if (const Tensor* known = scattered_->FindGathered(variable.name())) {
    return *known;
  }
  throw Error(Code::kFailedPrecondition,
              fmt::format("variable '{}' is another worker's, and was not "
                          "gathered",
                          variable.name()));
}

void TrainingRun::GatherSnapshot() {
  if (!scattered_->any()) return;
  Finish();
  SLUICE_CHECK(together_);
  scattered_->Gather(*session_);
  gathered_step_ = step_;
  snapshot_is_old_ = true;
  RenewSnapshot();
}

void TrainingRun::HandOutParts() {
  scattered_->HandOut(*session_);
}

void TrainingRun::TakeFromFirst(Checkpoint* checkpoint) const {
  const std::vector<NamedTensor> parts =
      scattered_->TakeOut(&checkpoint->tensors);
  sluice::TakeFromFirst(workers_, checkpoint);
  checkpoint->tensors.insert(checkpoint->tensors.end(), parts.begin(),
                             parts.end());
}

void TrainingRun::Restore(const Checkpoint& checkpoint,
                          const std::string& source) {
  Finish();
  const TrainingState& state = checkpoint.state;
  const TrainingTerms terms = Terms();
  terms.Check(checkpoint, source);
  // Which are of the same shape for another rank.
  if (const auto parts = state.extra.find(kPartsOf);
      parts != state.extra.end()) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("'{}' has of variables that are cut over the "
                            "workers the parts of {} alone",
                            source, parts->second));
  }
  // New iterators first, so that a position that does not fit changes nothing.
  std::vector<Iterator> batches = MakeIterators();
  for (Iterator& iterator : batches) {
    ThrowIfError(iterator.Restore(state.dataset_position).WithContext(source));
  }
  std::vector<Output> variables;
  std::vector<NamedTensor> tensors;
  Status fits;
  if (owns_variables()) {
    variables = Saved(graph_.Variables(), backed_, options_.batch_by_workers);
    tensors = checkpoint.tensors;
    WithoutOptionalState(&variables, &tensors);
    variables = scattered_->Mine(std::move(variables));
    scattered_->TakeMine(&tensors);
    fits = tables_->CheckFit(checkpoint.by_rows, source);
    std::erase_if(variables, [&](const Output& variable) {
      return std::any_of(checkpoint.by_rows.begin(), checkpoint.by_rows.end(),
                         [&](const RowsTensor& table) {
                           return table.name == variable.name();
                         });
    });
  }
  if (fits.ok()) {
    fits =
        WriteVariables(*session_, variables, tensors, Extra::kRefused, source);
  }
  if (!fits.ok()) {
    throw Error(fits.code(),
                fits.message() +
                    "; nothing was changed. Use the model, optimizer and "
                    "frozen variables it was saved with, another --log-dir "
                    "with --weights, or --restart");
  }
  if (owns_variables()) {
    ThrowIfError(tables_->Write(*session_, checkpoint.by_rows));
  }
  batches_ = std::move(batches);
  step_failed_ = false;
  step_ = steps_before_ = state.step;
  examples_before_ = terms.ExamplesOf(state);
  CountEpochsOn();
  MarkWritten();
  snapshot_is_old_ = &checkpoint != snapshot_.get();
  if (resumed_from_.empty()) resumed_from_ = source;
  evaluated_ = state.metric.has_value();
  evaluations_.reset();
  if (const auto found = state.extra.find(kEvaluations);
      found != state.extra.end()) {
    const int64_t done = std::strtoll(found->second.c_str(), nullptr, 10);
    if (found->second == EvaluationsText(*this, done)) evaluations_ = done;
  }
  newest_loss_ = {};
  bad_loss_.reset();
  session_->set_step(static_cast<uint64_t>(state.step));
}

LoadedWeights TrainingRun::LoadWeights() {
  MarkWritten();
  return scattered_
      ->Load(*session_, model_variables_, options_.weights,
             {.reset = options_.reset})
      .ValueOrThrow();
}

}  // namespace sluice
