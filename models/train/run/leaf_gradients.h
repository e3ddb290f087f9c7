// The part of a training step that leaves (Workers) compute, on one device.
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
    // Indices into `reduced` of the outputs that are computed and added up on
    // this stage; other stages have the rest.
    std::vector<size_t> here;
    // How many leaves may be under way: more than one only if the session has
    // as many concurrent runs, and nothing is written.
    int at_once = 1;
  };
  // For the device of `session`, which has the step's variables.
  LeafGradients(Session& session, const Features& features, Options options);

  // BatchStep::Prepare, with `beside` devices that share the memory.
  StepInfo Prepare(int64_t examples, int beside, int64_t batch);
  StepInfo info() const { return gradients_.info(); }

  // Gets the values of `measured` for the leaf of share number i.
  using OnLeaf = std::function<void(size_t i, std::span<const Tensor> values)>;
  // Computes the leaves from `leaf` on, one after the other or some at once,
  // each from the same statistics, which are left as they were. Leaves without
  // examples are not computed and add nothing; `measure`, unless null, is
  // called for the others, in their order. Throws Error.
  void Run(int64_t leaf, std::span<const Example> shares,
           const OnLeaf& measure);

  // The sums of the last run.
  LeafSums& sums() { return sums_; }
  // Seconds during which runs were under way so far, and during which this
  // process computed in them rather than wait for other stages.
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
  // The zeros that a leaf without examples adds.
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
