// How a training that has lost a parameter server comes to begin again, and
// what is left of one that does not.
#include <fmt/format.h>

#include <memory>

#include "engine/runtime/collective.h"
#include "graph/session/cluster.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/meetings.h"
#include "models/train/trainer.h"

namespace sluice {

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

void Trainer::Keep(const TrainingRun& run, const TrainingResult& result) {
  examples_before_ += run.examples();
  seconds_before_ += run.training_seconds();
  if (!options_.log_dir.empty() || run.snapshot() == nullptr) return;
  const auto kept = std::make_shared<Checkpoint>(*run.snapshot());
  const int64_t step = kept->state.step;
  const bool evaluated =
      (result.evaluation && result.evaluation->step == step) ||
      (kept_ != nullptr && kept_->state.step == step && kept_->state.metric);
  if (evaluated) kept->state.metric = 0;  // whatever it was
  kept_ = kept;
}

void Trainer::AwaitOthers() {
  try {
    AwaitServers(options_.servers, options_.stop, options_.reporter);
    Collective* const workers = options_.session.collective.get();
    if (workers != nullptr) ThrowIfError(workers->JoinAgain());
  } catch (const Error& error) {
    throw WithLastCheckpoint(error);
  }
}

Error Trainer::WithLastCheckpoint(const Error& error) const {
  if (options_.log_dir.empty()) return error;
  const auto saved = CheckpointManager::ForReading(options_.log_dir);
  const Result<std::vector<int64_t>> steps = saved.Steps();
  if (!steps.ok() || steps->empty()) return error;
  return {error.code(),
          fmt::format("{}; what was saved last is {}, from which the same "
                      "command goes on",
                      error.what(), saved.PathOf(steps->back()))};
}

}  // namespace sluice
