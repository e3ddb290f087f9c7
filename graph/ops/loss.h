// Losses. Take their Mean over the batch.
#ifndef SLUICE_GRAPH_OPS_LOSS_H_
#define SLUICE_GRAPH_OPS_LOSS_H_

#include <string_view>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

struct CrossEntropyOptions {
  // Labels become (1 - s) * label + s / classes (Szegedy et al., 2016).
  double label_smoothing = 0;
};

// -sum(labels * log(softmax(logits))) over the last dimension, the classes:
// [..., classes] twice gives [...]. Labels have a gradient too.
Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options = {});

// SoftmaxCrossEntropy for one class per row: logits [..., classes] and int32 or
// int64 labels [...]. A label outside [0, classes) fails the step, named.
Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options = {});

// Element by element: max(x, 0) - x * label + log(1 + exp(-|x|)), which is
// -label * log(sigmoid(x)) - (1 - label) * log(1 - sigmoid(x)).
Output SigmoidCrossEntropy(Operand logits, Operand labels);

// The targets, to be compared with the predictions. Throws Error, in the name
// of `loss`, unless the two have one shape or the target is a single number,
// which is every prediction's. [n,1] and [n] would broadcast: each prediction
// would meet all targets. What is returned fails a step in which dimensions
// that were not known differ.
[[nodiscard]] Operand CheckTargets(std::string_view loss,
                                   const Operand& predictions,
                                   const Operand& targets);

// The mean of the squared differences, a scalar; of CheckTargets' shapes.
Output MeanSquaredError(Operand predictions, Operand targets);

// sum(x^2) / 2: a scalar.
Output L2Loss(Operand x);

// sum(x^2): a float64 scalar, finite where x is of another dtype and finite.
Output SquaredNorm(Operand x);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_LOSS_H_
