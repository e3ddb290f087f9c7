// What leaves (Workers) compute of a training step, on one device.
#ifndef SLUICE_MODELS_TRAIN_RUN_LEAF_GRADIENTS_H_
#define SLUICE_MODELS_TRAIN_RUN_LEAF_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "graph/session/session.h"
#include "models/train/run/batch_step.h"
#include "models/train/run/leaf_sums.h"

namespace sluice {

// One thread at a time. Must not outlive what it is given.
class LeafGradients {
 public:
  struct Options {
    std::vector<Output> reduced;     // what is added up over the leaves
    std::vector<Output> measured;    // of each leaf, on demand
    std::vector<Output> statistics;  // variables that these write
    int64_t leaves = 1;              // of all devices and processes
    // Of what is reduced, that which comes to be here, and is added up; the
    // rest has another stage.
    std::vector<size_t> here;
    // Leaves that may be under way: more than one only where the session has as
    // many runs, and nothing is written.
    int at_once = 1;
  };
  // Of the session's device, whose variables are those of the step.
  LeafGradients(Session& session, const Features& features, Options options);

  // BatchStep::Prepare, of so many devices of the same memory.
  StepInfo Prepare(int64_t examples, int beside, int64_t batch);
  StepInfo info() const { return gradients_.info(); }

  // What `measured` is of the leaf whose share is number i.
  using OnLeaf = std::function<void(size_t i, std::span<const Tensor> values)>;
  // Of the leaves from `leaf` on: one after the other, or some at once, each
  // from the same statistics, which are left as they were. Those without
  // examples are not computed and add nothing. With `measure`, not null, calls
  // it for the others, in their order. Throws Error.
  void Run(int64_t leaf, std::span<const Example> shares,
           const OnLeaf& measure);

  // Of the last run.
  LeafSums& sums() { return sums_; }
  // For how long runs were under way so far, and this process computed in them
  // rather than wait for other stages.
  struct Seconds {
    double all = 0, busy = 0;
  };
  const Seconds& seconds() const { return seconds_; }

 private:
  struct UnderWay {
    int64_t leaf = 0;
    size_t share = 0;
    BatchStep::Pending run;  // invalid: of a leaf without examples
  };
  void Collect(UnderWay leaf, const OnLeaf& measure);
  // The values of a leaf without examples.
  std::span<const Tensor> Nothing();
  void Append(int64_t leaf, std::span<const Tensor> values);

  Session& session_;
  const Options options_;
  std::vector<Tensor> before_;  // of the statistics
  BatchStep gradients_;         // fetches what is reduced
  BatchStep measuring_;         // and what is measured
  LeafSums sums_;
  std::vector<Tensor> nothing_;  // of a leaf without examples
  Seconds seconds_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_LEAF_GRADIENTS_H_
