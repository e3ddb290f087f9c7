#include "models/train/values/flattened_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

namespace sluice {
namespace {

// Whether element i of a dimension of its result comes from element i of that
// dimension, counted from the end, of each input that has as many.
bool KeepsElements(const Node& node) {
  // Parts along a dimension have fewer there. AllGather is how a
  // layers::Classifier that is cut comes by the rows of all workers.
  return node.op().elementwise || node.Is("Dropout") || node.Is("BiasAdd") ||
         node.Is("BatchNorm") || node.Is("BatchNormInference") ||
         node.Is("LayerNorm") || node.Is("AllGather") || node.Is("Concat");
}

// Of `columns` that are images [n,h,w,c], in ours, where they stand in
// PyTorch's.
std::vector<int64_t> OrderOfPixels(const Shape& image) {
  const int64_t pixels = image[1] * image[2], channels = image[3];
  std::vector<int64_t> order;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      order.push_back(channel * pixels + pixel);
    }
  }
  return order;
}

// Whether it brings channels from the end of images [n,h,w,c], or puts others
// there: not where it turns their rows and columns alone.
bool MovesChannels(const Node& node) {
  if (!node.Is("Transpose")) return false;
  const std::vector<int64_t>& from = node.attrs().Ints("permutation");
  return from.size() != 4 || from[3] != 3;
}

std::vector<int64_t> Counted(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

FlattenedImages::FlattenedImages(const Graph& graph) {
  // What such a Transpose makes, and what it is given. Only what is flattened
  // behind one, or made into images before one, is as the model wants it: the
  // same images may go into a Transpose elsewhere.
  std::set<Output> made, given;
  for (const auto& node : graph.nodes()) {
    UniteOf(*node);
    if (!MovesChannels(*node)) continue;
    given.insert(node->input(0));
    made.insert(node->output(0));
  }
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Reshape")) continue;
    const Output x = node->input(0), y = node->output(0);
    OrderOfImage(x, y, made.contains(x));
    OrderOfImage(y, x, given.contains(y));
  }
  for (const auto& node : graph.nodes()) {
    if (node->Is("Concat")) OrderOfConcat(*node);
  }
}

Result<std::vector<int64_t>> FlattenedImages::Order(const Output& variable,
                                                    int dimension) {
  const Group& group = GroupOf({variable, dimension});
  if (group.two_orders) {
    return InvalidArgument(
        fmt::format("dimension {} of variable '{}' cannot be put into the "
                    "order of images [h,w,c] from PyTorch's [c,h,w]: images of "
                    "two shapes were flattened into what it belongs to",
                    dimension, variable.name()));
  }
  return group.order;
}

FlattenedImages::Group& FlattenedImages::GroupOf(const Dimension& dimension) {
  const auto [found, added] = index_.emplace(dimension, groups_.size());
  if (added) groups_.push_back({.parent = groups_.size()});
  size_t& at = found->second;
  while (groups_[at].parent != at) at = groups_[at].parent;
  return groups_[at];
}

void FlattenedImages::Unite(const Output& x, int of_x, const Output& y,
                            int of_y) {
  const auto dimension = [](const Output& tensor, int i) {
    return Dimension(tensor, i < 0 ? i + tensor.shape().rank() : i);
  };
  const size_t of_all = GroupOf(dimension(x, of_x)).parent;
  GroupOf(dimension(y, of_y)).parent = of_all;
}

void FlattenedImages::UniteEqual(const Output& x, const Output& y, bool view) {
  const int rank = std::min(x.shape().rank(), y.shape().rank());
  for (int i = -1; i >= -rank; --i) {
    const bool equal = x.shape()[i] == y.shape()[i] && x.shape()[i] > 0;
    if (equal) {
      Unite(x, i, y, i);
    } else if (view) {
      return;
    }
  }
}

void FlattenedImages::UniteOf(const Node& node) {
  if (node.num_outputs() == 0 || node.num_inputs() == 0) return;
  const Output x = node.input(0), y = node.output(0);
  const int rank = y.shape().rank();
  if (node.Is("MatMul")) {
    const Output b = node.input(1);
    const int inner = node.attrs().Bool("transpose_a") ? -2 : -1;
    const int inner_of_b = node.attrs().Bool("transpose_b") ? -1 : -2;
    Unite(x, inner, b, inner_of_b);
    Unite(x, -3 - inner, y, -2);  // -1 for -2 and the other way round
    Unite(b, -3 - inner_of_b, y, -1);
  } else if (node.Is("Transpose")) {
    const std::vector<int64_t>& from = node.attrs().Ints("permutation");
    for (int i = 0; i < rank; ++i) {
      Unite(x, from.empty() ? rank - 1 - i : static_cast<int>(from[i]), y, i);
    }
  } else if (node.op().view) {
    UniteEqual(x, y, true);
  } else if (KeepsElements(node)) {
    for (const Output& input : node.inputs()) UniteEqual(input, y, false);
  }
}

void FlattenedImages::SetOrder(const Output& columns,
                               const std::vector<int64_t>& order) {
  Group& group = GroupOf({columns, columns.shape().rank() - 1});
  if (group.order.empty()) group.order = order;
  group.two_orders = group.two_orders || group.order != order;
}

void FlattenedImages::OrderOfImage(const Output& image, const Output& columns,
                                   bool transposed) {
  const Shape& shape = image.shape();
  if (shape.rank() != 4 || columns.shape().rank() < 2) return;
  const int64_t elements = shape.elements(1, 4);
  if (elements < 2 || columns.shape()[-1] != elements) return;
  SetOrder(columns, transposed ? Counted(elements) : OrderOfPixels(shape));
}

// Columns one after another have their orders so; the others are as they are.
void FlattenedImages::OrderOfConcat(const Node& node) {
  const Output y = node.output(0);
  const int last = y.shape().rank() - 1;
  const int64_t axis = node.attrs().Int("axis");
  if ((axis != last && axis != -1) || y.shape()[last] < 2) return;
  std::vector<int64_t> order;
  bool known = !GroupOf({y, last}).order.empty();
  for (const Output& part : node.inputs()) {
    const Group& group = GroupOf({part, last});
    known = known || !group.order.empty() || group.two_orders;
    const auto before = static_cast<int64_t>(order.size());
    for (const int64_t i :
         group.order.empty() ? Counted(part.shape()[last]) : group.order) {
      order.push_back(before + i);
    }
  }
  if (known) SetOrder(y, order);
}

}  // namespace sluice
