// Sums of the values that leaves (Workers) compute, in the order of a tree.
#ifndef SLUICE_MODELS_TRAIN_RUN_LEAF_SUMS_H_
#define SLUICE_MODELS_TRAIN_RUN_LEAF_SUMS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "engine/runtime/subtrees.h"
#include "engine/tensor.h"

namespace sluice {

// The sums of a row of subtrees, each a list of tensors of floating dtypes, the
// same for all. Keeps its memory from one step to the next.
class LeafSums {
 public:
  void Clear() { row_.Clear(); }
  // Adds the sum of the leaves of `next`, `values`, to the right of the others;
  // the values are copied.
  void Append(Subtree next, std::span<const Tensor> values);
  // Appends all subtrees of `right`.
  void Append(const LeafSums& right);
  // Joins all subtrees into one, from the right, if the number of leaves is no
  // power of two: the tree's sum with missing leaves left out.
  void Join();

  size_t size() const { return row_.size(); }  // subtrees
  std::span<Tensor> slot(size_t subtree) { return slots_[subtree]; }

 private:
  SubtreeRow row_;
  std::vector<std::vector<Tensor>> slots_;  // of the row, and more
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_LEAF_SUMS_H_
