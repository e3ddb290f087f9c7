#include "models/nn/classifier.h"

#include <fmt/format.h>

#include "models/nn/cut_logits.h"
#include "models/nn/layers.h"
#include "models/nn/metrics.h"

namespace sluice::layers {
namespace {

void Check(const Scope& scope, const Operand& x,
           const ClassifierOptions& options) {
  const auto fail = [&](const std::string& why) {
    throw Error(Code::kInvalidArgument,
                fmt::format("Classifier '{}': {} ({})", scope.name(), why,
                            FormatLocation(x.location())));
  };
  const Shape& shape = x.tensor().shape();
  if (&x.graph() != &scope.graph()) {
    fail("the scope and the operand belong to different graphs");
  }
  if (options.classes < 1) {
    fail(fmt::format("classes must be positive, got {}", options.classes));
  }
  if (options.workers < 1) {
    fail(fmt::format("workers must be positive, got {}", options.workers));
  }
  if (shape.rank() != 2 || shape[1] == kUnknown) {
    fail(fmt::format("wanted [batch, features] (Flatten makes it), got {}",
                     shape.ToString()));
  }
}

}  // namespace

Classifier::Classifier(const Scope& scope, Operand x,
                       const ClassifierOptions& options)
    : classes_(options.classes) {
  Check(scope, x, options);
  if (options.workers > 1) {
    cut_ = std::make_shared<CutLogits>(scope, x, options);
  } else {
    logits_ = Dense(scope, x,
                    {.units = options.classes,
                     .weights = options.weights,
                     .bias = options.bias});
  }
}

Output Classifier::Logits() const {
  if (logits_.valid()) return logits_;
  throw Error(Code::kInvalidArgument,
              "the classes are cut over several workers, of which none has all "
              "logits: one process alone predicts and exports");
}

Output Classifier::CrossEntropy(Operand labels,
                                const CrossEntropyOptions& options) const {
  return is_cut() ? cut_->CrossEntropy(labels, options)
                  : SparseSoftmaxCrossEntropy(logits_, labels, options);
}

Output Classifier::Accuracy(Operand labels) const {
  return is_cut() ? cut_->Accuracy(labels) : sluice::Accuracy(logits_, labels);
}

Output Classifier::TopKAccuracy(Operand labels, int64_t k) const {
  return is_cut() ? cut_->TopKAccuracy(labels, k)
                  : sluice::TopKAccuracy(logits_, labels, k);
}

}  // namespace sluice::layers
