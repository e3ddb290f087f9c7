// The processes that train one model together, as the trainer sees them: how
// they share batches out, and what they decide together. A single worker
// exchanges nothing.
//
// A batch is shared out over leaves: one for each worker; or, with virtual
// workers, one for each of these, of which a worker has some (LeavesOf); or one
// for each device, if one worker has several (MirroredDevices). If workers have
// one stage of the model each (PipelineStages), replicas have the leaves.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_WORKERS_H_
#define SLUICE_MODELS_TRAIN_WORKERS_WORKERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dist/worker_times.h"
#include "engine/runtime/collective.h"
#include "engine/runtime/subtrees.h"
#include "engine/status.h"
#include "engine/visibility.h"
#include "io/checkpoints/checkpoint.h"
#include "io/pipeline/dataset.h"
#include "models/nn/metrics.h"
#include "models/run_context.h"
#include "models/train/workers/reporter.h"

namespace SLUICE_PUBLIC sluice {

// One thread. Functions whose comment says that they wait must be called by all
// workers, in the same order; they throw Error if a worker is gone or calls
// another function.
class Workers {
 public:
  // `collective` is not owned; null: there is one worker. Throws
  // Error(kInvalidArgument) if `virtual_workers` (0: none) is no power of two
  // or less than the workers or devices, if there are both `devices` (0: not
  // mirrored) and several workers, or if there are `stages` without virtual
  // workers or the number of workers is no multiple of them.
  explicit Workers(Collective* collective, int64_t virtual_workers = 0,
                   size_t devices = 0, int stages = 1);

  int rank() const { return several() ? collective_->rank() : 0; }
  int size() const { return several() ? collective_->size() : 1; }
  bool several() const {
    return collective_ != nullptr && collective_->size() > 1;
  }
  // Whether this worker owns the folder, and reports to people.
  bool leads() const { return rank() == 0; }
  // Whether other workers may leave and join meanwhile, also if there is only
  // one now.
  bool elastic() const {
    return collective_ != nullptr && collective_->elastic();
  }
  // Whether an error is due to other workers that are gone, and this worker can
  // go on without them, which requires an elastic job.
  bool AreGone(const Error& error) const;
  // Whether a training must be fit for several workers, without updates that
  // have no mean and metrics that cannot be merged. Also true for the only
  // worker of an elastic job, since others may join.
  bool as_several() const { return several() || elastic() || in_leaves(); }
  // On rank 0: whether new workers wait to join.
  bool called() const { return elastic() && collective_->called(); }
  // "rank 1 of 4"
  std::string Name(int rank) const;

  // Collective::seconds, including those of exchanges between replicas.
  double seconds() const;

  // 0: none.
  int64_t virtual_workers() const { return virtual_workers_; }
  int64_t leaves() const {
    if (virtual_workers_ > 0) return virtual_workers_;
    return devices_ > 0 ? devices_ : size();
  }
  // Whether leaves are something else than the workers.
  bool in_leaves() const { return virtual_workers_ > 0 || devices_ > 0; }
  // The leaves of this worker, or of its replica.
  LeafRange mine() const { return LeavesOf(leaves(), replica(), replicas()); }
  // The model's replicas: one for each worker, unless it is cut into stages.
  int replicas() const { return size() / stages_; }
  int replica() const { return rank() / stages_; }
  int stages() const { return stages_; }
  // This worker's stage, and the rank that has `stage` of replica 0.
  int stage() const { return stages_ - 1 - rank() % stages_; }
  int FirstWith(int stage) const { return stages_ - 1 - stage; }
  // The same workers as if each had the whole model.
  Workers WithWholeModels() const {
    return Workers(collective_, virtual_workers_,
                   static_cast<size_t>(devices_));
  }
  // `run` as the program's functions are to see it here, with the first of this
  // worker's leaves for its rank.
  RunContext WithRank(RunContext run) const;
  // The share of a dataset of each of this worker's leaves.
  std::vector<Dataset> SharesOf(const Dataset& whole) const;
  // How many examples of a batch of n the first of this worker's leaves gets
  // (Dataset::Share).
  int64_t ShareOf(int64_t n) const;

  // Gathers `each` bytes from every worker into `all`, by rank. Waits.
  void Gather(std::string_view what, const void* mine, int64_t each,
              void* all) const;
  // Gathers a value of a type without pointers from every worker, by rank.
  // Waits.
  template <typename T>
  std::vector<T> GatherEach(std::string_view what, const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    Gather(what, &mine, sizeof(T), all.data());
    return all;
  }
  // Gathers a text from every worker, by rank. Waits.
  std::vector<std::string> Gather(std::string_view what,
                                  std::string_view mine) const;
  // Gathers long texts, of up to 16 GiB, on rank 0; others get nothing. Texts
  // are sent in pieces of `at_once` bytes, 1 or more, the same on all workers,
  // of which the others hold no more than one. Waits.
  std::vector<std::string> GatherOnFirst(std::string_view what,
                                         std::string_view mine,
                                         int64_t at_once = 16 << 20) const;
  // Throws Error(kFailedPrecondition) unless `text`, which is `what` of the
  // training, is the same on all workers. Waits.
  void RequireSame(std::string_view what, std::string_view text) const;
  // Merges the metrics of all workers; `mine` are the `metrics` of this
  // worker's leaves. The result has the same bits on all workers, and for any
  // number of workers with the same number of leaves. Waits.
  MetricsOverSet Merged(const NamedMetrics& metrics,
                        std::vector<MetricsOverSet> mine) const;
  // Throws Error naming a metric that has to be merged and cannot be.
  void RequireMergeable(const NamedMetrics& metrics) const;
  // Copy the `bytes` bytes at `data`, or the text, of `rank` or of rank 0 to
  // all workers. Wait.
  void TakeFrom(int rank, std::string_view what, void* data,
                int64_t bytes) const;
  void TakeFromFirst(std::string_view what, void* data, int64_t bytes) const;
  void TakeFromFirst(std::string_view what, std::string* text) const;
  // Sums over all virtual workers into `sum` (Collective::SumTree), which may
  // be one of `sums`. Waits for the workers that have the same stage.
  void SumTree(std::string_view what, std::span<const void* const> sums,
               Tensor* sum) const;
  // Throws Error if a worker is known to be gone. Does not wait.
  void Check() const {
    if (several()) ThrowIfError(collective_->Check());
  }
  // Waits until all workers have called it.
  void Barrier(std::string_view what) const;

 private:
  Collective* collective_;
  int64_t virtual_workers_;
  int64_t devices_;
  int stages_;
};

// Replaces a checkpoint's state and tensors by those of rank 0. All workers
// must have tensors of the same names and shapes. Waits.
void TakeFromFirst(const Workers& workers, Checkpoint* checkpoint);

// Decisions that all workers make together, at the same point of the training.
// Each call waits for the others.
class Agreement final : public StopToken {
 public:
  // Neither is owned; without `mine` this worker has no reason of its own.
  Agreement(const Workers& workers, const StopToken* mine)
      : workers_(workers), mine_(mine) {}

  // The reason of the first worker whose token has one, from then on. Once it
  // is not empty no call waits: all workers must then end from where they
  // agreed, without another step.
  std::string Reason() const override;
  const std::string& agreed() const { return agreed_; }  // asks nobody

  struct Decision {
    std::string stop;                     // why to end; empty: go on
    bool measure = false;                 // the next step
    bool meet = false;                    // before it
    bool regroup = false;                 // before it: some wait to come in
    std::vector<WorkerTimes> times = {};  // of all, by rank
  };
  // Decides to stop if a token or `stop` of any worker says so, to measure if
  // rank 0 `measures`, to meet if rank 0 `wants`, and to regroup if rank 0
  // knows of new workers that wait to join. All workers get each one's `times`.
  Decision Decide(const std::string& stop, bool measures, bool wants = false,
                  const WorkerTimes& times = {}) const;

 private:
  const Workers& workers_;
  const StopToken* mine_;
  mutable std::string agreed_;  // Reason
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_WORKERS_H_
