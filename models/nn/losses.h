// Losses as scalars, ready for Minimize: means over the batch of the ops in
// graph/ops/loss.h.
#ifndef SLUICE_MODELS_NN_LOSSES_H_
#define SLUICE_MODELS_NN_LOSSES_H_

#include "graph/graph.h"
#include "graph/ops/loss.h"

namespace sluice::losses {

// Of logits [n, classes] and int32 or int64 labels [n].
Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options = {});
// Of logits and probabilities of one shape [n, classes].
Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options = {});
// Of logits and labels in [0, 1] of one shape.
Output SigmoidCrossEntropy(Operand logits, Operand labels);

// d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere, d being the
// difference (Huber, 1964).
Output Huber(Operand predictions, Operand targets, double delta = 1);

}  // namespace sluice::losses

#endif  // SLUICE_MODELS_NN_LOSSES_H_
