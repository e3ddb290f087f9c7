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
  return node.op().elementwise || node.Is("Dropout") ||
         node.Is("DropoutGrad") || node.Is("BiasAdd") || node.Is("BatchNorm") ||
         node.Is("BatchNormInference") || node.Is("LayerNorm") ||
         node.Is("Softmax") || node.Is("LogSoftmax") || node.Is("AllGather") ||
         node.Is("Concat");
}

// The same of all its results and its first input, of which they are parts or
// repetitions: a dimension of as many elements is whole there.
bool TakesParts(const Node& node) {
  return node.Is("Slice") || node.Is("Split") || node.Is("Tile") ||
         node.Is("Pad") || node.Is("BroadcastTo");
}

bool Reduces(const Node& node) {
  return node.attrs().Has("axes") && node.attrs().Has("keep_dims");
}

// The dimensions of a StridedSlice that may be turned round or have gaps.
std::vector<int64_t> StridedAxes(const Node& node) {
  const std::vector<int64_t>& strides = node.attrs().Ints("strides");
  std::vector<int64_t> axes;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] != 1) axes.push_back(static_cast<int64_t>(i));
  }
  return axes;
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

// What a Transpose of images does to their channels.
struct ChannelMove {
  // Whether it brings them from the end of images [n,h,w,c], or puts others
  // there: not where it turns rows and columns alone.
  bool any = false;
  // Whether what it is given, or makes, is [n,h,w,c] for sure: they go to, or
  // come from, where PyTorch has them.
  bool from_last = false, to_last = false;
};

ChannelMove MoveOfChannels(const Node& node) {
  if (!node.Is("Transpose")) return {};
  const std::vector<int64_t>& from = node.attrs().Ints("permutation");
  if (from.size() != 4) return {.any = true};
  const bool to_second = from[1] == 3, to_last = from[3] == 1;
  return {.any = from[3] != 3,
          .from_last = to_second && !to_last,
          .to_last = to_last && !to_second};
}

// Whether what becomes of images x has its dimensions where x has them.
bool KeepsImages(const Node& node, const Output& x) {
  if (x.shape().rank() != 4) return false;
  if (node.Is("Concat") || node.Is("ConcatGrad") || node.Is("StridedSlice") ||
      node.Is("StridedSliceGrad") || node.Is("TileGrad") || TakesParts(node)) {
    return true;
  }
  return (KeepsElements(node) || node.op().view) &&
         x.shape() == node.output(0).shape();
}

bool MakesAnyOf(const std::set<Output>& outputs, const Node& node) {
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (outputs.contains(node.output(i))) return true;
  }
  return false;
}

std::vector<int64_t> Counted(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

FlattenedImages::FlattenedImages(const Graph& graph) {
  // What such a Transpose makes, and what it is given, also by way of ops that
  // leave images as they are. Only what is flattened behind one, or made into
  // images before one, is as the model wants it: the same images may go into a
  // Transpose elsewhere.
  const auto& nodes = graph.nodes();
  std::set<Output> made, given;
  for (const auto& node : nodes) {
    UniteOf(*node);
    const ChannelMove move = MoveOfChannels(*node);
    if (move.any && !move.to_last) made.insert(node->output(0));
    for (const Output& x : node->inputs()) {
      if (!made.contains(x) || !KeepsImages(*node, x)) continue;
      for (int i = 0; i < node->num_outputs(); ++i) {
        made.insert(node->output(i));
      }
    }
  }
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const Node& node = **it;
    const ChannelMove move = MoveOfChannels(node);
    if (move.any && !move.from_last) given.insert(node.input(0));
    if (!MakesAnyOf(given, node)) continue;
    for (const Output& x : node.inputs()) {
      if (KeepsImages(node, x)) given.insert(x);
    }
  }
  for (const auto& node : nodes) {
    if (!node->Is("Reshape")) continue;
    const Output x = node->input(0), y = node->output(0);
    OrderOfImage(x, y, made.contains(x));
    OrderOfImage(y, x, given.contains(y));
  }
  for (const auto& node : nodes) {
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

bool FlattenedImages::UniteEqual(const Output& x, int of_x, const Output& y,
                                 int of_y) {
  const bool equal = x.shape()[of_x] == y.shape()[of_y] && x.shape()[of_x] > 0;
  if (equal) Unite(x, of_x, y, of_y);
  return equal;
}

void FlattenedImages::UniteLast(const Output& x, const Output& y, int n) {
  for (int i = -1; i >= -n; --i) UniteEqual(x, i, y, i);
}

void FlattenedImages::UniteApartFrom(std::vector<int64_t> axes, const Output& x,
                                     const Output& y, bool kept) {
  const int rank = x.shape().rank();
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  for (int i = 0, in_y = 0; i < rank; ++i) {
    const bool apart = std::find(axes.begin(), axes.end(), i) == axes.end();
    if (apart) UniteEqual(x, i, y, in_y);
    if (apart || kept) ++in_y;
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
    // As long as all are, from the end.
    const int least = std::min(x.shape().rank(), rank);
    int i = -1;
    while (i >= -least && UniteEqual(x, i, y, i)) --i;
  } else if (KeepsElements(node)) {
    for (const Output& input : node.inputs()) {
      UniteLast(input, y, std::min(input.shape().rank(), rank));
    }
  } else {
    UniteOfRows(node);
  }
}

void FlattenedImages::UniteOfRows(const Node& node) {
  const Output x = node.input(0), y = node.output(0);
  const Attributes& attrs = node.attrs();
  if (TakesParts(node)) {
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Output part = node.output(i);
      UniteLast(x, part, std::min(x.shape().rank(), part.shape().rank()));
    }
  } else if (node.Is("StridedSlice")) {
    UniteApartFrom(StridedAxes(node), x, y, true);
  } else if (Reduces(node)) {
    // Without axes over all.
    const std::vector<int64_t>& axes = attrs.Ints("axes");
    if (!axes.empty()) UniteApartFrom(axes, x, y, attrs.Bool("keep_dims"));
  } else if (node.Is("Unstack")) {
    for (int i = 0; i < node.num_outputs(); ++i) {
      UniteApartFrom({attrs.Int("axis")}, x, node.output(i), false);
    }
  } else if (node.Is("Stack")) {
    for (const Output& part : node.inputs()) {
      UniteApartFrom({attrs.Int("axis")}, y, part, false);
    }
  } else if (node.Is("Gather")) {
    const auto axis = static_cast<int>(attrs.Int("axis"));
    UniteLast(x, y, axis < 0 ? -1 - axis : x.shape().rank() - 1 - axis);
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
