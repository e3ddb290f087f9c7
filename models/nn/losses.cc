#include "models/nn/losses.h"

#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"

namespace sluice::losses {
namespace {

Output MeanAt(const Operand& of, const Output& x) {
  return Mean(Operand(x, of.location()));
}

}  // namespace

Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options) {
  return MeanAt(logits,
                sluice::SparseSoftmaxCrossEntropy(logits, labels, options));
}

Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options) {
  return MeanAt(logits, sluice::SoftmaxCrossEntropy(logits, labels, options));
}

Output SigmoidCrossEntropy(Operand logits, Operand labels) {
  return MeanAt(logits, sluice::SigmoidCrossEntropy(logits, labels));
}

Output Huber(Operand predictions, Operand targets, double delta) {
  LocationScope location(predictions.graph(), predictions.location());
  const Output distance = Abs(predictions - targets);
  const Output near = Minimum(distance, delta);
  return Mean(near * (distance - 0.5 * near));
}

}  // namespace sluice::losses
