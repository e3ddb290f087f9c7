#include "models/train/hooks/save_checkpoints.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <system_error>
#include <utility>

#include "engine/caught.h"
#include "engine/runtime/finite_check.h"
#include "models/train/hooks/hooks.h"

namespace sluice {
namespace {

// Of the thread that writes: a tenth of a core where others want all of it.
constexpr int kNice = 10;

}  // namespace

void CheckpointWriter::Start(Checkpoint checkpoint,
                             std::set<std::string> finite, bool beside) {
  SLUICE_CHECK(!busy());
  Join();
  done_ = false;
  const auto shared = std::make_shared<Checkpoint>(std::move(checkpoint));
  const auto write = [this, shared, finite = std::move(finite)] {
    Write(*shared, finite);
    *shared = {};
    done_ = true;
  };
  if (!beside) return write();
  try {
    thread_ = std::thread([write] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
      write();
    });
  } catch (const std::system_error&) {
    write();
  }
}

// As they are read, which is before anything is written.
void CheckpointWriter::LookAtRows(RowsTensor* tensor) {
  tensor->read = [this, name = tensor->name, read = std::move(tensor->read)](
                     int64_t begin, Tensor* rows) -> Status {
    SLUICE_RETURN_IF_ERROR(read(begin, rows));
    if (AllFinite(*rows)) return {};
    written_.not_finite = name;
    return OutOfRange(name + " is not finite");
  };
}

void CheckpointWriter::Write(Checkpoint& checkpoint,
                             const std::set<std::string>& finite) noexcept {
  try {
    written_.not_finite.clear();
    for (const auto& [name, tensor] : checkpoint.tensors) {
      if (finite.contains(name) && !AllFinite(tensor)) {
        written_.not_finite = name;
        return;
      }
    }
    for (RowsTensor& tensor : checkpoint.by_rows) {
      if (finite.contains(tensor.name)) LookAtRows(&tensor);
    }
    Result<std::string> path = manager_.Save(checkpoint);
    if (!written_.not_finite.empty()) return;
    status_ = path.status();
    if (path.ok()) written_.path = *std::move(path);
  } catch (...) {
    status_ = CaughtStatus();
  }
}

Result<CheckpointWriter::Written> CheckpointWriter::Wait() {
  Join();
  SLUICE_RETURN_IF_ERROR(std::exchange(status_, {}));
  return written_;
}

std::string CheckpointWriter::Find(int64_t step) const {
  const std::vector<int64_t> steps = manager_.Steps().ValueOrThrow();
  const bool saved = std::binary_search(steps.begin(), steps.end(), step);
  return saved ? manager_.PathOf(step) : std::string();
}

// What was kept may be saved, too, and its file say how it was evaluated.
void SaveCheckpoints::Begin(TrainingRun& run) {
  saved_at_ = now_();
  const std::string& source = run.resumed_from();
  const std::string path =
      source == kKeptInMemory ? writer_.Find(run.step()) : source;
  if (path.empty()) return;
  saved_step_ = run.step();
  last_path_ = path;
}

bool SaveCheckpoints::Due(const TrainingRun& run) const {
  const SaveEvery& every = run.options().save_every;
  const int64_t since = run.step() - std::max<int64_t>(saved_step_, 0);
  if (every.steps > 0 && since >= every.steps) return true;
  return every.seconds > 0 &&
         now_() - saved_at_ >= std::chrono::duration<double>(every.seconds);
}

void SaveCheckpoints::AfterStep(TrainingRun& run) {
  if (writer_.busy()) return;
  // Which returns at once, and throws if the save failed.
  if (snapshot_ != nullptr) Wait(run);
  if (!Due(run)) return;
  if (!run.together()) return run.AskToMeet();
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
    // The first error is thrown; after this one the variables are not sound.
  }
  try {
    // What failed before is tried once more.
    if (!writer_.Wait().ok()) saved_step_ = -1;
    snapshot_.reset();
    if (run.examples() == 0 || run.diverged()) return;
    if (run.sound() && EndedWell(run)) return;
    if (!run.TablesToSave().empty()) return;  // they are beyond the snapshot
    if (run.snapshot() != nullptr &&
        run.snapshot()->state.step > std::max<int64_t>(saved_step_, 0)) {
      // A step that failed, as where another worker is gone, leaves the state
      // that NanStop kept from before it.
      Write(run, std::nullopt);
      Wait(run);
    }
  } catch (...) {
    // The error that ended the training is thrown.
  }
}

bool SaveCheckpoints::EndedWell(TrainingRun& run) {
  try {
    End(run);
    return true;
  } catch (...) {
    // Variables that are elsewhere may be gone with who had them.
    return !run.options().servers.any();
  }
}

void SaveCheckpoints::End(TrainingRun& run) {
  if (saved_step_ != run.step()) Save(run, std::nullopt);
  Wait(run);
}

void SaveCheckpoints::Wait(TrainingRun& run) {
  Result<CheckpointWriter::Written> result = writer_.Wait();
  snapshot_.reset();
  if (!result.ok()) saved_step_ = -1;
  const CheckpointWriter::Written written = std::move(result).ValueOrThrow();
  if (!written.path.empty()) last_path_ = written.path;
  if (!written.not_finite.empty() && told_step_ != saved_step_) {
    told_step_ = saved_step_;
    run.options().Note(fmt::format("step {} is not saved: '{}' is not finite",
                                   saved_step_, written.not_finite));
  }
}

void SaveCheckpoints::Save(TrainingRun& run, std::optional<double> metric) {
  Wait(run);
  run.RenewSnapshot();
  // Of scattered variables it may be the one that is saved, with its metric.
  if (!metric && run.snapshot()->state.step == saved_step_) return;
  KeepStates(others_, run);
  Write(run, metric);
}

void SaveCheckpoints::Write(TrainingRun& run, std::optional<double> metric) {
  snapshot_ = run.snapshot();
  Checkpoint checkpoint = *snapshot_;  // shares the tensors
  checkpoint.state.metric = metric;
  checkpoint.by_rows = run.TablesToSave();
  const bool at_once = !checkpoint.by_rows.empty();
  SaveHooks(others_, &checkpoint.state);
  for (const Hook* hook : others_) hook->SyncFiles();
  std::set<std::string> finite;
  for (const Output& variable : run.graph().TrainableVariables()) {
    finite.insert(variable.name());
  }
  writer_.Start(std::move(checkpoint), std::move(finite), !at_once);
  saved_step_ = snapshot_->state.step;
  // Nobody updates what is read for it before this returns: training has as
  // long until the next as after any other.
  if (at_once) Wait(run);
  saved_at_ = now_();
}

}  // namespace sluice
