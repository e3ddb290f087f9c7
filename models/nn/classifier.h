// The last layer of a network that tells classes apart. A large one may be cut
// over the workers of a job, each of which has some of the classes:
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
  // Over how many workers (SessionOptions::collective) the classes are cut, at
  // most as many as there are; 1: all have all of them. A step of another
  // number of workers fails.
  int64_t workers = 1;
  // Where they are cut: the most examples that a worker has of a batch. One of
  // more is an error when its step is prepared.
  int64_t share = 0;
};

// Dense: x * weights + bias, [n, in] to [n, classes], and what is made of that.
// Variables: weights [in, classes], bias [classes].
//
// Cut over workers, each has a part of both (VariableOptions::part_of), with
// the values that they would begin with as a whole. It computes the logits of
// its classes for the examples of all, which it gathers, filled up with zeros
// to `share` of each; the softmax is of sums over the workers. What it returns
// is of this worker's own examples, and the gradients are those of the sum of
// all workers' losses, as of all collectives (graph/ops/collective.h): those of
// the variables are whole, so that Minimize reduces none (it takes the mean
// over the workers, as of others).
//
// A copy is of the same layer.
class Classifier {
 public:
  Classifier(const Scope& scope, Operand x, const ClassifierOptions& options);

  bool is_cut() const { return cut_ != nullptr; }
  int64_t classes() const { return classes_; }
  // [n, classes]. Throws Error where they are cut: nobody has all of them.
  Output Logits() const;

  // Of int32 or int64 labels [n], of this worker's examples, as the functions
  // of these names of logits: sluice::SparseSoftmaxCrossEntropy, Accuracy,
  // TopKAccuracy. A label outside [0, classes) fails the step.
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
