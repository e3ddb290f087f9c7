// One training in progress: the model's graph, its session, the input, and all
// the state that a checkpoint keeps of them.
#ifndef SLUICE_MODELS_TRAIN_RUN_TRAINING_RUN_H_
#define SLUICE_MODELS_TRAIN_RUN_TRAINING_RUN_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "graph/autograd.h"
#include "graph/session/session.h"
#include "io/checkpoints/checkpoint.h"
#include "io/pipeline/stage_times.h"
#include "models/train/run/batch_step.h"
#include "models/train/run/inference.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_options.h"
#include "models/train/values/weights_file.h"
#include "models/train/workers/workers.h"

// As where they are defined: g++ goes by the first declaration that it meets.
namespace sluice {

class BackupSteps;
class DeviceThreads;
class LeafSteps;
struct TrainingTerms;

}  // namespace sluice

namespace SLUICE_INTERNAL sluice {

class ScatteredVariables;
class ServedTables;

}  // namespace sluice

namespace SLUICE_PUBLIC sluice {

class Observer;

// Where a state that was restored is from, if from no file.
inline constexpr char kKeptInMemory[] = "what was kept in memory";

// Figures of one batch.
struct Measurement {
  int64_t step = 0;  // 0: none was measured
  double loss = 0;
  double learning_rate = 0;
  std::optional<double> loss_scale;  // with loss scaling: after the step
  // Of the batch, and the model's summaries.
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<std::pair<std::string, Tensor>> summaries;
};

// One thread. With several workers (SessionOptions::collective) each has its
// share of every batch, and all have the same variables: those that call others
// of this here, and Evaluate, wait for the others. So it is with variables on
// parameter servers where all do a step together; where each has its own speed,
// what is said of all is so between a MarkTogether and the next step, and, but
// where they are each other's backups (TrainingServers), it has a batch of its
// own, and a call of Step counts as many steps as there are workers.
class TrainingRun {
 public:
  // Calls the functions of `spec` for training and for evaluating, so that
  // what either needs is missed before the first step; initialises the
  // variables. Waits for the other workers, which must have the same input and
  // graph. Throws Error.
  TrainingRun(const TrainerSpec& spec, const RunContext& context,
              const TrainingOptions& options);
  ~TrainingRun();

  // Trains on the next batch; false at the end of the input: where epochs end
  // with it the next step is of the next epoch. With `measure`
  // also fills measurement(). On an accelerator the step is still under way on
  // return unless it is measured; the one before has ended. Throws Error.
  bool Step(bool measure);
  // Trains on batch() again, as Step does on the next.
  void TrainOnBatch(bool measure);
  // Waits for the step under way, if there is one. Throws Error.
  void Finish();

  // Where it stands.
  // Steps completed, resumed ones too; of the last only the batch may be. Of
  // workers with their own speeds, what it would be were they together.
  int64_t step() const { return step_; }
  // What Step adds to it, and whether a multiple of `every` is among what the
  // call has added that left it at `step`.
  int64_t steps_at_once() const {
    return apart_ && !backed_ ? workers_.size() : 1;
  }
  bool Passes(int64_t step, int64_t every) const {
    return step / every > (step - steps_at_once()) / every;
  }
  // Whether each worker has its own speed.
  bool apart() const { return apart_; }
  // Where steps do not wait for all workers (TrainingServers::backups): to be
  // called before the first, with an `era` as of Meetings.
  void BeginRounds(int64_t era);
  // How many contributions of each worker were dropped since then; empty
  // elsewhere.
  const std::vector<int64_t>& dropped() const { return dropped_; }
  // All workers have done as many steps, and none begins another yet.
  void MarkTogether() {
    together_ = true;
    wants_meeting_ = false;
  }
  bool together() const { return together_; }
  // For what can only be done together: soon they will be.
  void AskToMeet() { wants_meeting_ = true; }
  bool wants_meeting() const { return wants_meeting_; }
  // Whether it is this worker that reads and writes the variables between
  // steps: each its own, but rank 0 those of parameter servers.
  bool owns_variables() const {
    return !options_.servers.any() || workers_.leads();
  }
  const Dataset& input() const { return input_; }  // of the whole job
  // Examples in a step, by the input: those of all workers, or of one that has
  // its own speed.
  int64_t batch_size() const { return input_.batch_size() / steps_at_once(); }
  // Not where epochs end with the input.
  int64_t total_steps() const;
  bool knows_total_steps() const { return context_.knows_total_steps(); }
  // The epochs that have ended, where these end with the input; else with the
  // part of this one.
  double epoch() const {
    return knows_total_steps() ? (static_cast<double>(step_) + StepsAhead()) /
                                     context_.steps_per_epoch
                               : static_cast<double>(batches_[0].epoch());
  }
  // How many steps more it would have been with batches of batch_size() from
  // the beginning, for as many examples; 0 but where batches were of another
  // size before (TrainingOptions::batch_by_workers).
  double StepsAhead() const;
  // Optimizer::accumulates.
  int64_t accumulates() const { return accumulates_; }
  // Whether all steps or epochs were done.
  bool done() const {
    return knows_total_steps() ? step_ >= total_steps()
                               : epoch() >= context_.epochs;
  }
  // Whether an epoch has ended with the input and none of the next was read.
  bool between_epochs() const {
    return !knows_total_steps() && batches_[0].epoch() > 0 &&
           batches_[0].consumed() == 0;
  }
  // Of the last step, which is waited for; 0 before the first. Throws Error.
  double loss() {
    Finish();
    return newest_loss_.value;
  }
  // Of a step that has ended.
  struct KnownLoss {
    int64_t step = 0;  // 0: none in this process
    double value = 0;
  };
  const KnownLoss& newest_loss() const { return newest_loss_; }
  // The newest that was infinite or no number since the last call.
  std::optional<KnownLoss> TakeBadLoss() {
    return std::exchange(bad_loss_, std::nullopt);
  }
  const Measurement& measurement() const { return measurement_; }
  // Of the last step, this worker's share; of its leaves that of the first.
  const Example& batch() const { return shares_[0]; }
  // With virtual workers or mirrored devices, else null.
  const LeafSteps* leaves() const { return leaves_.get(); }
  // Since this process began: examples that all workers trained on, and how
  // long that took, evaluations not counted.
  int64_t examples() const { return examples_; }
  double training_seconds() const { return training_seconds_; }
  // Of these, how long it waited for batches.
  double input_seconds() const { return input_seconds_; }
  // And for how long its steps exchanged tensors with other workers, or waited
  // for them, or on the host for parameter servers, beside no computation.
  double exchange_seconds() const { return exchange_seconds_; }
  // For what it waits between steps, which counts as if it were within them.
  void CountWait(double seconds) {
    training_seconds_ += seconds;
    exchange_seconds_ += seconds;
  }
  // Of this worker; and of all, by rank, as they were heard last, which rank 0
  // does before each step: empty before, and where there is one.
  WorkerTimes times() const;
  const std::vector<WorkerTimes>& times_of_all() const { return heard_; }
  void Hear(std::vector<WorkerTimes> all) { heard_ = std::move(all); }
  // Of this worker's updates, where it is apart: how many had each staleness,
  // the number of updates by other workers between its own read of the
  // variables and its update. Both are taken from the counter of updates, which
  // is read with the variables and again right after this one was counted.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }
  // The stages of the training input, on this worker. They are measured during
  // one step in eight.
  StageTimes& input_stages() const { return *input_stages_; }
  int64_t steps_with_measured_input() const { return measured_inputs_; }

  // The loss scale now, in a training that scales the loss (--precision fp16).
  std::optional<double> loss_scale() const;

  // Ends training after the current step. The first reason counts.
  void Stop(const std::string& reason);
  bool stopped() const { return !stop_reason_.empty(); }
  const std::string& stop_reason() const { return stop_reason_; }

  // The whole state as it was when it was last renewed; null before. Renewing
  // copies the variables, into the same memory unless somebody holds the one
  // before, and does nothing where it is of the present, workers are not
  // together, or the variables are another's. Of scattered variables it has on
  // rank 0 the wholes, on others what is theirs, as they were gathered last,
  // and does nothing where that was before another step. Tensors taken out of
  // it share its memory: hold the pointer as long as these are looked at.
  std::shared_ptr<const Checkpoint> snapshot() const { return snapshot_; }
  bool snapshot_held() const { return snapshot_.use_count() > 1; }
  void RenewSnapshot();
  // Large tables of parameter servers (TrainingServers::cut_from), which no
  // snapshot has, but where one is all that is kept of a training: whether a
  // variable is one, and what a checkpoint of now has them by, between steps.
  bool IsTable(const std::string& variable) const;
  std::vector<RowsTensor> TablesToSave() const;
  // Whether some variables are scattered over the workers: cut, or by stages
  // (models/train/run/scattered_variables.h).
  bool scatters_variables() const;
  bool IsScattered(const std::string& variable) const;
  // The present value of one, or on rank 0 that of a scattered one as it was
  // gathered last.
  Tensor ValueOf(const Output& variable) const;
  // RenewSnapshot, by all workers that are together, where some are: waits for
  // the others. Else nothing.
  void GatherSnapshot();
  // Once rank 0 has begun: gives the others what is theirs of what it has of
  // those. Waits.
  void HandOutParts();
  // Makes it rank 0's, but for what is scattered: of this each has its own.
  // Waits.
  void TakeFromFirst(Checkpoint* checkpoint) const;
  // Puts a state back, bit for bit (but for variables that are another's), or
  // throws Error naming what does not fit
  // and changes nothing. `source` is for messages.
  void Restore(const Checkpoint& checkpoint, const std::string& source);
  // The `source` of the first that was restored; "": none.
  const std::string& resumed_from() const { return resumed_from_; }
  // Whether the newest state that was restored had been evaluated.
  bool evaluated() const { return evaluated_; }
  // How many evaluations were done of those that are due, every so many epochs
  // (TrainingOptions::evaluate_every), which goes by no batch size; nullopt
  // until it is set, and where what was restored does not say, or counts by
  // other epochs.
  std::optional<int64_t> evaluations() const { return evaluations_; }
  void set_evaluations(int64_t done) {
    if (evaluations_ != done) snapshot_is_old_ = true;
    evaluations_ = done;
  }
  // Whether the variables are what step() steps made of them: not after a step
  // that failed, nor where workers are not together.
  bool sound() const { return sound_ && together_; }
  // Because of a loss that was no number.
  void MarkDiverged() {
    sound_ = false;
    diverged_ = true;
  }
  bool diverged() const { return diverged_; }
  // The model's variables alone, as options().weights and reset say.
  LoadedWeights LoadWeights();

  // Evaluates the present variables on the evaluation input. nullopt when
  // `stop`, unless null, cut it short, which it does for all workers.
  std::optional<Evaluation> Evaluate(const StopToken* stop = nullptr);

  // Of the step on a full batch, as it was prepared.
  const StepInfo& info() const { return info_; }
  // Of the step on the last batch, with what its runs have shown. Finish()
  // comes first.
  StepInfo InfoOfRuns() const;

  const Workers& workers() const { return workers_; }
  const TrainerSpec& spec() const { return spec_; }
  const RunContext& context() const { return context_; }
  const TrainingOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  const Session& session() const { return *session_; }
  // Who asks for this one may write variables.
  Session& session() {
    MarkWritten();
    return *session_;
  }
  // Those that steps run in, the one that has the variables first, and the
  // device of each.
  std::vector<std::pair<Session*, std::string>> step_sessions();
  const ModelSpec& model() const { return model_; }
  // As TrainerSpec::class_names has them.
  const std::vector<std::string>& class_names() const { return class_names_; }
  const LearningRate& learning_rate() const { return learning_rate_; }
  // Variables that the model made, without the optimizer's.
  const std::vector<Output>& model_variables() const {
    return model_variables_;
  }
  // The training step on a whole batch, as `sluice graph` takes it.
  std::unique_ptr<Graph> StepGraph() const;

 private:
  // A feature of each share of a batch: what it counts for among the workers,
  // its examples over the mean number of them, 1 where all have as many. (Of
  // virtual workers, where there are such.)
  static constexpr char kShareWeight[] = "worker/share_weight";

  // The variables have been, other than by a step.
  void MarkWritten();
  SessionOptions PlaceStages(SessionOptions session) const;
  // Into stages, before anything is built on it.
  void CutModel();
  // The same values where the loss is.
  std::vector<Output> WithLoss(const std::vector<Output>& values);
  // Of the whole batch, from the loss of this worker's share.
  Output JobLoss(const Output& weight);
  std::vector<Iterator> MakeIterators() const;
  void CheckServers() const;
  void CheckBackups() const;
  // Once the training is built: where it is computed.
  SessionOptions PlaceTraining();
  std::vector<FeedShape> FeedsOf(int64_t examples) const;
  std::vector<FeedShape> LargestShare() const;
  std::vector<Operation> Targets() const;
  void MakeSteps(const Output& learning_rate);
  std::optional<double> ReadLossScale() const;
  void CountStep();
  void StepOrNothing(bool measure);
  std::string Position() const;
  TrainingTerms Terms() const;
  // By what was trained on before: the learning rate's schedule.
  void CountEpochsOn();
  void TrainOnLeaves(bool measure);
  void TrainWithBackups(bool measure);
  void Collect(BatchStep::Pending ended, int64_t step);
  void NoteLoss(int64_t step, double loss);
  // Metrics of each of this worker's leaves.
  void Measure(double learning_rate, std::vector<MetricsOverSet> metrics,
               std::span<const Tensor> summaries);

  const TrainerSpec& spec_;
  RunContext context_;
  TrainingOptions options_;
  Workers workers_;
  std::vector<std::string> class_names_;
  const bool backed_;  // the steps do not wait for all workers
  const bool apart_;
  Dataset input_;
  std::shared_ptr<StageTimes> input_stages_ = std::make_shared<StageTimes>();
  std::vector<Iterator> batches_;  // of this worker's leaves
  Graph graph_;
  std::unique_ptr<Features> features_;
  ModelSpec model_;
  Output loss_;   // of the whole batch
  Output stale_;  // where workers are apart: staleness()
  Operation train_;
  std::vector<Output> model_variables_;
  LearningRate learning_rate_ = 0;
  std::unique_ptr<DeviceThreads> devices_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<BatchStep> plain_;      // fetches the loss
  std::unique_ptr<BatchStep> measuring_;  // and rate, metrics, summaries
  std::unique_ptr<LeafSteps> leaves_;     // in place of both
  std::unique_ptr<BackupSteps> backups_;  // with both
  StepInfo info_;
  std::unique_ptr<Inference> inference_;  // evaluates

  std::unique_ptr<ScatteredVariables> scattered_;
  std::unique_ptr<ServedTables> tables_;
  int64_t gathered_step_ = -1;  // of what that has gathered

  int64_t step_ = 0;
  int64_t accumulates_ = 1;
  // What was restored: steps, and the examples that these were of.
  int64_t steps_before_ = 0, examples_before_ = 0;
  bool together_ = true;
  bool wants_meeting_ = false;
  bool sound_ = true;
  bool diverged_ = false;
  // Of an elastic job, whose steps are whole or nothing: whether the batches
  // are beyond step_, which failed, and the position from before it.
  bool step_failed_ = false;
  std::optional<double> known_loss_scale_;  // where another stage has it
  bool committed_ = false;  // the variables are those after the last step begun
  std::string position_before_;
  std::string resumed_from_;
  bool evaluated_ = false;
  std::optional<int64_t> evaluations_;
  std::shared_ptr<Checkpoint> snapshot_;
  bool snapshot_is_old_ = true;
  BatchStep::Pending under_way_;  // step number step_
  KnownLoss newest_loss_;
  std::optional<KnownLoss> bad_loss_;
  Measurement measurement_;
  std::vector<Example> shares_;
  int64_t examples_ = 0;
  double training_seconds_ = 0;
  double input_seconds_ = 0;
  double exchange_seconds_ = 0;
  int64_t own_examples_ = 0;
  std::vector<WorkerTimes> heard_;
  std::map<int64_t, int64_t> staleness_;
  int64_t first_examples_ = 0;  // at BeginRounds
  std::vector<int64_t> dropped_;
  int64_t measured_inputs_ = 0;
  std::string stop_reason_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_RUN_H_
