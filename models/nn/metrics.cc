#include "models/nn/metrics.h"

#include <limits>

#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/reduce.h"

namespace sluice {

Output Accuracy(Operand logits, Operand labels) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "accuracy");
  const Output label = labels.tensor().dtype() == DType::kInt64
                           ? labels.output()
                           : Cast(labels, DType::kInt64);
  return Cast(Equal(ArgMax(logits), label), DType::kFloat32);
}

Output TopKAccuracy(Operand logits, Operand labels, int64_t k) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "top_k_accuracy");
  return Cast(InTopK(logits, labels, k), DType::kFloat32);
}

Output AbsoluteError(Operand predictions, Operand targets) {
  LocationScope location(predictions.graph(), predictions.location());
  NameScope names(predictions.graph(), "absolute_error");
  const Output error = Abs(predictions - targets);
  Axes others;
  for (int axis = 1; axis < error.shape().rank(); ++axis) {
    others.push_back(axis);
  }
  return others.empty() ? error : Mean(error, others);
}

void MeanOverSet::Add(const Tensor& values, int64_t examples) {
  if (values.shape().scalar()) {
    sum_ += values.At(0) * static_cast<double>(examples);
    count_ += examples;
    return;
  }
  for (int64_t i = 0; i < values.elements(); ++i) sum_ += values.At(i);
  count_ += values.elements();
}

double MeanOverSet::mean() const {
  return count_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                     : sum_ / static_cast<double>(count_);
}

}  // namespace sluice
