// Metrics: tensors with one value per example. The trainer averages them over
// all examples of a set, the remainder batch included; Mean gives a batch's.
#ifndef SLUICE_MODELS_NN_METRICS_H_
#define SLUICE_MODELS_NN_METRICS_H_

#include <cstdint>

#include "graph/graph.h"

namespace sluice {

// float32 [n]: 1 where the largest of logits[n, classes] is the one of the
// int32 or int64 label[n], else 0.
Output Accuracy(Operand logits, Operand labels);

// float32 [n]: 1 where fewer than k classes are rated higher than the label.
Output TopKAccuracy(Operand logits, Operand labels, int64_t k);

// [n]: |prediction - target|, averaged over the other dimensions.
Output AbsoluteError(Operand predictions, Operand targets);

// The mean over examples of a metric, collected batch by batch. The sum is
// kept in double: exact for counts.
class MeanOverSet {
 public:
  // `values`: floating; one per example, or a scalar that is already the mean
  // over the batch's `examples`.
  void Add(const Tensor& values, int64_t examples);
  // NaN before the first.
  double mean() const;

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_METRICS_H_
