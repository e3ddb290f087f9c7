// Losses as scalars, ready for Minimize: means over the batch of the ops in
// graph/ops/loss.h.
#ifndef SLUICE_MODELS_NN_LOSSES_H_
#define SLUICE_MODELS_NN_LOSSES_H_

#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/loss.h"
#include "models/nn/classifier.h"

namespace SLUICE_PUBLIC sluice {
namespace losses {

// The loss of logits [n, classes] and int32 or int64 labels [n]. With class
// weights, one for each class, the WeightedMean of the examples' losses by
// ClassWeightsOf the labels. That is PyTorch's CrossEntropyLoss(weight=...)
// unless labels are smoothed: here the whole loss of an example has the weight
// of its label; in PyTorch each class that the label is smoothed over brings
// its own. The mean of several batches' losses is not that of all their
// examples, since batches differ in weight.
Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options = {},
                                 const std::vector<double>& class_weights = {});
// Labels of examples that are mixtures of two (io/images/mix.h), all [n].
// `share`, floating point, is the part of the example of label `other`, 0 to 1.
struct MixedLabels {
  Output label, other;
  Output share;
};
// SoftmaxCrossEntropy with the probabilities (1 - share) * onehot(label) +
// share * onehot(other), without making them. With class weights the
// WeightedMean over both losses of each example, each by the class's weight
// times its part of the example: mixtures with nothing have the loss above.
Output MixedSoftmaxCrossEntropy(Operand logits, const MixedLabels& labels,
                                const CrossEntropyOptions& options = {},
                                const std::vector<double>& class_weights = {});
// The two losses above for the logits of a classifier, which may be cut over
// the workers.
Output SparseSoftmaxCrossEntropy(const layers::Classifier& classifier,
                                 Operand labels,
                                 const CrossEntropyOptions& options = {},
                                 const std::vector<double>& class_weights = {});
Output MixedSoftmaxCrossEntropy(const layers::Classifier& classifier,
                                const MixedLabels& labels,
                                const CrossEntropyOptions& options = {},
                                const std::vector<double>& class_weights = {});
// The loss of logits and of probabilities of the same shape [n, classes].
Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options = {});
// The loss of logits and of labels in [0, 1] of the same shape.
Output SigmoidCrossEntropy(Operand logits, Operand labels);

// d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere, d being the
// difference (Huber, 1964); of CheckTargets' shapes. Throws
// Error(kInvalidArgument) unless delta is above 0.
Output Huber(Operand predictions, Operand targets, double delta = 1);

// sum(values * weights) / sum(weights), a scalar; 0, and with it the gradient
// of the values, where all weights are 0. Floating point of one dtype and
// shape; values finite, weights not negative.
Output WeightedMean(Operand values, Operand weights);

// float32 [n]: for each int32 or int64 label [n] the weight of its class. A
// label outside [0, classes) fails the step. Throws Error(kInvalidArgument) for
// invalid weights (CheckClassWeights).
Output ClassWeightsOf(Operand labels, const std::vector<double>& weights);

}  // namespace losses
}  // namespace sluice

#endif  // SLUICE_MODELS_NN_LOSSES_H_
