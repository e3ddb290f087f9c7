// Metrics: figures of a whole set of examples, collected batch by batch, the
// remainder batch included. Most are means of one value per example; others
// keep what they need over the set.
#ifndef SLUICE_MODELS_NN_METRICS_H_
#define SLUICE_MODELS_NN_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// The state of a metric: what it has seen of one set.
class MetricState {
 public:
  virtual ~MetricState() = default;
  // Adds the values of the metric's tensors for a batch of `examples` examples,
  // which are overwritten afterwards. Throws Error for values that make no
  // sense.
  virtual void Add(std::span<const Tensor> values, int64_t examples) = 0;
  // The metric of all that was added; NaN if it is not defined, as when nothing
  // was.
  virtual double Value() const = 0;
  // The state as numbers, for Merge. The defaults of State and Merge throw
  // Error(kUnimplemented): such a metric is for one worker.
  virtual std::vector<double> State() const;
  // Adds the State of the same metric on another worker, as though its values
  // had been added here. Throws Error(kInvalidArgument), changing nothing, for
  // numbers that State cannot have returned.
  virtual void Merge(std::span<const double> state);
};

class Metric {
 public:
  // The mean over examples of floating-point `values`: one per example, or a
  // scalar that is already the batch's mean.
  Metric(const Output& values);  // NOLINT: implicit
  // A metric whose states, which `start` makes, are given the values of
  // `tensors` for every batch. Both constructors throw Error for an empty
  // tensor, this one for an empty `start`, too.
  using Start = std::function<std::unique_ptr<MetricState>()>;
  Metric(std::vector<Output> tensors, Start start);

  const std::vector<Output>& tensors() const { return tensors_; }
  // A state that has seen nothing. Throws Error if `start` made none.
  std::unique_ptr<MetricState> Begin() const;

 private:
  std::vector<Output> tensors_;
  Start start_;
};

using NamedMetrics = std::vector<std::pair<std::string, Metric>>;

// --- Means over examples -----------------------------------------------------

// float32 [n]: 1 where the largest of logits[n, classes] is the one of the
// int32 or int64 label[n], else 0, as where one is NaN.
Output Accuracy(Operand logits, Operand labels);

// float32 [n]: 1 where fewer than k classes are rated higher than the label.
Output TopKAccuracy(Operand logits, Operand labels, int64_t k);

// [n]: |prediction - target|, averaged over the other dimensions; of
// CheckTargets' shapes.
Output AbsoluteError(Operand predictions, Operand targets);

// --- Metrics with a state ----------------------------------------------------

// The mean over classes of F1 = 2 tp / (2 tp + fp + fn), of the largest of
// logits[n, classes], none where one is NaN, and the int32 or int64 label[n]:
// the "macro" average, as scikit-learn's. Classes that are neither predicted
// nor labels of the set do not count. Throws Error if the number of classes is
// not known; a label that is no class is an error of the evaluation.
Metric F1(Operand logits, Operand labels);

// The area under the receiver operating characteristic: how probable it is that
// an example of label 1 has a higher score than one of label 0, equal scores
// counting half. Floating scores and labels (0 and 1 of any dtype) of as many
// elements. NaN for a set without one of the two, or with a score that is NaN.
// Keeps eight bytes for each example; of several workers each tells the others
// its own, of which there may be 2,100 million.
Metric AreaUnderCurve(Operand scores, Operand labels);

// exp of the mean of all values of `cross_entropy`, in nats: [n], or of every
// position, [n, positions].
Metric Perplexity(Operand cross_entropy);

// --- Collecting --------------------------------------------------------------

// The metrics of one set. Borrows them.
class MetricsOverSet {
 public:
  // Throws Error naming a metric that begins with no state.
  explicit MetricsOverSet(const NamedMetrics& metrics);
  // Adds the values of TensorsOf(metrics) for a batch.
  void Add(std::span<const Tensor> values, int64_t examples);
  std::vector<std::pair<std::string, double>> Values() const;
  // State is what was added, as numbers: for each metric how many follow, then
  // those of its state. Merge adds the State of another worker, which has the
  // same metrics in the same order. Workers that merge the same states in the
  // same order into a fresh object get the same values, to the bit. Both throw
  // Error, changing nothing, naming a metric that cannot be merged or whose
  // numbers make no sense.
  std::vector<double> State() const;
  void Merge(std::span<const double> state);

 private:
  const NamedMetrics& metrics_;
  std::vector<std::unique_ptr<MetricState>> states_;  // parallel
};

// The tensors to be fetched for the metrics, in order.
std::vector<Output> TensorsOf(const NamedMetrics& metrics);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_METRICS_H_
