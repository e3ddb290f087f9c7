// The options of a training, apart from its model and its run.
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

// When to save checkpoints, in addition to those at evaluations and at the end
// of training.
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
  // A file of weights (models/train/values/weights_file.h) to begin with; and
  // the model's variables that keep their first values instead, as patterns of
  // names (models/optim/name_pattern.h).
  std::string weights;
  std::string reset;
  // Variables that training leaves as they are, including statistics, as
  // patterns of names. They have no decay, no slots and no gradient.
  std::string freeze;
  CheckpointChoice checkpoint;  // for all calls but Train
  int keep_checkpoints = 5;
  SaveEvery save_every;
  // Epochs between evaluations, each of which saves a checkpoint; 0: only at
  // the end.
  double evaluate_every = 1;
  // Steps between reports, and between the snapshots that a training which
  // fails is looked into and saved from. 0: no reports of steps, and no
  // snapshots but those that are saved.
  int64_t log_every = 100;
  // Activations that gradients compute again instead of keeping them.
  Recompute recompute = Recompute::kNone;
  // AllReduceOptions::between, if there are several workers, or virtual ones.
  DType gradients_between = DType::kFloat32;
  // AllReduceOptions::buckets, for the same workers, which all must have the
  // same value.
  BucketBytes buckets;
  // The number of virtual workers, a power of two, which define the training
  // whatever the number of real workers, at most as many (docs/distributed.md).
  // 0: the workers themselves, or mirrored devices, define it.
  int64_t virtual_workers = 0;
  // Of an elastic job without virtual workers: as many as there may ever be,
  // each of which must be able to have a share of every batch; 0: not known.
  int64_t most_workers = 0;
  // Whether the batch size is proportional to the number of workers
  // (--batch-size-per-worker), so that a resumed training may have another:
  // epochs and schedules then count the examples that were trained on.
  bool batch_by_workers = false;
  // Mirrored devices, in one process without parameter servers. They define the
  // training unless there are virtual workers, which must then be at least as
  // many.
  MirroredDevices mirrored;
  // Pipeline stages over processes, which require virtual workers: these are
  // then the micro-batches, at least as many per replica as it has stages.
  PipelineStages pipeline;
  // Parameter servers. If each worker updates at its own speed
  // (TrainingServers::lead), its batch is RunContext::batch_size, and each
  // update is a step.
  TrainingServers servers;
  SessionOptions session;  // with servers it has no container
  // Neither is owned. Without a reporter nothing is reported; without a stop
  // token only hooks end training early.
  Reporter* reporter = nullptr;
  const StopToken* stop = nullptr;

  // Tells the reporter, if there is one.
  void Note(std::string_view line) const {
    if (reporter != nullptr) reporter->Note(line);
  }
  // The reason of the stop token; empty: go on.
  std::string StopReason() const {
    return stop == nullptr ? std::string() : stop->Reason();
  }
};

// The device that this process trains on, or the first of several. Throws
// Error.
DeviceName OwnDevice(const TrainingOptions& options);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_OPTIONS_H_
