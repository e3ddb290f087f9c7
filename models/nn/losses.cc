#include "models/nn/losses.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

#include "graph/ops/array.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "models/nn/class_weights.h"

namespace sluice::losses {
namespace {

Output MeanAt(const Operand& of, const Output& x) {
  return Mean(Operand(x, of.location()));
}

Output CastTo(DType dtype, const Output& x) {
  return x.dtype() == dtype ? x : Cast(x, dtype);
}

// What both kinds of labels are told apart by: the losses [n] of labels [n].
struct Classes {
  std::string name;
  int64_t count;
  std::function<Output(const Operand& labels)> losses;
};

Classes ClassesOf(const Operand& logits, const CrossEntropyOptions& options) {
  return {logits.tensor().name(), logits.tensor().shape()[-1],
          [logits, options](const Operand& labels) {
            return sluice::SparseSoftmaxCrossEntropy(logits, labels, options);
          }};
}

Classes ClassesOf(const layers::Classifier& classifier,
                  const CrossEntropyOptions& options) {
  return {"the classifier", classifier.classes(),
          [classifier, options](const Operand& labels) {
            return classifier.CrossEntropy(labels, options);
          }};
}

// For messages, `loss` is what the caller called.
void CheckOnePerClass(std::string_view loss, const std::vector<double>& weights,
                      const Classes& classes,
                      const std::source_location& where) {
  const auto count = static_cast<int64_t>(weights.size());
  if (classes.count == kUnknown || classes.count == count) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} class weights for the {} classes of "
                          "'{}' ({})",
                          loss, count, classes.count, classes.name,
                          FormatLocation(where)));
}

Output Sparse(const Classes& classes, const Operand& labels,
              const std::vector<double>& class_weights, const Operand& at) {
  const Output losses = classes.losses(labels);
  if (class_weights.empty()) return MeanAt(at, losses);
  CheckOnePerClass("SparseSoftmaxCrossEntropy", class_weights, classes,
                   at.location());
  LocationScope location(at.graph(), at.location());
  const Output weights = ClassWeightsOf(labels, class_weights);
  return WeightedMean(losses, CastTo(losses.dtype(), weights));
}

Output Mixed(const Classes& classes, const MixedLabels& labels,
             const std::vector<double>& class_weights, const Operand& at) {
  LocationScope location(at.graph(), at.location());
  Output losses = classes.losses(labels.label);
  Output others = classes.losses(labels.other);
  Output share = CastTo(losses.dtype(), labels.share);
  // Another shape would broadcast, to each share with every loss.
  const bool for_each = Compatible(share.shape(), losses.shape());
  if (!for_each && !share.shape().scalar()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("MixedSoftmaxCrossEntropy: wanted a share for each "
                            "example, {}, or one for all, got {} ({})",
                            losses.shape().ToString(), share.shape().ToString(),
                            FormatLocation(at.location())));
  }
  if (for_each) share = EnsureShapeOf(share, losses);
  // What has no share counts nothing, also where it is infinite.
  const Output all = share + ZerosLike(losses);
  losses = Select(Equal(all, 1), ZerosLike(losses), losses);
  others = Select(Equal(all, 0), ZerosLike(others), others);
  if (class_weights.empty()) {
    return Mean((1 - share) * losses + share * others);
  }
  CheckOnePerClass("MixedSoftmaxCrossEntropy", class_weights, classes,
                   at.location());
  const auto weights_for = [&](const Output& of) {
    return CastTo(losses.dtype(), ClassWeightsOf(of, class_weights));
  };
  return WeightedMean(Concat({losses, others}, 0),
                      Concat({(1 - share) * weights_for(labels.label),
                              share * weights_for(labels.other)},
                             0));
}

}  // namespace

Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options,
                                 const std::vector<double>& class_weights) {
  return Sparse(ClassesOf(logits, options), labels, class_weights, logits);
}

Output SparseSoftmaxCrossEntropy(const layers::Classifier& classifier,
                                 Operand labels,
                                 const CrossEntropyOptions& options,
                                 const std::vector<double>& class_weights) {
  return Sparse(ClassesOf(classifier, options), labels, class_weights, labels);
}

Output MixedSoftmaxCrossEntropy(Operand logits, const MixedLabels& labels,
                                const CrossEntropyOptions& options,
                                const std::vector<double>& class_weights) {
  return Mixed(ClassesOf(logits, options), labels, class_weights, logits);
}

Output MixedSoftmaxCrossEntropy(const layers::Classifier& classifier,
                                const MixedLabels& labels,
                                const CrossEntropyOptions& options,
                                const std::vector<double>& class_weights) {
  return Mixed(ClassesOf(classifier, options), labels, class_weights,
               labels.label);
}

Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options) {
  return MeanAt(logits, sluice::SoftmaxCrossEntropy(logits, labels, options));
}

Output SigmoidCrossEntropy(Operand logits, Operand labels) {
  return MeanAt(logits, sluice::SigmoidCrossEntropy(logits, labels));
}

Output Huber(Operand predictions, Operand targets, double delta) {
  if (!(delta > 0)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("Huber: wanted a delta above 0, got {} ({})", delta,
                            FormatLocation(predictions.location())));
  }
  const Operand wanted = CheckTargets("Huber", predictions, targets);
  LocationScope location(predictions.graph(), predictions.location());
  const Output distance = Abs(predictions - wanted);
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
  const Output weighted = values * EnsureShapeOf(weights, values.tensor());
  return Sum(weighted) / Select(Equal(total, 0), 1, total);
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
