#include "models/nn/losses.h"

#include <fmt/format.h>

#include <string_view>

#include "graph/ops/array.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/reduce.h"
#include "models/nn/class_weights.h"

namespace sluice::losses {
namespace {

Output MeanAt(const Operand& of, const Output& x) {
  return Mean(Operand(x, of.location()));
}

// For messages, `loss` is what the caller called.
void CheckOnePerClass(std::string_view loss, const std::vector<double>& weights,
                      const Operand& logits) {
  const int64_t classes = logits.tensor().shape()[-1];
  const auto count = static_cast<int64_t>(weights.size());
  if (classes == kUnknown || classes == count) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} class weights for the {} classes of "
                          "'{}' ({})",
                          loss, count, classes, logits.tensor().name(),
                          FormatLocation(logits.location())));
}

Output CastTo(DType dtype, const Output& x) {
  return x.dtype() == dtype ? x : Cast(x, dtype);
}

}  // namespace

Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options,
                                 const std::vector<double>& class_weights) {
  const Output losses =
      sluice::SparseSoftmaxCrossEntropy(logits, labels, options);
  if (class_weights.empty()) return MeanAt(logits, losses);
  CheckOnePerClass("SparseSoftmaxCrossEntropy", class_weights, logits);
  LocationScope location(logits.graph(), logits.location());
  const Output weights = ClassWeightsOf(labels, class_weights);
  return WeightedMean(losses, CastTo(losses.dtype(), weights));
}

Output MixedSoftmaxCrossEntropy(Operand logits, const MixedLabels& labels,
                                const CrossEntropyOptions& options,
                                const std::vector<double>& class_weights) {
  LocationScope location(logits.graph(), logits.location());
  const auto losses_for = [&](const Output& of) {
    return sluice::SparseSoftmaxCrossEntropy(logits, of, options);
  };
  const Output losses = losses_for(labels.label);
  const Output others = losses_for(labels.other);
  const Output share = CastTo(losses.dtype(), labels.share);
  if (class_weights.empty()) {
    return Mean((1 - share) * losses + share * others);
  }
  CheckOnePerClass("MixedSoftmaxCrossEntropy", class_weights, logits);
  const auto weights_for = [&](const Output& of) {
    return CastTo(losses.dtype(), ClassWeightsOf(of, class_weights));
  };
  return WeightedMean(Concat({losses, others}, 0),
                      Concat({(1 - share) * weights_for(labels.label),
                              share * weights_for(labels.other)},
                             0));
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

Output WeightedMean(Operand values, Operand weights) {
  const Shape& of = values.tensor().shape();
  const Shape& by = weights.tensor().shape();
  if (!Compatible(of, by)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("WeightedMean: wanted a weight for each value, got "
                            "weights={} values={} ({})",
                            by.ToString(), of.ToString(),
                            FormatLocation(values.location())));
  }
  LocationScope location(values.graph(), values.location());
  const Output total = Sum(weights);
  // Without any weight the numerator is 0 as it is. The divisor, not the
  // quotient, is selected, since 0 / 0 would leave NaN in the gradient.
  return Sum(values * weights) / Select(Equal(total, 0), 1, total);
}

Output ClassWeightsOf(Operand labels, const std::vector<double>& weights) {
  CheckClassWeights(weights);
  LocationScope location(labels.graph(), labels.location());
  const std::vector<float> rounded(weights.begin(), weights.end());
  const Output table =
      labels.graph().Constant(Tensor::Vector<float>(rounded), "class_weights");
  return Gather(table, labels);
}

}  // namespace sluice::losses
