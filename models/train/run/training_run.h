// One training in progress: the model's graph, its session, the input, and the
// state of these that a checkpoint saves.
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
#include "io/pipeline/rowwise_map.h"
#include "io/pipeline/stage_times.h"
#include "models/train/run/batch_step.h"
#include "models/train/run/inference.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_options.h"
#include "models/train/values/weights_file.h"
#include "models/train/workers/workers.h"

// Declared with the visibility of their definitions: g++ uses that of the first
// declaration.
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

// The `source` of a restored state that comes from no file.
inline constexpr char kKeptInMemory[] = "what was kept in memory";

// What was measured on one batch.
struct Measurement {
  int64_t step = 0;  // 0: none was measured
  double loss = 0;
  double learning_rate = 0;
  std::optional<double> loss_scale;  // with loss scaling: after the step
  // The metrics of the batch, and the model's summaries.
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<std::pair<std::string, Tensor>> summaries;
};

// One thread. With several workers (SessionOptions::collective) each has its
// share of every batch, and all have the same variables; calls that do a step,
// and Evaluate, wait for the other workers. The same holds for variables on
// parameter servers if all workers do a step together. If each worker has its
// own speed, it holds only between a MarkTogether and the next step; a worker
// then has batches of its own, and a call of Step counts as many steps as there
// are workers, unless workers are backups (TrainingServers).
class TrainingRun {
 public:
  // Calls the functions of `spec` for training and for evaluating, so that an
  // error of either is found before the first step; initialises the variables.
  // Waits for the other workers, which must have the same input and graph.
  // Throws Error.
  TrainingRun(const TrainerSpec& spec, const RunContext& context,
              const TrainingOptions& options);
  ~TrainingRun();

  // Trains on the next batch. Returns false at the end of the input; if epochs
  // end with the input, the next step is of the next epoch. With `measure` also
  // fills measurement(). On an accelerator the step is still under way on
  // return unless it is measured; the one before has ended. Throws Error.
  bool Step(bool measure);
  // Trains on batch() again, as Step does on the next.
  void TrainOnBatch(bool measure);
  // Waits for the step under way, if there is one. Throws Error.
  void Finish();

  // Steps completed, resumed ones included; of the last one only the batch may
  // have been taken. With workers at their own speeds, the steps of all if each
  // had done as many as this one.
  int64_t step() const { return step_; }
  // steps_at_once: what a call of Step adds to step(). Passes: whether a
  // multiple of `every` is among the steps added by the call that reached
  // `step`; never if `every` is not positive.
  int64_t steps_at_once() const {
    return apart_ && !backed_ ? workers_.size() : 1;
  }
  bool Passes(int64_t step, int64_t every) const {
    return every > 0 && step / every > (step - steps_at_once()) / every;
  }
  // Whether each worker has its own speed.
  bool apart() const { return apart_; }
  // If steps do not wait for all workers (TrainingServers::backups): must be
  // called before the first step, with an `era` as for Meetings.
  void BeginRounds(int64_t era);
  // How many contributions of each worker were dropped since BeginRounds; empty
  // without backups.
  const std::vector<int64_t>& dropped() const { return dropped_; }
  // To be called when all workers have done equally many steps, and none begins
  // another yet.
  void MarkTogether() {
    together_ = true;
    wants_meeting_ = false;
  }
  bool together() const { return together_; }
  // Asks that workers come together soon, for work that needs that.
  void AskToMeet() { wants_meeting_ = true; }
  bool wants_meeting() const { return wants_meeting_; }
  // Whether this worker reads and writes the variables between steps: each
  // worker does its own, but only rank 0 those on parameter servers.
  bool owns_variables() const {
    return !options_.servers.any() || workers_.leads();
  }
  const Dataset& input() const { return input_; }  // of the whole job
  // Examples in a step, by the input: of all workers together, or of this one
  // if each has its own speed.
  int64_t batch_size() const { return input_.batch_size() / steps_at_once(); }
  // The step that training ends with; not known if epochs end with the input.
  int64_t total_steps() const;
  bool knows_total_steps() const { return context_.knows_total_steps(); }
  // Whether that is a step which may be reached.
  bool has_last_step() const {
    return knows_total_steps() && total_steps() < RunContext::kEndless;
  }
  // Epochs done: with the fraction of the present one, unless epochs end with
  // the input.
  double epoch() const {
    return knows_total_steps() ? (static_cast<double>(step_) + StepsAhead()) /
                                     context_.steps_per_epoch
                               : static_cast<double>(batches_[0].epoch());
  }
  // How many more steps the same number of examples would have taken with
  // batches of batch_size() from the beginning; 0 unless batches were of
  // another size before (TrainingOptions::batch_by_workers).
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
  // The loss of the last step, which is waited for; 0 before the first. Throws
  // Error.
  double loss() {
    Finish();
    return newest_loss_.value;
  }
  // The loss of a step that has ended.
  struct KnownLoss {
    int64_t step = 0;  // 0: none in this process
    double value = 0;
  };
  const KnownLoss& newest_loss() const { return newest_loss_; }
  // The newest loss since the last call that was infinite or NaN.
  std::optional<KnownLoss> TakeBadLoss() {
    return std::exchange(bad_loss_, std::nullopt);
  }
  const Measurement& measurement() const { return measurement_; }
  // This worker's share of the last step's batch; with leaves the first's.
  const Example& batch() const { return shares_[0]; }
  // The steps by leaves, with virtual workers or mirrored devices; else null.
  const LeafSteps* leaves() const { return leaves_.get(); }
  // Since this process began: examples that all workers trained on, and the
  // seconds that took, evaluations not counted.
  int64_t examples() const { return examples_; }
  double training_seconds() const { return training_seconds_; }
  // Of these seconds, those spent waiting for batches.
  double input_seconds() const { return input_seconds_; }
  // Of these seconds, those in which steps exchanged tensors with other
  // workers, or waited for them, or on the host for parameter servers, while
  // computing nothing.
  double exchange_seconds() const { return exchange_seconds_; }
  // Counts seconds of waiting between steps as if they were within steps.
  void CountWait(double seconds) {
    training_seconds_ += seconds;
    exchange_seconds_ += seconds;
  }
  // The times of this worker; and those of all, by rank, as last heard. Rank 0
  // hears them before each step; empty before that, and with one worker.
  WorkerTimes times() const;
  const std::vector<WorkerTimes>& times_of_all() const { return heard_; }
  void Hear(std::vector<WorkerTimes> all) { heard_ = std::move(all); }
  // If workers are apart: how many of this worker's updates had each staleness,
  // the number of updates by other workers between this one's read of the
  // variables and its update. It is taken from the counter of updates, which is
  // read with the variables and again right after this update was counted.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }
  // The times of the stages of this worker's training input, which are measured
  // during one step in eight.
  StageTimes& input_stages() const { return *input_stages_; }
  int64_t steps_with_measured_input() const { return measured_inputs_; }

  // The loss scale now, in a training that scales the loss (--precision fp16).
  std::optional<double> loss_scale() const;

  // Ends training after the current step. The first reason counts.
  void Stop(const std::string& reason);
  bool stopped() const { return !stop_reason_.empty(); }
  const std::string& stop_reason() const { return stop_reason_; }

  // The whole state as of the last RenewSnapshot; null before. Renewing copies
  // the variables, into the same memory unless someone holds the previous
  // snapshot. It does nothing if the snapshot is up to date, workers are not
  // together, or another worker owns the variables. Scattered variables are as
  // gathered last, on rank 0 whole, on others their own parts; if another step
  // was done since, renewing does nothing. Tensors taken out of a snapshot
  // share its memory: hold the pointer as long as they are used.
  std::shared_ptr<const Checkpoint> snapshot() const { return snapshot_; }
  bool snapshot_held() const { return snapshot_.use_count() > 1; }
  void RenewSnapshot();
  // Puts what others keep with the snapshot, which must be there, into its
  // TrainingState::extra. A renewed one has none of it.
  void AddToSnapshot(const std::map<std::string, std::string>& extra);
  // Large tables on parameter servers (TrainingServers::cut_from), which a
  // snapshot has only if it is all that is kept of a training. IsTable: whether
  // a variable is one. TablesToSave: the tables as a checkpoint saves them now,
  // between steps.
  bool IsTable(const std::string& variable) const;
  std::vector<RowsTensor> TablesToSave() const;
  // Whether some variables are scattered over the workers: cut, or by stages
  // (models/train/run/scattered_variables.h).
  bool scatters_variables() const;
  bool IsScattered(const std::string& variable) const;
  // The present value of a variable; on rank 0, the value of a scattered one as
  // it was gathered last.
  Tensor ValueOf(const Output& variable) const;
  // If some variables are scattered: gathers them and renews the snapshot. All
  // workers, which must be together, call it; it waits for the others. Else it
  // does nothing.
  void GatherSnapshot();
  // After rank 0 has begun: gives the other workers their parts of its
  // scattered variables. Waits.
  void HandOutParts();
  // Replaces the checkpoint by rank 0's, except for scattered variables, of
  // which each worker has its own. Waits.
  void TakeFromFirst(Checkpoint* checkpoint) const;
  // Restores a state bit for bit (except for variables that another worker
  // owns), or throws Error naming what does not fit and changes nothing.
  // `source` is for messages.
  void Restore(const Checkpoint& checkpoint, const std::string& source);
  // The `source` of the first that was restored; "": none.
  const std::string& resumed_from() const { return resumed_from_; }
  // Whether the newest state that was restored had been evaluated.
  bool evaluated() const { return evaluated_; }
  // How many of the evaluations due every TrainingOptions::evaluate_every
  // epochs were done, a count that no batch size changes; nullopt until it is
  // set, and if the restored state does not have it or counts by other epochs.
  std::optional<int64_t> evaluations() const { return evaluations_; }
  void set_evaluations(int64_t done) {
    if (evaluations_ != done) snapshot_is_old_ = true;
    evaluations_ = done;
  }
  // Whether the variables are the result of step() steps: false after a step
  // that failed, and while workers are not together.
  bool sound() const { return sound_ && together_; }
  // Marks the variables as unsound because a loss was infinite or NaN.
  void MarkDiverged() {
    sound_ = false;
    diverged_ = true;
  }
  bool diverged() const { return diverged_; }
  // Loads the model's variables from the file options().weights, except those
  // of options().reset.
  LoadedWeights LoadWeights();

  // Evaluates the present variables on the evaluation input. Returns nullopt if
  // `stop`, unless null, cut it short, for all workers.
  std::optional<Evaluation> Evaluate(const StopToken* stop = nullptr);

  // Statistics of the step on a full batch, as it was prepared.
  const StepInfo& info() const { return info_; }
  // Statistics of the step on the last batch, with what its runs have shown.
  // Call Finish() before.
  StepInfo InfoOfRuns() const;

  const Workers& workers() const { return workers_; }
  const TrainerSpec& spec() const { return spec_; }
  const RunContext& context() const { return context_; }
  const TrainingOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  const Session& session() const { return *session_; }
  // The session for callers that may write variables.
  Session& session() {
    MarkWritten();
    return *session_;
  }
  // The sessions that steps run in, first the one that has the variables, each
  // with its device.
  std::vector<std::pair<Session*, std::string>> step_sessions();
  const ModelSpec& model() const { return model_; }
  // The class names from TrainerSpec::class_names.
  const std::vector<std::string>& class_names() const { return class_names_; }
  const LearningRate& learning_rate() const { return learning_rate_; }
  // Variables that the model made, without the optimizer's.
  const std::vector<Output>& model_variables() const {
    return model_variables_;
  }
  // The graph of the training step on a whole batch, for `sluice graph`.
  std::unique_ptr<Graph> StepGraph() const;

 private:
  // A feature of each share of a batch: its weight among the (virtual) workers,
  // which is its number of examples over the mean of all shares; 1 if all are
  // equal.
  static constexpr char kShareWeight[] = "worker/share_weight";

  // The constructor's parts, in their order.
  void CheckSame() const;
  std::vector<BytesToFloats> MakeInput();  // what is left to the graph
  void SetLength();
  void MakeModel(std::vector<BytesToFloats> to_floats);
  void MakeUpdate();
  void MakeSession();
  void MakeInference(int64_t batch_size_asked);
  // Notes that variables have been written other than by a step.
  void MarkWritten();
  SessionOptions PlaceStages(SessionOptions session) const;
  // Cuts the model into stages, before anything is built on it.
  void CutModel();
  // The same values, placed where the loss is.
  std::vector<Output> WithLoss(const std::vector<Output>& values);
  // The loss of the whole batch, from that of this worker's share.
  Output JobLoss(const Output& weight);
  std::vector<Iterator> MakeIterators() const;
  void CheckServers() const;
  void CheckBackups() const;
  // After the training is built: places it, and returns the session's options.
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
  // Moves the learning rate's schedule on by the examples trained on before.
  void CountEpochsOn();
  // Not valid where there was nothing for this worker.
  BatchStep::Pending TrainPlain(bool measure);
  void MeasurePlain(std::span<const Tensor> results);
  void TrainOnLeaves(bool measure);
  void TrainWithBackups(bool measure);
  void Collect(BatchStep::Pending ended, int64_t step);
  void NoteLoss(int64_t step, double loss);
  // Fills measurement(); `metrics` has one element for each of this worker's
  // leaves.
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
  // From the restored state: its steps, and the examples in these.
  int64_t steps_before_ = 0, examples_before_ = 0;
  bool together_ = true;
  bool wants_meeting_ = false;
  bool sound_ = true;
  bool diverged_ = false;
  // For an elastic job, whose steps are done entirely or not at all: whether a
  // step failed, so that the batches are one beyond step_; position_before_ is
  // the input's position before it.
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
