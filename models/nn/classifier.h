// The last layer of a network that classifies. A large one may be cut over the
// workers of a job, so that each has some of the classes:
//
//   layers::Classifier classifier(scope / "fc", x, {.classes = 10'000,
//                                                   .workers = run.size,
//                                                   .share = share});
//   loss = losses::SparseSoftmaxCrossEntropy(classifier, labels);
//   accuracy = classifier.Accuracy(labels);
#ifndef SLUICE_MODELS_NN_CLASSIFIER_H_
#define SLUICE_MODELS_NN_CLASSIFIER_H_

#include <cstdint>
#include <memory>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/loss.h"
#include "models/nn/initializers.h"

namespace sluice {
class CutLogits;
}  // namespace sluice

namespace SLUICE_PUBLIC sluice {
namespace layers {

struct ClassifierOptions {
  int64_t classes = 0;
  initializers::Rule weights = initializers::GlorotUniform();
  initializers::Rule bias = initializers::Constant(0);
  // The number of workers (SessionOptions::collective) that the classes are cut
  // over, at most one for each class; 1: every worker has all classes. A step
  // with another number of workers fails.
  int64_t workers = 1;
  // If classes are cut: the most examples that a worker has of a batch. A share
  // with more is an error when its step is prepared.
  int64_t share = 0;
};

// A dense layer, x * weights + bias, [n, in] to [n, classes], with its loss and
// metrics. Variables: weights [in, classes], bias [classes].
//
// If cut over workers, each has a part of both variables
// (VariableOptions::part_of), with the same first values as the whole would
// have. A worker gathers the examples of all, filled up with zeros to `share`
// of each, and computes the logits of its classes for them; the softmax uses
// sums over the workers. Results are for this worker's own examples. Gradients
// are those of the sum of all workers' losses, as for all collectives
// (graph/ops/collective.h): those of the variables are complete, so that
// Minimize does not reduce them (it takes the mean over the workers as usual).
//
// A copy refers to the same layer.
class Classifier {
 public:
  Classifier(const Scope& scope, Operand x, const ClassifierOptions& options);

  bool is_cut() const { return cut_ != nullptr; }
  int64_t classes() const { return classes_; }
  // The logits, [n, classes]. Throws Error if classes are cut: no worker has
  // all logits.
  Output Logits() const;

  // The loss and metrics for int32 or int64 labels [n] of this worker's
  // examples, as the functions of logits: sluice::SparseSoftmaxCrossEntropy,
  // Accuracy, TopKAccuracy. A label outside [0, classes) fails the step.
  Output CrossEntropy(Operand labels,
                      const CrossEntropyOptions& options = {}) const;
  Output Accuracy(Operand labels) const;
  Output TopKAccuracy(Operand labels, int64_t k) const;

 private:
  int64_t classes_;
  Output logits_;
  std::shared_ptr<CutLogits> cut_;
};

}  // namespace layers
}  // namespace sluice

#endif  // SLUICE_MODELS_NN_CLASSIFIER_H_
