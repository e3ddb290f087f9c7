// Trains, evaluates, predicts with and exports the model of a TrainerSpec.
//
//   Trainer trainer({.name = "mnist", .input = Input, .model = Model}, run,
//                   {.log_dir = "logs"});
//   trainer.AddHook(std::make_unique<EarlyStopping>(3));
//   TrainingResult result = trainer.Train();
//
// Main (models/cli/main.h) does this from the command line. Below it, Graph and
// Session are enough on their own.
#ifndef SLUICE_MODELS_TRAIN_TRAINER_H_
#define SLUICE_MODELS_TRAIN_TRAINER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/train/hooks/hook.h"
#include "models/train/run/inference.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

struct TrainingResult {
  int64_t steps = 0;  // completed, resumed ones included
  // The evaluation of the final variables; nullopt when options.stop cut
  // training or the evaluation short.
  std::optional<Evaluation> evaluation;
  double seconds = 0;  // of this call
  // Examples per second of training in this call, without evaluations.
  double examples_per_second = 0;
  // TrainingRun::dropped, since the training began or began again.
  std::vector<int64_t> dropped;
  std::string stop_reason;  // empty: all steps were done
  std::string interrupted;  // options.stop's reason, of any worker; empty: none
  std::string checkpoint;   // the last one's path, if any was saved
};

// One thread. All calls throw Error.
class Trainer {
 public:
  Trainer(TrainerSpec spec, RunContext run, TrainingOptions options);

  // Adds a hook for Train. Hooks are called in the order added, after the NaN
  // stop and the summaries and before checkpoints are saved. Must not be null.
  void AddHook(std::unique_ptr<Hook> hook);

  // Trains run.epochs epochs in all, or run.steps steps: resumes from
  // options.log_dir where there is a checkpoint, and tells the reporter so.
  // Several workers (SessionOptions::collective) each call it, with the same
  // spec, run and options: they share out every batch and each evaluation, and
  // end together. Rank 0 alone uses the folder and options.weights and has a
  // reporter; hooks are called by all. If the collective is elastic, the
  // workers that are left go on, whichever are gone.
  TrainingResult Train();

  // Evaluate and Predict use options.weights, or else the checkpoint in
  // options.log_dir that options.checkpoint chooses. The step is 0 for weights.
  //
  // Several workers each call Evaluate, as they do Train: they have the
  // variables from rank 0, share out every batch, and all get the same figures,
  // which are those of one worker to rounding. `each`, for one worker alone,
  // gets the batches and the model's exports for them. nullopt: `each` or
  // options.stop cut it short, for all workers.
  std::optional<Evaluation> Evaluate(const OnBatch& each = nullptr);
  // The reason of options.stop, of any worker, that cut the last Evaluate
  // short; empty: none did.
  const std::string& interrupted() const { return interrupted_; }

  // The calls from here on are for one worker alone, or for rank 0.
  void Predict(const OnBatch& fn);
  // `run` with class_names and trained_on from the checkpoint; unchanged for
  // weights. The next of these calls uses the same checkpoint, whatever has
  // been saved meanwhile.
  RunContext ToldOfTraining(RunContext run);
  // Writes a folder that LoadExported (models/train/export.h) reads.
  void Export(const std::string& directory);

 private:
  // Trains once, to the end or an error, for Train, which may begin again.
  // Returns the result without the time.
  TrainingResult TrainOnce();
  // Gives rank 0 the reporter, the folder and the weights.
  void TakePlace();
  // Leaves the group at this step, as all workers do, so that new workers can
  // join.
  [[noreturn]] void Regroup();
  // Whether an error is due to a parameter server that is gone, here or as
  // another worker says, and the training is to begin again with the server.
  // The first worker to find that makes the others' waits fail, so that all
  // come to it.
  bool ServerIsGone() const;
  // Whether an error is due to workers that are gone from an elastic job.
  bool OthersAreGone(const Error& error) const;
  // Keeps what beginning again needs of a run that has failed.
  void Keep(TrainingRun& run, const TrainingResult& result);
  // Waits for servers and workers. Throws Error.
  void AwaitOthers();
  // Saves the kept checkpoint of an elastic job that does not begin again,
  // unless the folder has one as new.
  void SaveKept() const;
  // Adds the last checkpoint to an error about a device, file system or worker
  // that is gone.
  Error WithLastCheckpoint(const Error& error) const;
  // Sets the state to begin with: a checkpoint's, the given weights or none.
  void Begin(TrainingRun& run, const std::optional<CheckpointManager>& saved);
  // Of rank 0, once the training can begin.
  void BeginFolder(const TrainingRun& run, CheckpointManager& saved);
  // The others of an elastic job have begun, too.
  void AwaitBegun(TrainingRun& run);
  // The hooks that were added.
  std::vector<Hook*> AddedHooks() const;
  // To where no worker needs another any more; or an error, of which hooks are
  // told, and Train whether it may begin again.
  void RunToEnd(TrainingRun& run, const std::vector<Hook*>& hooks,
                TrainingResult* result);
  void RunSteps(TrainingRun& run, const std::vector<Hook*>& hooks,
                TrainingResult* result);
  // The model with training off and trained variables, and the source of these.
  struct TrainedModel {
    std::unique_ptr<Inference> inference;
    int64_t step = 0;
    std::string checkpoint;  // its path; "": weights
  };
  // `workers` are those that call it, of session.collective. Waits.
  TrainedModel Trained(Mode mode, const SessionOptions& session,
                       const Workers& workers);
  // For prediction, by this worker.
  TrainedModel TrainedAlone(const SessionOptions& session);
  // The checkpoint that options.checkpoint chooses, read once; nullopt with
  // options.weights.
  std::optional<ChosenCheckpoint> Chosen();

  TrainerSpec spec_;
  RunContext run_;
  TrainingOptions options_;
  // The options that a worker uses when it is rank 0 (TakePlace).
  std::string log_dir_, weights_;
  Reporter* reporter_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::optional<ChosenCheckpoint> told_of_;  // until it is used
  std::string interrupted_;
  // Grows with each run that begins, also in later processes, since servers may
  // outlive them. Rank 0's counts for all.
  int64_t era_;
  bool again_ = false;  // in this call of Train
  // The state of the run before, to begin again from if there is no folder, or
  // if that may have less, as for an elastic job.
  std::shared_ptr<const Checkpoint> kept_;
  // The examples that all workers trained on in earlier runs of this call, and
  // the seconds that took.
  int64_t examples_before_ = 0;
  double seconds_before_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_TRAINER_H_
