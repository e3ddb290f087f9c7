// The processes that train one model together, as the trainer sees them: what
// they share out, what they decide together. With one of them nothing is
// exchanged.
//
// What is shared out are leaves, one a worker; or, with virtual workers, as
// many as there are of these, of which a worker has some (LeavesOf); or one a
// device, where one worker has several (MirroredDevices). Where workers have
// but a stage of the model each (PipelineStages) it is replicas that have them.
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
#include "models/train/workers/reporter.h"

namespace SLUICE_PUBLIC sluice {

// One thread. What says that it waits for the others is called by all workers,
// in the same order; it throws Error where one of them is gone or calls
// something else.
class Workers {
 public:
  // Null: there is one. Not owned. 0: there are no virtual ones, and no
  // mirrored devices. Throws Error(kInvalidArgument) where there are fewer
  // virtual ones than workers or devices, or no power of two, or devices of
  // several workers; or where stages have no virtual ones, or do not go into
  // the number of workers.
  explicit Workers(Collective* collective, int64_t virtual_workers = 0,
                   size_t devices = 0, int stages = 1);

  int rank() const { return several() ? collective_->rank() : 0; }
  int size() const { return several() ? collective_->size() : 1; }
  bool several() const {
    return collective_ != nullptr && collective_->size() > 1;
  }
  // Whether this one owns the folder, and speaks to people.
  bool leads() const { return rank() == 0; }
  // Whether others may go and come on the way, also where there is one now.
  bool elastic() const {
    return collective_ != nullptr && collective_->elastic();
  }
  // Whether that is an error because of others, with whom this one can go on:
  // it has to be elastic for that.
  bool AreGone(const Error& error) const;
  // Whether a training is to be one that several can have: what has no mean, or
  // cannot be merged, is no part of it. Of an elastic job also while there is
  // one, since others may come in.
  bool as_several() const { return several() || elastic() || in_leaves(); }
  // Of rank 0: whether some wait to come in.
  bool called() const { return elastic() && collective_->called(); }
  // "rank 1 of 4"
  std::string Name(int rank) const;

  // Collective::seconds, those between replicas included.
  double seconds() const;

  // 0: none.
  int64_t virtual_workers() const { return virtual_workers_; }
  int64_t leaves() const {
    if (virtual_workers_ > 0) return virtual_workers_;
    return devices_ > 0 ? devices_ : size();
  }
  // Whether they are not the workers themselves.
  bool in_leaves() const { return virtual_workers_ > 0 || devices_ > 0; }
  // This worker's, or its replica's.
  LeafRange mine() const { return LeavesOf(leaves(), replica(), replicas()); }
  // Of the model: as many as there are workers, unless it is cut into stages.
  int replicas() const { return size() / stages_; }
  int replica() const { return rank() / stages_; }
  int stages() const { return stages_; }
  // This worker's, and who has one of replica 0.
  int stage() const { return stages_ - 1 - rank() % stages_; }
  int FirstWith(int stage) const { return stages_ - 1 - stage; }
  // The same, each with the whole model.
  Workers WithWholeModels() const {
    return Workers(collective_, virtual_workers_,
                   static_cast<size_t>(devices_));
  }
  // What each of them gets of a dataset.
  std::vector<Dataset> SharesOf(const Dataset& whole) const;
  // How many of a batch of n the first of them gets (Dataset::Share).
  int64_t ShareOf(int64_t n) const;

  // The `each` bytes of all, one behind another by rank. Waits.
  void Gather(std::string_view what, const void* mine, int64_t each,
              void* all) const;
  // The same of values of a type without pointers, by rank.
  template <typename T>
  std::vector<T> GatherEach(std::string_view what, const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    Gather(what, &mine, sizeof(T), all.data());
    return all;
  }
  // The texts of all, by rank. Waits.
  std::vector<std::string> Gather(std::string_view what,
                                  std::string_view mine) const;
  // The same of long ones, of up to 16 GiB, for rank 0. They come in pieces of
  // `at_once` bytes, 1 or more, the same on all; the others, who get nothing,
  // hold no more than one of these. Waits.
  std::vector<std::string> GatherOnFirst(std::string_view what,
                                         std::string_view mine,
                                         int64_t at_once = 16 << 20) const;
  // Throws Error(kFailedPrecondition) unless `text`, which is `what` of the
  // training, is the same on all of them. Waits.
  void RequireSame(std::string_view what, std::string_view text) const;
  // Of `mine`, which are those `metrics` of this worker's leaves, what all have
  // seen; the same bits on all of them, and for any number of workers of as
  // many leaves. Waits.
  MetricsOverSet Merged(const NamedMetrics& metrics,
                        std::vector<MetricsOverSet> mine) const;
  // Throws Error naming the metric where one of them cannot be merged and has
  // to be.
  void RequireMergeable(const NamedMetrics& metrics) const;
  // The bytes of that rank; of rank 0. Waits.
  void TakeFrom(int rank, std::string_view what, void* data,
                int64_t bytes) const;
  void TakeFromFirst(std::string_view what, void* data, int64_t bytes) const;
  void TakeFromFirst(std::string_view what, std::string* text) const;
  // Makes `sum`, which may be one of the `sums`, that of all virtual workers
  // (Collective::SumTree). Waits for those that have the same stage.
  void SumTree(std::string_view what, std::span<const void* const> sums,
               Tensor* sum) const;
  // Throws Error where one is known to be gone. Waits for nothing.
  void Check() const {
    if (several()) ThrowIfError(collective_->Check());
  }
  // Waits until all are here.
  void Barrier(std::string_view what) const;

 private:
  Collective* collective_;
  int64_t virtual_workers_;
  int64_t devices_;
  int stages_;
};

// Makes a checkpoint rank 0's: its state, and its tensors, of which all workers
// have those of the same names and shapes. Waits.
void TakeFromFirst(const Workers& workers, Checkpoint* checkpoint);

// What all workers decide together, at the same place. Each call waits for the
// others.
class Agreement final : public StopToken {
 public:
  // Neither is owned; without `mine` this worker has no reason of its own.
  Agreement(const Workers& workers, const StopToken* mine)
      : workers_(workers), mine_(mine) {}

  // The token's of the first worker that has one, from then on. Once it is not
  // empty no call waits for anybody: what all have agreed on is to be done by
  // all from where they agreed, with no step between.
  std::string Reason() const override;
  const std::string& agreed() const { return agreed_; }  // asks nobody

  struct Decision {
    std::string stop;                     // why to end; empty: go on
    bool measure = false;                 // the next step
    bool meet = false;                    // before it
    bool regroup = false;                 // before it: some wait to come in
    std::vector<WorkerTimes> times = {};  // of all, by rank
  };
  // Ends where a token or `stop` of any worker says so; whether to measure is
  // what rank 0 `measures`, and to meet what it `wants`; it is asked whether
  // some wait. All hear the `times` of each.
  Decision Decide(const std::string& stop, bool measures, bool wants = false,
                  const WorkerTimes& times = {}) const;

 private:
  const Workers& workers_;
  const StopToken* mine_;
  mutable std::string agreed_;  // Reason
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_WORKERS_H_
