// Saves a training's checkpoints while it goes on.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_SAVE_CHECKPOINTS_H_
#define SLUICE_MODELS_TRAIN_HOOKS_SAVE_CHECKPOINTS_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hook.h"

namespace sluice {

// Writes one checkpoint at a time. All calls come from one thread.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointManager manager)
      : manager_(std::move(manager)) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter() { Join(); }

  // Starts to write a checkpoint; no other write may be under way. The tensors'
  // bytes must not change until Wait has returned or busy() is false. Nothing
  // is written if a tensor named in `finite` has an element that is not finite.
  // `beside`: a thread of its own writes, which gives way to those that
  // compute; else, or if no thread can be made, the calling one writes.
  void Start(Checkpoint checkpoint, std::set<std::string> finite, bool beside);
  bool busy() const { return thread_.joinable() && !done_.load(); }
  // What was written so far.
  struct Written {
    std::string path;        // of the newest; "" before the first
    std::string not_finite;  // the tensor for which the last was not written
  };
  // Waits for the write under way, if any. Returns the error of a failed write
  // once.
  Result<Written> Wait();
  // The path of the checkpoint of `step` if it is saved already; else "". Call
  // it before anything is written. Throws Error.
  std::string Find(int64_t step) const;

 private:
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  void Write(Checkpoint& checkpoint,
             const std::set<std::string>& finite) noexcept;
  void LookAtRows(RowsTensor* tensor);

  CheckpointManager manager_;  // the thread's while it runs
  std::thread thread_;
  std::atomic<bool> done_{false};
  // The thread's until it is joined.
  Status status_;
  Written written_;
};

// Saves after every evaluation, as often as options.save_every says, at the
// end, and when training ends by an error that leaves the variables as the
// last step made them. A checkpoint with a non-finite trainable variable would
// be of no use, and is not written. Keeps the newest few and the best. The step
// that begins a save takes a copy of the variables longer, which is memory that
// NanStop needs, too (TrainingRun::RenewSnapshot); a save that comes while one
// is being written waits for it or, if it is only due by time or steps, is put
// off. Large tables of parameter servers (TrainingRun::TablesToSave) are read
// while they are written, which is waited for. It is the last hook, so that it
// saves what the others have decided.
class SaveCheckpoints : public Hook {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;
  // `others`, not owned, have states to save.
  SaveCheckpoints(CheckpointManager manager, std::vector<const Hook*> others,
                  Now now = Clock::now)
      : now_(std::move(now)),
        writer_(std::move(manager)),
        others_(std::move(others)) {}
  void Begin(TrainingRun& run) override;
  void AfterStep(TrainingRun& run) override;
  void AtMeeting(TrainingRun& run) override { AfterStep(run); }
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  void OnError(TrainingRun& run) noexcept override;
  void End(TrainingRun& run) override;

  // The path of the newest checkpoint on the disk.
  const std::string& last_path() const { return last_path_; }

 private:
  bool Due(const TrainingRun& run) const;
  // Starts a save once the one before is written; without a metric, not if the
  // snapshot's step is saved already.
  void Save(TrainingRun& run, std::optional<double> metric);
  // Starts to save the run's snapshot as it is; no save may be under way.
  void Write(TrainingRun& run, std::optional<double> metric);
  // End; false where what was kept from before should be saved instead.
  bool EndedWell(TrainingRun& run);
  // Throws the Error of a save that failed.
  void Wait(TrainingRun& run);

  const Now now_;
  // Held while its tensors' bytes are being written.
  std::shared_ptr<const Checkpoint> snapshot_;
  CheckpointWriter writer_;
  std::vector<const Hook*> others_;
  // The step of the newest save begun, unless it failed, or of the state that
  // training begins with.
  int64_t saved_step_ = -1;
  int64_t told_step_ = -1;      // of which it was said that it is not finite
  Clock::time_point saved_at_;  // when that began; one waited for: its end
  std::string last_path_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_SAVE_CHECKPOINTS_H_
