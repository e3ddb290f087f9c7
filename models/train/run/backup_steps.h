// Training steps on parameter servers that do not wait for all workers
// (TrainingServers::backups): each puts its gradients beside the variables, and
// one of the admitted updates by the mean of those that are. Internal to
// models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_BACKUP_STEPS_H_
#define SLUICE_MODELS_TRAIN_RUN_BACKUP_STEPS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dist/servers/admission.h"
#include "graph/session/session.h"
#include "models/train/run/batch_step.h"
#include "models/train/workers/meetings.h"
#include "models/train/workers/workers.h"

namespace sluice {

// One thread. Must not outlive what it is given.
class BackupSteps {
 public:
  // Of a graph whose `train` is with AllReduceOptions::contributed.
  // The input's batches have at most `batch_size` examples.
  BackupSteps(const Graph& graph, Session& session, const Workers& workers,
              const TrainingServers& servers, const Operation& train,
              int64_t batch_size);

  // Before the first step: `era` as of Meetings.
  void Begin(int64_t era);

  struct Done {
    // Of this worker's share; empty: there was none, or the step was over
    // before it began with it.
    std::span<const Tensor> values = {};
    // Of the step, and what is known by now of all.
    dist::Admission::Answer over = {};
  };
  // The step with that number, which all steps before it go with. `gradients`
  // first fetches the loss and the learning rate, and has ContributionOf this
  // worker for its target; `weight` is what the share counts for. Returns when
  // the step has been applied. Throws Error.
  Done Run(int64_t step, BatchStep& gradients, const Example& share,
           double weight);

  // Seconds in Run that were not for gradients and updates.
  double waited() const { return waited_; }

 private:
  dist::Admission::Answer Ask(dist::Admission::Question question);
  std::string WaitsFor(const std::vector<int64_t>& awaited) const;
  void Apply(const std::vector<int64_t>& admitted, int64_t whole_rows);
  int64_t FullRowsOf(const Example& share) const;

  Session& session_;
  const Workers& workers_;
  const TrainingServers& servers_;
  const int64_t batch_size_;
  PreparedStep update_;
  std::vector<Tensor> feeds_;  // of that: who is admitted, and the weight
  int64_t era_ = 0;
  int64_t round_ = 0;  // steps since Begin
  BatchStep::Pending last_;
  double waited_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_BACKUP_STEPS_H_
