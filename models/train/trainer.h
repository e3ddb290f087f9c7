// Trains, evaluates, predicts with and exports what a TrainerSpec describes.
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
  // Of the final variables; nullopt when options.stop cut training or the
  // evaluation short.
  std::optional<Evaluation> evaluation;
  double seconds = 0;  // of this call
  // While training, in this call.
  double examples_per_second = 0;
  // TrainingRun::dropped, since it began or began again.
  std::vector<int64_t> dropped;
  std::string stop_reason;  // empty: all steps were done
  std::string interrupted;  // options.stop's reason, of any worker; empty: none
  std::string checkpoint;   // the last one's path, if any was saved
};

// One thread. All calls throw Error.
class Trainer {
 public:
  Trainer(TrainerSpec spec, RunContext run, TrainingOptions options);

  // Hooks of Train, called in the order added, after the NaN stop and the
  // summaries and before checkpoints are saved.
  void AddHook(std::unique_ptr<Hook> hook);

  // Trains run.epochs epochs in all, or run.steps steps: resumes from
  // options.log_dir where there is a checkpoint, and tells the reporter so.
  // Several workers (SessionOptions::collective) each call it: they share out
  // every batch and each evaluation, and end together. Rank 0 alone uses the
  // folder and options.weights and has a reporter; hooks are called by all. Run
  // it with the same spec, run and options on each. Where the collective is
  // elastic those that are left go on, whoever is gone.
  TrainingResult Train();

  // One worker alone does what follows.
  // With options.weights, or else options.checkpoint of those in
  // options.log_dir. The step is 0 for weights. `each`, unless null, gets the
  // batches and what the model exports for them. nullopt: cut short by it or by
  // options.stop.
  std::optional<Evaluation> Evaluate(const OnBatch& each = nullptr);
  void Predict(const OnBatch& fn);
  // `run` with what the checkpoint says of the training (class_names,
  // trained_on); for weights as it is. The next of the calls beside it uses
  // the same checkpoint, whatever has been saved meanwhile.
  RunContext ToldOfTraining(RunContext run);
  // Writes a folder that LoadExported (models/train/export.h) reads.
  void Export(const std::string& directory);

 private:
  // One of what Train does, to the end or an error; the result but for the
  // time.
  TrainingResult TrainOnce();
  // Where it is rank 0 it speaks, and the folder is its own.
  void TakePlace();
  // All leave at this step, for those that wait to come in.
  [[noreturn]] void Regroup();
  // Whether an error that came is because of a parameter server that is gone,
  // or another worker's, and the training is to begin again with it. Of several
  // workers all come to that: who does first takes the others out of what they
  // wait in.
  bool ServerIsGone() const;
  // The same of workers that are gone from an elastic job.
  bool OthersAreGone(const Error& error) const;
  // Of one that has failed and may begin again.
  void Keep(TrainingRun& run, const TrainingResult& result);
  // Waits for servers and workers. Throws Error.
  void AwaitOthers();
  // Where it does not begin again, and nothing newer is in the folder.
  void SaveKept() const;
  // An error of a device, file system or other worker that is gone, and what
  // is left.
  Error WithLastCheckpoint(const Error& error) const;
  // Sets the state to begin with: a checkpoint's, the given weights or none.
  void Begin(TrainingRun& run, const std::optional<CheckpointManager>& saved);
  // Gives all workers the state that rank 0 begins with.
  void BeginTogether(TrainingRun& run);
  // Those that were added.
  std::vector<Hook*> AddedHooks() const;
  void RunSteps(TrainingRun& run, const std::vector<Hook*>& hooks,
                TrainingResult* result);
  // The model with training off and trained variables, and where those are
  // from.
  struct TrainedModel {
    std::unique_ptr<Inference> inference;
    int64_t step = 0;
    std::string checkpoint;  // its path; "": weights
  };
  TrainedModel Trained(Mode mode, const SessionOptions& session);
  // That checkpoint, read once; nothing with options.weights.
  std::optional<ChosenCheckpoint> Chosen();

  TrainerSpec spec_;
  RunContext run_;
  TrainingOptions options_;
  // Those of rank 0.
  std::string log_dir_, weights_;
  Reporter* reporter_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::optional<ChosenCheckpoint> told_of_;  // until it is used
  // More with each that begins, also of another process later: servers may
  // outlive these. Of rank 0, whose counts.
  int64_t era_;
  bool again_ = false;  // in this call of Train
  // Of the one before, where there is no folder to begin again from, or it has
  // less: of an elastic job.
  std::shared_ptr<const Checkpoint> kept_;
  // That all have trained on, and for how long, before the present one.
  int64_t examples_before_ = 0;
  double seconds_before_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_TRAINER_H_
