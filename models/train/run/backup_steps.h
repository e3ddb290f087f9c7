// Training steps on parameter servers that do not wait for all workers
// (TrainingServers::backups): each worker puts its gradients beside the
// variables, and one of the admitted workers updates by the mean of the
// admitted gradients. Internal to models/train.
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
  // `train` must be an operation with AllReduceOptions::contributed. The
  // input's batches have at most `batch_size` examples.
  BackupSteps(const Graph& graph, Session& session, const Workers& workers,
              const TrainingServers& servers, const Operation& train,
              int64_t batch_size);

  // To be called before the first step; `era` as for Meetings.
  void Begin(int64_t era);

  struct Done {
    // The fetched values of this worker's share; empty if there was none, or if
    // the step was over before this worker began.
    std::span<const Tensor> values = {};
    // The answer for the step, with what is known by now of all workers.
    dist::Admission::Answer over = {};
  };
  // Does step number `step`, after all steps before it. `gradients` must fetch
  // the loss and the learning rate first, and have ContributionOf this worker
  // as its target; `weight` is the weight of the share. Returns when the step
  // has been applied. Throws Error.
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
