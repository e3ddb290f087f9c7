// How well a set of examples was classified: counts, figures of each class, and
// the mistakes that were made with the most certainty.
#ifndef SLUICE_MODELS_REPORT_CLASSIFICATION_H_
#define SLUICE_MODELS_REPORT_CLASSIFICATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace report {

// An example that was taken for another class.
struct Mistake {
  int64_t number = 0;  // of the example in the set, from 0
  int64_t label = 0;
  int64_t predicted = 0;
  float predicted_probability = 0;
  float label_probability = 0;
  Tensor image;  // uint8 [h,w,1|3]; of no element where none was given
};

// The figures of one class. A figure is NaN if it would be divided by 0.
struct ClassFigures {
  int64_t examples = 0;   // whose label it is
  int64_t predicted = 0;  // that were taken for it, rightly or not
  int64_t correct = 0;
  double recall = 0;     // correct / examples
  double precision = 0;  // correct / predicted
  double f1 = 0;         // the harmonic mean of both
  double confidence =
      0;  // mean probability of what its examples were taken for
};

// Examples of `label` that were taken for `predicted`.
struct Confusion {
  int64_t label = 0;
  int64_t predicted = 0;
  int64_t count = 0;
};

// Fed batch by batch. Its memory grows with the classes, with the pairs of
// classes that occurred, and with the mistakes it keeps; not with the examples.
// One thread at a time.
class Classification {
 public:
  // Keeps the `worst` mistakes. Classes without a name, or with an empty one,
  // are called by their number.
  Classification(std::vector<std::string> class_names, size_t worst);

  // The next n examples: labels int32|int64 [n], probabilities float32
  // [n,classes], and null or the images, uint8|float32 [n,h,w,1|3], of which
  // those of the worst mistakes are copied, floats stretched from the least to
  // the greatest of the picture. What is most probable is predicted, of equals
  // the first, and nothing where a probability is not finite: such an example
  // is wrong, but no confusion. Throws Error, and adds nothing:
  // kInvalidArgument for other tensors or other classes than before,
  // kOutOfRange for a label that is no class.
  void Add(const Tensor& labels, const Tensor& probabilities,
           const Tensor* images);

  // As many as the probabilities; 0 before the first Add.
  int64_t classes() const { return static_cast<int64_t>(tallies_.size()); }
  int64_t examples() const { return examples_; }
  int64_t correct() const { return correct_; }
  // The number of examples for which nothing was predicted.
  int64_t undecided() const { return undecided_; }
  // Correct ones among all, and the mean probability of what was predicted,
  // which is the same for a model that knows what it knows. NaN without any.
  double Accuracy() const;
  double Confidence() const;
  // The mean over the classes that have one; NaN without any.
  double MacroF1() const;
  // `number` must be of a class.
  ClassFigures Figures(int64_t number) const;
  int64_t Count(int64_t label, int64_t predicted) const;
  // All confusions that occurred, the most frequent first, then by label and
  // prediction.
  std::vector<Confusion> Confusions() const;
  // The mistakes with the most probable wrong class first; of equals, the first
  // ones.
  std::vector<Mistake> WorstMistakes() const;

  std::string ClassName(int64_t number) const;
  // Whether it has another name than its number.
  bool HasName(int64_t number) const;

 private:
  static constexpr int64_t kNone = -1;
  struct Tally {
    int64_t examples = 0;
    int64_t predicted = 0;
    double confidence = 0;  // sum over the examples
  };

  void CheckBatch(const Tensor& labels, const Tensor& probabilities,
                  const Tensor* images) const;
  // The most probable class of each row, or kNone.
  std::vector<int64_t> Predict(const Tensor& labels,
                               const Tensor& probabilities) const;
  void Keep(Mistake mistake, const Tensor* images, int64_t row);

  std::vector<std::string> class_names_;
  size_t worst_;
  int64_t examples_ = 0;
  int64_t correct_ = 0;
  int64_t undecided_ = 0;
  std::vector<Tally> tallies_;  // by class
  // By label and prediction. Of a thousand classes few pairs occur.
  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;
  // A heap, the least bad first; at most worst_.
  std::vector<Mistake> mistakes_;
};

}  // namespace report
}  // namespace sluice

#endif  // SLUICE_MODELS_REPORT_CLASSIFICATION_H_
