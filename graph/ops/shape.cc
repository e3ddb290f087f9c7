#include "graph/ops/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/ops/axes.h"
#include "graph/ops/reduce.h"
#include "graph/ops/tables.h"
#include "graph/ops/unary.h"

namespace sluice {
namespace {

// The dimension written as -1 follows from the number of elements.
Status ReshapeShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(Shape wanted, c.ShapeOperand(1));
  const int64_t have = c.input(0).elements();
  const auto unknown = std::count(wanted.begin(), wanted.end(), kUnknown);
  const auto impossible = [&](std::string_view why) {
    return InvalidArgument(fmt::format("cannot reshape {} to {}: {}",
                                       c.input(0).ToString(), wanted.ToString(),
                                       why));
  };
  if (unknown > 1 && c.constant(1) != nullptr) {
    return impossible("only one dimension may be -1");
  }
  if (unknown <= 1 && have != kUnknown) {
    int open = -1;
    Shape given;
    for (int i = 0; i < wanted.rank(); ++i) {
      if (wanted[i] == kUnknown) {
        open = i;
      } else {
        given.push_back(wanted[i]);
      }
    }
    SLUICE_ASSIGN_OR_RETURN(const int64_t known, CheckedElements(given.dims()));
    if (open < 0 ? known != have : known != 0 && have % known != 0) {
      return impossible(fmt::format("there are {} elements", have));
    }
    if (open >= 0 && known != 0) wanted.set(open, have / known);
    if (open >= 0 && known == 0 && c.constant(1) != nullptr) {
      return impossible("-1 is ambiguous beside a dimension of size 0");
    }
  }
  c.SetOutput(0, wanted);
  return {};
}

Outputs ReshapeGradient(const Node& node, const Outputs& dy) {
  Outputs dx(node.num_inputs());
  dx[0] = ReshapeToShapeOf(dy[0], node.input(0));
  return dx;
}

Status ExpandDimsShape(InferContext& c) {
  const Shape& x = c.input(0);
  if (x.rank() == Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  SLUICE_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(c.attrs().Int("axis"), x.rank() + 1));
  Shape y = x.Slice(0, axis);
  y.push_back(1);
  for (int64_t d : x.Slice(axis, x.rank())) y.push_back(d);
  c.SetOutput(0, y);
  return {};
}

Status SqueezeShape(InferContext& c) {
  const Shape& x = c.input(0);
  std::vector<bool> drop(x.rank());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                          NormalizeAxes(c.attrs().Ints("axes"), x.rank()));
  for (int64_t given : axes) {
    const int axis = static_cast<int>(given);
    if (x[axis] != 1 && x[axis] != kUnknown) {
      return InvalidArgument(
          fmt::format("dimension {} is {}, wanted 1", axis, x[axis]));
    }
    drop[axis] = true;
  }
  if (axes.empty()) {
    if (!x.concrete()) {
      return InvalidArgument(
          "with unknown dimensions the axes to drop must be given");
    }
    for (int i = 0; i < x.rank(); ++i) drop[i] = x[i] == 1;
  }
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    if (!drop[i]) y.push_back(x[i]);
  }
  c.SetOutput(0, y);
  return {};
}

// The permutation in full: empty stands for reversal.
std::vector<int64_t> FullPermutation(const Attributes& attrs, int rank) {
  std::vector<int64_t> permutation = attrs.Ints("permutation");
  if (permutation.empty()) {
    for (int i = rank; i > 0; --i) permutation.push_back(i - 1);
  }
  return permutation;
}

Status TransposeShape(InferContext& c) {
  const Shape& x = c.input(0);
  const std::vector<int64_t> from = FullPermutation(c.attrs(), x.rank());
  std::vector<int64_t> sorted = from;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> all(x.rank());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) {
    return InvalidArgument(fmt::format("[{}] is no permutation of {} axes",
                                       fmt::join(from, ","), x.rank()));
  }
  Shape y;
  for (int64_t axis : from) y.push_back(x[static_cast<int>(axis)]);
  c.SetOutput(0, y);
  return {};
}

Outputs TransposeGradient(const Node& node, const Outputs& dy) {
  const std::vector<int64_t> from =
      FullPermutation(node.attrs(), node.input(0).shape().rank());
  std::vector<int64_t> inverse(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    inverse[from[i]] = static_cast<int64_t>(i);
  }
  return {Transpose(dy[0], inverse)};
}

Status BroadcastToShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape wanted, FullShapeOperand(c, 1));
  const Result<Shape> y = BroadcastShapes(c.input(0), wanted);
  if (!y.ok() || !Compatible(*y, wanted)) {
    return InvalidArgument(fmt::format("{} does not broadcast to {}",
                                       c.input(0).ToString(),
                                       wanted.ToString()));
  }
  c.SetOutput(0, *y);
  return {};
}

Status FillShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape shape, FullShapeOperand(c, 0));
  if (!c.input(1).scalar()) {
    return InvalidArgument(fmt::format("the value must be a scalar, got {}",
                                       c.input(1).ToString()));
  }
  c.SetOutput(0, shape);
  return {};
}

// How many of start, start + delta, ... come before limit; kUnknown for too
// many, or a delta of 0.
int64_t RangeCount(double start, double limit, double delta) {
  const double count = std::ceil((limit - start) / delta);
  if (!(delta != 0) || !(count < 0x1p40)) return kUnknown;
  return static_cast<int64_t>(std::max(count, 0.0));
}
int64_t RangeCount(int64_t start, int64_t limit, int64_t delta) {
  if (delta == 0) return kUnknown;
  if (delta > 0 ? start >= limit : start <= limit) return 0;
  const auto from = static_cast<uint64_t>(start);
  const auto to = static_cast<uint64_t>(limit);
  const auto by = static_cast<uint64_t>(delta);
  const uint64_t before =
      delta > 0 ? (to - from - 1) / by : (from - to - 1) / (0 - by);
  return before < uint64_t{1} << 40 ? static_cast<int64_t>(before) + 1
                                    : kUnknown;
}

Status RangeShape(InferContext& c) {
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    if (!c.input(i).scalar()) {
      return InvalidArgument("start, limit and delta must be scalars");
    }
    known &= c.constant(i) != nullptr;
  }
  int64_t n = kUnknown;
  if (known) {
    const Tensor &start = *c.constant(0), &limit = *c.constant(1),
                 &delta = *c.constant(2);
    n = IsFloating(start.dtype())
            ? RangeCount(start.At(0), limit.At(0), delta.At(0))
            : RangeCount(start.IntAt(0), limit.IntAt(0), delta.IntAt(0));
    if (n == kUnknown) {
      return InvalidArgument(fmt::format("no range leads from {} to {} by {}",
                                         start.ToString(), limit.ToString(),
                                         delta.ToString()));
    }
  }
  c.SetOutput(0, {n});
  return {};
}

constexpr OpDef LikeOp(const char* name, const char* doc) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .types = {{"T", kAnyType}},
          .gradient = NotDifferentiable,
          .shape_only = true,
          .probes = {{.inputs = {{.shape = {2, 3}}}}}};
}

// int64 facts about x's shape.
constexpr OpDef ShapeFactOp(const char* name, const char* doc, ShapeFn shape) {
  return {
      .name = name,
      .doc = doc,
      .inputs = {{"x"}},
      .outputs = {{"y", "int64"}},
      .types = {{"T", kAnyType}},
      .shape = shape,
      .gradient = NotDifferentiable,
      .shape_only = true,
      .probes = {{.inputs = {{.shape = {2, 3}}}}, {.inputs = {{.shape = {}}}}}};
}

constexpr OpDef ShapeOfOp() {
  OpDef op = ShapeFactOp("ShapeOf", "x's dimensions as a vector.",
                         [](InferContext& c) -> Status {
                           c.SetOutput(0, {c.input(0).rank()});
                           return {};
                         });
  op.partial = [](const Node& node, int, Shape* elements) -> bool {
    for (int64_t d : node.input(0).shape()) elements->push_back(d);
    return true;
  };
  return op;
}

constexpr OpDef kShapeOps[] = {
    {.name = "Reshape",
     .doc = "The elements of x in another shape; one dimension may be -1.",
     .inputs = {{"x"}, {"shape", "int64"}},
     .types = {{"T", kAnyType}},
     .shape = ReshapeShape,
     .gradient = ReshapeGradient,
     .view = true,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6}},
                            {.shape = {3}, .values = {3, -1, 2}}}}}},
    {.name = "ExpandDims",
     .doc = "x with a dimension of size 1 put in.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axis", AttrType::kInt}},
     .shape = ExpandDimsShape,
     .gradient = ReshapeGradient,
     .view = true,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {{"axis", 1}}},
                {.inputs = {{.shape = {2, 3}}}, .attrs = {{"axis", -1}}}}},
    {.name = "Squeeze",
     .doc = "x without dimensions of size 1: those of axes, or all.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axes", Ints{}}},
     .shape = SqueezeShape,
     .gradient = ReshapeGradient,
     .view = true,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 1, 3, 1}}}},
                {.inputs = {{.shape = {2, 1, 3, 1}}},
                 .attrs = {{"axes", Ints{-1}}}}}},
    {.name = "Transpose",
     .doc = "y's dimension i is x's dimension permutation[i]; empty: reversed.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"permutation", Ints{}}},
     .shape = TransposeShape,
     .gradient = TransposeGradient,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {3, 5}}}},
                {.inputs = {{.shape = {2, 3, 4}}},
                 .attrs = {{"permutation", Ints{2, 0, 1}}}},
                {.inputs = {{.shape = {2, 3, 2, 5}}},
                 .attrs = {{"permutation", Ints{0, 2, 1, 3}}}}}},
    {.name = "BroadcastTo",
     .doc = "x repeated along missing dimensions and those of size 1.",
     .inputs = {{"x"}, {"shape", "int64"}},
     .types = {{"T", kAnyType}},
     .shape = BroadcastToShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {SumToShapeOf(dy[0], node.input(0)), {}};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {3, 1}},
                            {.shape = {3}, .values = {2, 3, 4}}}},
                {.inputs = {{.shape = {}}, {.shape = {2}, .values = {2, 3}}}}}},
    {.name = "Fill",
     .doc = "A tensor of a given shape whose elements are all `value`.",
     .inputs = {{"shape", "int64"}, {"value"}},
     .types = {{"T", kAnyType}},
     .shape = FillShape,
     .gradient = [](const Node&, const Outputs& dy) -> Outputs {
       return {{}, Sum(dy[0])};
     },
     .probes = {{.inputs = {{.shape = {2}, .values = {2, 3}}, {.shape = {}}}}}},
    LikeOp("ZerosLike", "Zeros of x's dtype and shape."),
    LikeOp("OnesLike", "Ones of x's dtype and shape."),
    {.name = "Range",
     .doc = "start, start + delta, ... before limit; all three constants.",
     .inputs = {{"start"}, {"limit"}, {"delta"}},
     .types = {{"T", kFloatDouble | kIndex}},
     .shape = RangeShape,
     .gradient = NotDifferentiable,
     .probes =
         {{.inputs = {{.values = {2}}, {.values = {9}}, {.values = {3}}}},
          {.inputs = {{.values = {5}}, {.values = {-4}}, {.values = {-2}}}}}},
    ShapeOfOp(),
    ShapeFactOp("Rank", "The number of x's dimensions.", ScalarShape),
    ShapeFactOp("Size", "The number of x's elements.", ScalarShape),
};

Output ShapeConstant(Graph& graph, const Shape& shape,
                     const std::source_location& location) {
  return graph.Constant(Tensor::Vector<int64_t>(shape.dims()), "shape",
                        location);
}

// With a known shape it is made of constants, so that it folds away and x need
// not be kept for it.
Output FilledLike(const char* op, double value, const Operand& x) {
  const TensorType& type = x.tensor().type();
  if (!type.shape.concrete()) return AddUnary(op, x);
  return Fill(x.graph(), type.shape, value, type.dtype, x.location());
}

}  // namespace

std::span<const OpDef> ShapeOps() {
  return kShapeOps;
}

Result<Shape> FullShapeOperand(const InferContext& context, int input,
                               int first) {
  SLUICE_ASSIGN_OR_RETURN(const Shape shape, context.ShapeOperand(input));
  if (context.constant(input) != nullptr &&
      !shape.Slice(first, shape.rank()).concrete()) {
    return InvalidArgument("negative dimension -1");
  }
  return shape;
}

Operand ShapeOperand::In(Graph& graph,
                         const std::source_location& location) const {
  return {tensor_.valid() ? tensor_ : ShapeConstant(graph, shape_, location),
          location};
}

Output Reshape(Operand x, const ShapeOperand& shape) {
  Graph& graph = x.graph();
  return graph.Add({"Reshape", {x, shape.In(graph, x.location())}}).output(0);
}

Output ReshapeToShapeOf(Operand x, const Output& like) {
  const Shape& shape = like.shape();
  if (shape.concrete() && x.tensor().shape() == shape) return x.output();
  // One unknown dimension follows from the others, unless those are empty.
  const auto unknown = std::count(shape.begin(), shape.end(), kUnknown);
  const bool empty = std::count(shape.begin(), shape.end(), 0) > 0;
  if (unknown <= 1 && !empty) return Reshape(x, shape);
  return Reshape(x, ShapeOf(like));
}

Output ExpandDims(Operand x, int64_t axis) {
  return AddUnary("ExpandDims", x, {{"axis", axis}});
}
Output Squeeze(Operand x, const std::vector<int64_t>& axes) {
  return AddUnary("Squeeze", x, {{"axes", axes}});
}
Output Transpose(Operand x, const std::vector<int64_t>& permutation) {
  return AddUnary("Transpose", x, {{"permutation", permutation}});
}

Output BroadcastTo(Operand x, const ShapeOperand& shape) {
  Graph& graph = x.graph();
  return graph.Add({"BroadcastTo", {x, shape.In(graph, x.location())}})
      .output(0);
}
Output BroadcastToShapeOf(Operand x, const Output& like) {
  const Shape& shape = like.shape();
  if (shape.concrete() && x.tensor().shape() == shape) return x.output();
  return BroadcastTo(x, ShapeOf(like));
}
Output EnsureShapeOf(Operand x, const Output& like) {
  LocationScope location(x.graph(), x.location());
  // The first fails where x is larger, the second where `like` is. Where
  // neither is, passes drop both.
  return BroadcastToShapeOf(BroadcastToShapeOf(x, like), x.tensor());
}

Output Fill(const ShapeOperand& shape, Operand value) {
  Graph& graph = value.graph();
  return graph.Add({"Fill", {shape.In(graph, value.location()), value}})
      .output(0);
}
Output Fill(Graph& graph, const ShapeOperand& shape, const Number& value,
            DType dtype, const std::source_location& location) {
  const Output scalar = graph.Constant(value, dtype, location);
  return Fill(shape, Operand(scalar, location));
}
Output ZerosLike(Operand x) {
  return FilledLike("ZerosLike", 0, x);
}
Output OnesLike(Operand x) {
  return FilledLike("OnesLike", 1, x);
}

Output Range(Operand start, Operand limit, Operand delta) {
  const Operand& any = !start.is_number()   ? start
                       : !limit.is_number() ? limit
                                            : delta;
  return any.graph().Add({"Range", {start, limit, delta}}).output(0);
}
Output Range(Graph& graph, int64_t limit,
             const std::source_location& location) {
  const auto scalar = [&](int64_t value) -> Operand {
    return {graph.Constant(Tensor::Scalar(value), "const", location), location};
  };
  return Range(scalar(0), scalar(limit), scalar(1));
}

Output ShapeOf(Operand x) {
  const Shape& shape = x.tensor().shape();
  if (shape.concrete()) return ShapeConstant(x.graph(), shape, x.location());
  return AddUnary("ShapeOf", x);
}
Output Rank(Operand x) {
  return AddUnary("Rank", x);
}
Output Size(Operand x) {
  return AddUnary("Size", x);
}

}  // namespace sluice
