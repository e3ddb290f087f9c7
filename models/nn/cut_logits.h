// Logits that are cut by classes over the workers. Internal to models/nn.
#ifndef SLUICE_MODELS_NN_CUT_LOGITS_H_
#define SLUICE_MODELS_NN_CUT_LOGITS_H_

#include <cstdint>
#include <map>

#include "graph/graph.h"
#include "graph/ops/loss.h"
#include "models/nn/classifier.h"

namespace sluice {

// The rows are the examples of all workers, `share` of each, those beyond a
// worker's own being ignored; the columns are this worker's classes. Every
// worker makes the same nodes.
class CutLogits {
 public:
  // x [n, in] has this worker's examples. Throws Error for options that make no
  // sense.
  CutLogits(const Scope& scope, const Operand& x,
            const layers::ClassifierOptions& options);

  // As the functions of layers::Classifier.
  Output CrossEntropy(const Operand& labels,
                      const CrossEntropyOptions& options);
  Output Accuracy(const Operand& labels);
  Output TopKAccuracy(const Operand& labels, int64_t k);

 private:
  // The labels of all rows.
  struct Labelled {
    Output labels;
    Output logits;  // those of the labels
  };
  Output Variable(const char* name, const initializers::Rule& rule,
                  const Shape& whole, DType dtype,
                  const std::source_location& where) const;
  // Gathers x, whose first dimension is this worker's examples, from all
  // workers, in rows.
  Output Gathered(const Output& x, const char* name) const;
  // The rows of this worker's examples, from all rows.
  Output Own(const Output& of_rows) const;
  const Labelled& LabelledBy(const Operand& labels);
  // For each row the number of classes, of all workers, for which the condition
  // holds.
  Output Count(const Output& condition) const;
  // `columns`, with `others` in the columns behind the last class of a narrower
  // part.
  Output OfClasses(const Output& columns, const Operand& others) const;

  Scope scope_;
  int64_t classes_, workers_, share_;
  int64_t width_;  // of the parts
  Output rank_;
  Output examples_;      // this worker's: int64 scalars, as are these
  Output begin_, size_;  // its classes
  Output is_class_;      // bool [width]; empty: all columns are
  Output logits_;        // [rows, width]
  Output most_;          // the largest logit of all classes, [rows]
  // From the logits minus most_, over all classes, [rows].
  Output log_sum_;  // log(sum(exp))
  Output sum_;
  std::map<Output, Labelled> labelled_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_CUT_LOGITS_H_
