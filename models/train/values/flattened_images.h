// Finds images flattened to columns. PyTorch flattens images as [c,h,w], we as
// [h,w,c]: variables that multiply such columns, are added to them or make
// columns from them have their elements in another order in PyTorch.
#ifndef SLUICE_MODELS_TRAIN_VALUES_FLATTENED_IMAGES_H_
#define SLUICE_MODELS_TRAIN_VALUES_FLATTENED_IMAGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// Groups the dimensions of a graph's tensors that have their elements in one
// order: those that elementwise ops join, the inner ones of a product, and so
// on; the sums of a residual make those before and behind it one. A group that
// images [n,h,w,c] are flattened into, or made of, has the order of these.
// Images whose channels a Transpose moves in between, from where we have them
// or to there, are in the order that the model wants anyway.
class FlattenedImages {
 public:
  explicit FlattenedImages(const Graph& graph);

  // Element i of the variable's dimension is element order[i] of it in PyTorch;
  // empty: the order is the same. kInvalidArgument: it would need two.
  Result<std::vector<int64_t>> Order(const Output& variable, int dimension);

 private:
  using Dimension = std::pair<Output, int>;
  struct Group {
    size_t parent = 0;  // itself: it stands for all that are united
    std::vector<int64_t> order = {};  // empty: nothing is known
    bool two_orders = false;
  };

  Group& GroupOf(const Dimension& dimension);
  // Negative ones count from the end.
  void Unite(const Output& x, int of_x, const Output& y, int of_y);
  // Where they are of the same size; whether they are.
  bool UniteEqual(const Output& x, int of_x, const Output& y, int of_y);
  // Unites each of the last n dimensions that has the same size in both.
  void UniteLast(const Output& x, const Output& y, int n);
  // The dimensions of x that are not among the axes, in their order, and those
  // of y, which has x's axes, too (`kept`), or lacks them.
  void UniteApartFrom(std::vector<int64_t> axes, const Output& x,
                      const Output& y, bool kept);
  void UniteOf(const Node& node);
  // Unites dimensions for ops that take rows, join them or reduce over them.
  void UniteOfRows(const Node& node);
  void SetOrder(const Output& columns, const std::vector<int64_t>& order);
  void OrderOfImage(const Output& image, const Output& columns,
                    bool transposed);
  void OrderOfConcat(const Node& node);

  std::map<Dimension, size_t> index_;
  std::vector<Group> groups_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_FLATTENED_IMAGES_H_
