#include "models/train/save_checkpoints.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/caught.h"
#include "models/train/hooks.h"

namespace sluice {
namespace {

// Of the thread that writes: a tenth of a core where others want all of it.
constexpr int kNice = 10;

}  // namespace

void CheckpointWriter::Start(Checkpoint checkpoint) {
  SLUICE_CHECK(!busy());
  Join();
  done_ = false;
  thread_ = std::thread([this, checkpoint = std::move(checkpoint)]() mutable {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
    try {
      Result<std::string> path = manager_.Save(checkpoint);
      status_ = path.status();
      if (path.ok()) path_ = *std::move(path);
    } catch (...) {
      status_ = CaughtStatus();
    }
    checkpoint = {};
    done_ = true;
  });
}

Result<std::string> CheckpointWriter::Wait() {
  Join();
  SLUICE_RETURN_IF_ERROR(std::exchange(status_, {}));
  return path_;
}

void SaveCheckpoints::Begin(TrainingRun& run) {
  saved_at_ = Clock::now();
  if (run.resumed_from().empty()) return;
  saved_step_ = run.step();
  last_path_ = run.resumed_from();
}

bool SaveCheckpoints::Due(const TrainingRun& run) const {
  const SaveEvery& every = run.options().save_every;
  const int64_t since = run.step() - std::max<int64_t>(saved_step_, 0);
  if (every.steps > 0 && since >= every.steps) return true;
  return every.seconds > 0 && Clock::now() - saved_at_ >=
                                  std::chrono::duration<double>(every.seconds);
}

void SaveCheckpoints::AfterStep(TrainingRun& run) {
  if (writer_.busy()) return;
  Wait();  // which returns at once, and throws if the save failed
  if (!Due(run)) return;
  run.Finish();
  // Else NanStop has a look at it first.
  if (std::isfinite(run.newest_loss().value)) Save(run, std::nullopt);
}

void SaveCheckpoints::AfterEvaluation(TrainingRun& run,
                                      const Evaluation& evaluation) {
  Save(run, JudgedBy(run.spec(), evaluation));
}

void SaveCheckpoints::OnError(TrainingRun& run) noexcept {
  try {
    run.Finish();
  } catch (...) {
    return;  // the first error is thrown; after this one nothing is sound
  }
  try {
    (void)writer_.Wait();
    snapshot_.reset();
    if (run.examples() > 0 && run.sound() &&
        std::isfinite(run.newest_loss().value)) {
      End(run);
    }
  } catch (...) {
    // The error that ended the training is thrown.
  }
}

void SaveCheckpoints::End(TrainingRun& run) {
  if (saved_step_ != run.step()) Save(run, std::nullopt);
  Wait();
}

void SaveCheckpoints::Wait() {
  Result<std::string> written = writer_.Wait();
  snapshot_.reset();
  std::string path = std::move(written).ValueOrThrow();
  if (!path.empty()) last_path_ = std::move(path);
}

void SaveCheckpoints::Save(TrainingRun& run, std::optional<double> metric) {
  Wait();
  run.RenewSnapshot();
  snapshot_ = run.snapshot();
  Checkpoint checkpoint = *snapshot_;  // shares the tensors
  checkpoint.state.metric = metric;
  for (const Hook* hook : others_) {
    if (const std::string name = hook->StateName(); !name.empty()) {
      checkpoint.state.extra[HookStateKey(name)] = hook->SaveState();
    }
  }
  writer_.Start(std::move(checkpoint));
  saved_step_ = run.step();
  saved_at_ = Clock::now();
}

}  // namespace sluice
