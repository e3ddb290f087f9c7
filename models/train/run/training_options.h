// What a training is asked for beside its model and its run.
#ifndef SLUICE_MODELS_TRAIN_RUN_TRAINING_OPTIONS_H_
#define SLUICE_MODELS_TRAIN_RUN_TRAINING_OPTIONS_H_

#include <string>
#include <string_view>

#include "engine/device.h"
#include "engine/visibility.h"
#include "graph/autograd.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "models/train/values/checkpoint_choice.h"
#include "models/train/workers/meetings.h"
#include "models/train/workers/mirrored_devices.h"
#include "models/train/workers/pipeline_stages.h"
#include "models/train/workers/reporter.h"

namespace SLUICE_PUBLIC sluice {

// When to save beside what evaluations and the end of training save.
struct SaveEvery {
  int64_t steps = 0;     // since the last one; 0: never for their number
  double seconds = 600;  // 0: never for the time
};
// "500", "10m", "90s", "2h"; "0": never. Throws Error(kInvalidArgument).
SaveEvery ParseSaveEvery(const std::string& text);

struct TrainingOptions {
  // Where checkpoints and events go; empty: nothing is saved.
  std::string log_dir;
  // Sets an earlier training in log_dir aside rather than resuming it.
  bool restart = false;
  // A file of weights (models/train/values/weights_file.h) to begin with, and
  // which of the model's variables keep their first values rather than be in
  // it: patterns of names (models/optim/name_pattern.h).
  std::string weights;
  std::string reset;
  // Variables that training leaves as they are, statistics among them too:
  // patterns of names. They have no decay, no slots and no gradient.
  std::string freeze;
  CheckpointChoice checkpoint;  // for what is not training
  int keep_checkpoints = 5;
  SaveEvery save_every;
  // Epochs between evaluations, each of which saves a checkpoint; 0: only at
  // the end.
  double evaluate_every = 1;
  int64_t log_every = 100;  // steps
  // Activations that gradients compute again instead of keeping them.
  Recompute recompute = Recompute::kNone;
  // AllReduceOptions::between, where there are several workers, or virtual
  // ones.
  DType gradients_between = DType::kFloat32;
  // AllReduceOptions::buckets, of the same workers, which all say the same.
  BucketBytes buckets;
  // Workers that define the training, a power of two, whatever the number of
  // those that there are, which is at most that (docs/distributed.md). 0: these
  // themselves, or mirrored devices.
  int64_t virtual_workers = 0;
  // Whether the batch size goes by the number of workers
  // (--batch-size-per-worker), so that a training which is resumed may have
  // another: epochs and schedules then go by the examples that were trained on.
  bool batch_by_workers = false;
  // In one process without parameter servers. They define the training, where
  // no virtual workers do, of which there are then at least as many.
  MirroredDevices mirrored;
  // Of processes, with virtual workers: these are then the micro-batches, at
  // least as many to a replica as it has stages.
  PipelineStages pipeline;
  // The batch of each worker that updates them at its own speed
  // (TrainingServers::lead) is RunContext::batch_size, and an update is a step.
  TrainingServers servers;
  SessionOptions session;  // with servers it has no container
  // Neither is owned. Without a reporter nothing is said, without a token
  // nothing ends training early but its hooks.
  Reporter* reporter = nullptr;
  const StopToken* stop = nullptr;

  // Tells the reporter, if there is one.
  void Note(std::string_view line) const {
    if (reporter != nullptr) reporter->Note(line);
  }
  // The token's; empty: go on.
  std::string StopReason() const {
    return stop == nullptr ? std::string() : stop->Reason();
  }
};

// The device that this process trains on, or the first of several. Throws
// Error.
DeviceName OwnDevice(const TrainingOptions& options);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_OPTIONS_H_
