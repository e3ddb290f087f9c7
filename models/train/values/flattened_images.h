// Where images stand as columns. PyTorch flattens images [c,h,w], we [h,w,c]:
// what multiplies such columns, is added to them or makes more of them has its
// own elements in another order there.
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
// Images whose channels a Transpose moves in between are in the order that the
// model wants anyway.
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
  // Those of the same size, counted from the end; of a view as long as all are.
  void UniteEqual(const Output& x, const Output& y, bool view);
  void UniteOf(const Node& node);
  void SetOrder(const Output& columns, const std::vector<int64_t>& order);
  void OrderOfImage(const Output& image, const Output& columns,
                    bool transposed);
  void OrderOfConcat(const Node& node);

  std::map<Dimension, size_t> index_;
  std::vector<Group> groups_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_FLATTENED_IMAGES_H_
