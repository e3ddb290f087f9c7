// How a training that has lost a parameter server, or others of an elastic job,
// comes to begin again, and what is left of one that does not.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/runtime/collective.h"
#include "graph/session/cluster.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "models/train/trainer.h"
#include "models/train/workers/meetings.h"

namespace sluice {
namespace {

// Of a pipeline, whose stages lose each other at once when one ends, be it for
// a third: who that is the job's coordinator says, or, where it is gone itself,
// its silence, of which each hears by a clock of its own.
Error AsWorkersSay(const TrainingOptions& options, const Error& error) {
  constexpr std::chrono::seconds kLongest(2);
  constexpr std::chrono::milliseconds kBetween(20);
  Collective* const workers = options.session.collective.get();
  if (options.pipeline.count == 1 || workers == nullptr) return error;
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (std::chrono::steady_clock::now() < end) {
    const Status said = workers->Check();
    if (!said.ok()) return Error(said);
    std::this_thread::sleep_for(kBetween);
  }
  return error;
}

}  // namespace

bool Trainer::ServerIsGone() const {
  const TrainingServers& servers = options_.servers;
  if (!servers.any() || servers.patience.count() == 0) return false;
  if (!options_.StopReason().empty()) return false;
  Collective* const workers = options_.session.collective.get();
  // Nobody else says so of workers.
  const bool told =
      workers != nullptr && workers->Check().code() == Code::kCancelled;
  const Status lost = servers.cluster->Lost();
  if (lost.ok()) return told;
  if (workers != nullptr) {
    workers->Leave(Status(Code::kCancelled, lost.message()));
  }
  return true;
}

bool Trainer::OthersAreGone(const Error& error) const {
  return Workers(options_.session.collective.get()).AreGone(error);
}

void Trainer::Regroup() {
  const Status why(Code::kCancelled, "others wait to come into the job");
  options_.session.collective->Leave(why);
  throw Error(why);
}

void Trainer::Keep(TrainingRun& run, const TrainingResult& result) {
  examples_before_ += run.examples();
  seconds_before_ += run.training_seconds();
  if (run.workers().elastic()) {
    run.RenewSnapshot();
    const std::vector<Hook*> hooks = AddedHooks();
    KeepStates({hooks.begin(), hooks.end()}, run);
  } else if (!options_.log_dir.empty() || run.snapshot() == nullptr) {
    return;
  }
  const auto kept = std::make_shared<Checkpoint>(*run.snapshot());
  const int64_t step = kept->state.step;
  const bool evaluated =
      (result.evaluation && result.evaluation->step == step) ||
      (run.evaluated() && run.examples() == 0) ||
      (kept_ != nullptr && kept_->state.step == step && kept_->state.metric);
  if (evaluated) kept->state.metric = 0;  // whatever it was
  kept_ = kept;
}

void Trainer::AwaitOthers() {
  try {
    AwaitServers(options_.servers, options_.stop, options_.reporter);
    Collective* const workers = options_.session.collective.get();
    const int64_t done = kept_ == nullptr ? -1 : kept_->state.step;
    if (workers != nullptr) ThrowIfError(workers->JoinAgain(done));
  } catch (const Error& error) {
    SaveKept();
    throw WithLastCheckpoint(error);
  }
  TakePlace();
}

// Of several one has the folder first, and they have the same.
void Trainer::SaveKept() const {
  const Collective* const workers = options_.session.collective.get();
  const bool elastic = workers != nullptr && workers->elastic();
  if (!elastic || kept_ == nullptr || log_dir_.empty()) return;
  if (kept_->state.step == 0) return;  // there is nothing to lose
  CheckpointManager::Options manager;
  manager.keep = options_.keep_checkpoints;
  Result<CheckpointManager> saves = CheckpointManager::Open(log_dir_, manager);
  if (!saves.ok()) return;
  const Result<std::vector<int64_t>> steps = saves->Steps();
  if (steps.ok() && !steps->empty() && steps->back() >= kept_->state.step) {
    return;
  }
  Checkpoint checkpoint = *kept_;
  checkpoint.state.metric.reset();
  const std::vector<Hook*> hooks = AddedHooks();
  SaveHooks({hooks.begin(), hooks.end()}, &checkpoint.state);
  // Where that fails, what is said next names an older one.
  (void)saves->Save(checkpoint).ok();
}

Error Trainer::WithLastCheckpoint(const Error& thrown) const {
  const Error error = AsWorkersSay(options_, thrown);
  // Of an elastic job each knows it.
  const bool elastic = Workers(options_.session.collective.get()).elastic();
  const std::string& folder = elastic ? log_dir_ : options_.log_dir;
  if (folder.empty()) return error;
  const auto saved = CheckpointManager::ForReading(folder);
  const Result<std::vector<int64_t>> steps = saved.Steps();
  if (!steps.ok() || steps->empty()) return error;
  return {error.code(),
          fmt::format("{}; what was saved last is {}, from which the same "
                      "command goes on",
                      error.what(), saved.PathOf(steps->back()))};
}

}  // namespace sluice
