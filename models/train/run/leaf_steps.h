// A training step in two halves, cut at its all-reduces: gradients, once for
// each leaf (Workers), and one update. What goes into the all-reduces is added
// up in the order of a tree over all leaves, so that the number of workers
// changes no bit.
#ifndef SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_
#define SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/subtrees.h"
#include "graph/session/session.h"
#include "models/train/run/batch_step.h"
#include "models/train/workers/workers.h"

namespace sluice {

// One thread. Must not outlive what it is given.
class LeafSteps {
 public:
  struct Options {
    Output loss;  // an AllReduce of the leaves' losses
    Output learning_rate;
    Operation train;               // with AllReduceOptions::in_two
    std::vector<Output> measured;  // of each leaf, on demand
  };
  // Throws Error(kUnimplemented) where the step updates something between its
  // gradients that has no mean.
  LeafSteps(const Graph& graph, Session& session, const Features& features,
            const Workers& workers, Options options);

  // BatchStep::Prepare of the gradients.
  StepInfo Prepare(int64_t examples);

  // What `measured` is of the leaf number i of this worker's, as long as the
  // call lasts.
  using OnLeaf = std::function<void(size_t i, std::span<const Tensor> values)>;
  // Trains on the shares of this worker's leaves, of which some may be without
  // examples: those count for nothing and are not computed. With `measure`, not
  // null, calls it for the others. Waits for the other workers. Throws Error.
  void Run(std::span<const Example> shares, const OnLeaf& measure);

  // Of the last step, of all workers.
  double loss() const { return loss_; }
  double learning_rate() const { return rates_[0].At(0); }
  // Whether a node of that name is computed by leaves, rather than of their
  // sums.
  bool ByLeaf(const std::string& node) const;

 private:
  // The values of a leaf without examples.
  std::span<const Tensor> Nothing();
  void Append(int64_t leaf, std::span<const Tensor> values);
  void Reduce();

  const Graph& graph_;
  Session& session_;
  const Workers& workers_;
  const Options options_;
  const std::vector<const Node*> reductions_;
  const std::set<const Node*> by_leaf_;
  std::vector<Output> statistics_;  // that leaves write
  std::vector<Tensor> before_;      // their values; parallel
  BatchStep gradients_;             // fetches what is reduced
  BatchStep measuring_;             // and what is measured
  PreparedStep update_;

  SubtreeRow row_;
  std::vector<std::vector<Tensor>> slots_;  // of the row, and more
  std::vector<Tensor> nothing_;             // of a leaf without examples
  std::vector<Tensor> rates_;
  double loss_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_LEAF_STEPS_H_
