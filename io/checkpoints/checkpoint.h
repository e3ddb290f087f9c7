// Checkpoints: one safetensors file per saved step, training state in its
// metadata.
#ifndef SLUICE_IO_CHECKPOINTS_CHECKPOINT_H_
#define SLUICE_IO_CHECKPOINTS_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/checkpoints/safetensors.h"

namespace SLUICE_PUBLIC sluice {

struct TrainingState {
  int64_t step = 0;
  uint64_t seed = 0;
  std::string dataset_position;  // Iterator::SavePosition
  std::string schedule;          // of the learning rate
  double loss_scale = 1;
  // The metric that the checkpoint is judged by, if it was evaluated.
  std::optional<double> metric;
  std::vector<std::string> class_names;  // as their numbers go; none: unknown
  std::map<std::string, std::string> extra;
};

// A state as text, and back; kDataLoss for text that is no state.
std::string PrintTrainingState(const TrainingState& state);
Result<TrainingState> ParseTrainingState(const std::string& text);

struct Checkpoint {
  TrainingState state;
  // Variables by name, optimizer slots as "<variable>/<slot>".
  std::vector<NamedTensor> tensors;
  // Other tensors, which are too large to be held in memory for it.
  std::vector<RowsTensor> by_rows = {};
};

// The training state in a file, whose `path` is for messages: the default one
// where the file is no checkpoint of ours, kDataLoss where it is one that lost
// its checksum.
Result<TrainingState> TrainingStateOf(const Safetensors& file,
                                      const std::string& path);

// Writes a checkpoint, atomically and with a checksum.
Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint,
                       FileSystem& files = FileSystem::Default());
// Reads a checkpoint. kDataLoss when the file is damaged. A safetensors file
// that is no checkpoint of ours is read too: its state is the default one.
// Tensors for which `leave`, unless null, holds are left in the file, by_rows.
Result<Checkpoint> ReadCheckpoint(const std::string& path,
                                  FileSystem& files = FileSystem::Default(),
                                  const Leave& leave = nullptr);

// The checkpoints of one folder, "checkpoint-<step>.safetensors". It keeps the
// newest `keep` and the one with the best metric. Which is best is read from
// the files' headers, so there is no index that could disagree with them. A
// crash at any instant leaves every file whole. One thread. Of those that save
// there is one at a time for a folder, in all processes; any number may read.
class CheckpointManager {
 public:
  struct Options {
    int keep = 5;
    bool higher_is_better = true;
    FileSystem* files = nullptr;         // not owned; Posix when null
    FileSystem::OnWait waits = nullptr;  // of the lock
  };
  struct Restored {
    Checkpoint checkpoint;
    std::string path;
    // One line for every newer checkpoint that could not be read; print them.
    std::vector<std::string> warnings;
  };

  // The lock of a folder that is open for saving.
  static constexpr char kLockName[] = "training.lock";

  // Opens a folder for saving. Creates the folder if need be, locks it
  // (kLockName) for as long as the manager lives, and removes temporary files
  // that a crash left in it. kFailedPrecondition, naming the process, where
  // another has it open for saving.
  static Result<CheckpointManager> Open(const std::string& directory,
                                        Options options);
  static Result<CheckpointManager> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  // Opens a folder for reading: changes nothing, and may be used beside a
  // manager that saves. A folder that is not there holds no checkpoints.
  static CheckpointManager ForReading(const std::string& directory,
                                      Options options);
  static CheckpointManager ForReading(const std::string& directory) {
    return ForReading(directory, Options());
  }

  // Which other programs opening the folder does not keep out (FileLock), in
  // one line; empty: none.
  std::string warning() const {
    return lock_ == nullptr ? std::string() : lock_->warning();
  }

  // Writes the checkpoint of state.step, replacing one of the same step, then
  // removes those no longer kept. Returns its path. When writing fails all
  // earlier ones are still there.
  Result<std::string> Save(const Checkpoint& checkpoint);

  // The newest checkpoint that can be read, or nullopt when there is none.
  // kDataLoss when there are some and all are damaged. A checkpoint that a
  // server does not give is an error, and so is one that is too large for the
  // memory. `leave` is ReadCheckpoint's.
  Result<std::optional<Restored>> RestoreNewest(
      const Leave& leave = nullptr) const;

  // The checkpoint of a step: kNotFound, listing the steps there are, where
  // there is none; kDataLoss where it is damaged. And the one of BestStep,
  // nullopt without any, also where others are saved and removed meanwhile; an
  // error where one that might be the best cannot be read.
  Result<Restored> RestoreStep(int64_t step) const;
  Result<std::optional<Restored>> RestoreBest() const;

  // Steps for which there is a file, ascending.
  Result<std::vector<int64_t>> Steps() const;
  // The step with the best metric (the newer of equals), of those that can be
  // read; nullopt without any.
  Result<std::optional<int64_t>> BestStep() const;
  std::string PathOf(int64_t step) const;
  // The header of a step's file. Errors of ReadSafetensorsHeader. Where the
  // file is replaced while it is read, the header of the new one; kNotFound
  // where it is removed.
  Result<SafetensorsHeader> HeaderOf(int64_t step) const;

  // Moves all checkpoints to a new sub-folder ("previous-1", ...), for a run
  // that starts anew, and with them those that there are of the files `beside`,
  // whose paths are from the folder on; returns its path, or "" when there was
  // nothing to move. The newest checkpoint is moved last, and `beside` before
  // all checkpoints, from the last of them on: until then an error leaves what
  // can be gone on with, and what is left can be set aside as well.
  Result<std::string> SetAside(const std::vector<std::string>& beside = {});

 private:
  CheckpointManager(std::string directory, Options options);
  // Removes what is not kept; `saved` always is.
  Status Prune(int64_t saved);
  // The metric in a step's header. Errors of HeaderOf.
  Result<std::optional<double>> MetricOf(int64_t step) const;
  // BestStep among these steps; to `unread` go those that could not be read,
  // with why: kNotFound if one is there no more.
  Result<std::optional<int64_t>> BestOf(
      const std::vector<int64_t>& steps,
      std::map<int64_t, Status>* unread) const;

  Status CheckSaves() const;

  Options options_;
  FileSystem* files_;
  std::string directory_;
  std::unique_ptr<FileLock> lock_;  // null: for reading
  // Metrics read so far, where no one else saves: a file's never changes unless
  // Save replaces it.
  mutable std::map<int64_t, std::optional<double>> metrics_;
};

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_CHECKPOINT_H_
