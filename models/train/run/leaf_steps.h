// A training step in two halves, cut at its all-reduces: gradients, once for
// each leaf (Workers), and one update. The operands of the all-reduces are
// summed in the order of a tree over all leaves, so that the number of workers,
// and of each worker's devices, changes no bit.
#ifndef SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_
#define SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/session/session.h"
#include "models/train/run/leaf_gradients.h"
#include "models/train/run/mirrors.h"
#include "models/train/run/training_options.h"
#include "models/train/workers/workers.h"

namespace sluice {

// Throws Error(kUnimplemented) if anything that each leaf computes by itself
// depends on other workers, on their number or on this worker's rank, since it
// would change with the number of workers.
void RequireNoExchange(const std::vector<Output>& computed);

// One thread. Must not outlive what it is given.
class LeafSteps {
 public:
  struct Options {
    Output loss;  // an AllReduce of the leaves' losses
    Output learning_rate;
    Operation train;               // with AllReduceOptions::in_two
    std::vector<Output> measured;  // of each leaf, on demand
    // Whether variables are on parameter servers: leaves then write none, and
    // rank 0 updates for all.
    bool served = false;
    // The devices that leaves are computed on, and the options of their
    // sessions.
    MirroredDevices mirrored;
    SessionOptions session;
  };
  // The session, which has the variables, is Mirrors' home. `devices` are those
  // of `mirrored`, or if there are none the session's. Throws
  // Error(kUnimplemented) if the step updates something between its gradients
  // that has no mean, or sums over workers, and as RequireNoExchange does.
  LeafSteps(const Graph& graph, Session& session, const Features& features,
            const Workers& workers, DeviceThreads& devices, Options options);

  // BatchStep::Prepare of the gradients, for leaves of `examples` examples of a
  // `batch`.
  StepInfo Prepare(int64_t examples, int64_t batch);
  // BatchStep::info of the first device's gradients.
  StepInfo info() const { return gradients_[0]->info(); }

  // Gets the values of `measured` for this worker's leaf number i, valid during
  // the call. Called by the devices' threads, for several leaves at a time.
  using OnLeaf = LeafGradients::OnLeaf;
  // Trains on the shares of this worker's leaves. Shares without examples count
  // for nothing and are not computed; `measure`, unless null, is called for the
  // others. Waits for the other workers. Throws Error.
  void Run(std::span<const Example> shares, const OnLeaf& measure);

  // To be called when the session's variables have been written other than by
  // Run.
  void MarkWritten() { mirrors_->MarkWritten(); }
  // The devices' sessions and variables.
  const Mirrors& mirrors() const { return *mirrors_; }

  // The loss of the last step over all workers. With pipeline stages only the
  // workers whose stage has the loss know it.
  double loss() const { return loss_; }
  double learning_rate() const {
    return options_.served ? served_rate_ : updates_[0].rate[0].At(0);
  }
  // The seconds of the first device.
  const LeafGradients::Seconds& seconds() const {
    return gradients_[0]->seconds();
  }
  // Whether the node of that name is computed by each leaf rather than from the
  // leaves' sums.
  bool ByLeaf(const std::string& node) const;

 private:
  // Whether this worker computes the result of `reduction`.
  bool IsHere(const Node& reduction) const;
  bool updates() const { return !options_.served || workers_.leads(); }
  void Reduce();
  void Update(std::span<const Tensor> means);

  const Graph& graph_;
  const Workers& workers_;
  const Options options_;
  const std::vector<const Node*> reductions_;
  const std::unordered_set<const Node*> by_leaf_;
  std::vector<size_t> here_;  // of the reductions
  std::unique_ptr<Mirrors> mirrors_;
  std::vector<std::unique_ptr<LeafGradients>> gradients_;  // by device
  // The update of one session that updates.
  struct Updating {
    PreparedStep step;
    std::vector<Tensor> rate;
  };
  std::vector<Updating> updates_;
  double loss_ = 0, served_rate_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_
