#include "graph/ops/array.h"

#include <fmt/format.h>

#include "graph/ops/axes.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// What one node may be cut into.
constexpr int64_t kMostParts = (1 << 16) - 1;

// --- Concat, Split, Stack, Unstack -------------------------------------------

// Where two shapes disagree only by an unknown dimension, the known one; apart
// from dimension `except`, which the caller looks after.
Result<Shape> Merge(const Shape& a, const Shape& b, int except = -1) {
  bool same = a.rank() == b.rank();
  Shape merged = a;
  for (int i = 0; same && i < a.rank(); ++i) {
    if (i == except) continue;
    if (a[i] == kUnknown) merged.set(i, b[i]);
    same = a[i] == b[i] || a[i] == kUnknown || b[i] == kUnknown;
  }
  if (!same) {
    return InvalidArgument(fmt::format("shapes {} and {} do not fit together",
                                       a.ToString(), b.ToString()));
  }
  return merged;
}

// Of two sizes, unknown if either is.
Result<int64_t> SizeSum(int64_t a, int64_t b) {
  if (a == kUnknown || b == kUnknown) return kUnknown;
  if (a > INT64_MAX - b) return InvalidArgument("the sizes add up to too much");
  return a + b;
}

Status ConcatShape(InferContext& c) {
  if (c.num_inputs() == 0) return InvalidArgument("nothing to put together");
  Shape y = c.input(0);
  SLUICE_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(c.attrs().Int("axis"), y.rank()));
  int64_t total = y[axis];
  for (int i = 1; i < c.num_inputs(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(y, Merge(y, c.input(i), axis));
    const int64_t size = c.input(i)[axis];
    SLUICE_ASSIGN_OR_RETURN(total, SizeSum(total, size));
  }
  y.set(axis, total);
  c.SetOutput(0, y);
  return {};
}

// The gradients of Concat's parts, cut from dy by the parts' shapes.
Outputs ConcatGrad(const Node& node, const Outputs& dy) {
  std::vector<Operand> inputs = {dy[0]};
  for (const Output& part : node.inputs()) inputs.push_back(ShapeOf(part));
  const Node& cut = dy[0].graph().Add(
      {"ConcatGrad", inputs, {{"axis", node.attrs().Int("axis")}}});
  Outputs dx;
  for (int i = 0; i < cut.num_outputs(); ++i) dx.push_back(cut.output(i));
  return dx;
}

Status ConcatGradShape(InferContext& c) {
  c.SetNumOutputs(c.num_inputs() - 1);
  int64_t total = 0;
  for (int i = 1; i < c.num_inputs(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Shape part, c.ShapeOperand(i));
    SLUICE_ASSIGN_OR_RETURN(const int axis,
                            NormalizeAxis(c.attrs().Int("axis"), part.rank()));
    SLUICE_ASSIGN_OR_RETURN(const Shape merged, Merge(part, c.input(0), axis));
    const int64_t size = part[axis];
    SLUICE_ASSIGN_OR_RETURN(total, SizeSum(total, size));
    if (i == c.num_inputs() - 1 && total != kUnknown &&
        !Compatible(Shape{total}, Shape{c.input(0)[axis]})) {
      return InvalidArgument(
          fmt::format("the parts have {} elements along "
                      "axis {}, dy {}",
                      total, axis, c.input(0)[axis]));
    }
    c.SetOutput(i - 1, merged);
  }
  return {};
}

// dy with zeros where no gradient flows into an output.
Outputs Completed(const Node& node, const Outputs& dy) {
  Outputs all = dy;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (!all[i].valid()) all[i] = ZerosLike(node.output(i));
  }
  return all;
}

Status SplitShape(InferContext& c) {
  Shape part = c.input(0);
  SLUICE_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(c.attrs().Int("axis"), part.rank()));
  const int64_t num = c.attrs().Int("num");
  if (num < 1 || num > kMostParts ||
      (part[axis] != kUnknown && part[axis] % num != 0)) {
    return InvalidArgument(
        fmt::format("cannot cut {} along axis {} into {} "
                    "equal parts",
                    part.ToString(), axis, num));
  }
  if (part[axis] != kUnknown) part.set(axis, part[axis] / num);
  c.SetNumOutputs(static_cast<int>(num));
  for (int i = 0; i < num; ++i) c.SetOutput(i, part);
  return {};
}

Status StackShape(InferContext& c) {
  if (c.num_inputs() == 0) return InvalidArgument("nothing to stack");
  Shape part = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(part, Merge(part, c.input(i)));
  }
  if (part.rank() == Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const int axis, NormalizeAxis(c.attrs().Int("axis"), part.rank() + 1));
  Shape y = part.Slice(0, axis);
  y.push_back(c.num_inputs());
  for (int64_t d : part.Slice(axis, part.rank())) y.push_back(d);
  c.SetOutput(0, y);
  return {};
}

Status UnstackShape(InferContext& c) {
  const Shape& x = c.input(0);
  SLUICE_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(c.attrs().Int("axis"), x.rank()));
  const int64_t num = c.attrs().Int("num");
  if (num < 1 || num > kMostParts || !Compatible(Shape{num}, Shape{x[axis]})) {
    return InvalidArgument(
        x[axis] == kUnknown
            ? fmt::format("the size of axis {} must be known", axis)
            : fmt::format("axis {} has {} slices, not {}", axis, x[axis], num));
  }
  Shape part = x.Slice(0, axis);
  for (int64_t d : x.Slice(axis + 1, x.rank())) part.push_back(d);
  c.SetNumOutputs(static_cast<int>(num));
  for (int i = 0; i < num; ++i) c.SetOutput(i, part);
  return {};
}

// --- Tile, Reverse ----------------------------------------------------------

// The shape of Tile's result, or with `inverse` that of its operand.
Result<Shape> TileShape(const Attributes& attrs, Shape x, bool inverse) {
  const auto& multiples = attrs.Ints("multiples");
  if (multiples.size() != static_cast<size_t>(x.rank())) {
    return InvalidArgument(fmt::format("{} multiples for {} dimensions",
                                       multiples.size(), x.rank()));
  }
  for (int i = 0; i < x.rank(); ++i) {
    if (multiples[i] < 1) return InvalidArgument("a multiple is below 1");
    if (x[i] == kUnknown) continue;
    if (inverse && x[i] % multiples[i] != 0) {
      return InvalidArgument(
          fmt::format("dimension {} of {} is no multiple "
                      "of {}",
                      i, x.ToString(), multiples[i]));
    }
    const int64_t sizes[] = {x[i], multiples[i]};
    SLUICE_ASSIGN_OR_RETURN(const int64_t tiled, CheckedElements(sizes));
    x.set(i, inverse ? x[i] / multiples[i] : tiled);
  }
  return x;
}

Output TileLike(const char* op, const Operand& x,
                const std::vector<int64_t>& multiples) {
  return x.graph().Add({op, {x}, {{"multiples", multiples}}}).output(0);
}

Status ReverseShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(
      NormalizeAxes(c.attrs().Ints("axes"), c.input(0).rank()).status());
  return SameShape(c);
}

constexpr OpDef kArrayOps[] = {
    {.name = "Concat",
     .doc = "The operands one after another along an axis.",
     .inputs = {{"parts", "T", true}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axis", AttrType::kInt}},
     .shape = ConcatShape,
     .gradient = ConcatGrad,
     .partial = PartialOfInputs,
     .half = HalfRule::kFollow,
     .probes =
         {{.inputs = {{.shape = {2, 3}}, {.shape = {2, 1}}, {.shape = {2, 4}}},
           .attrs = {{"axis", -1}}},
          {.inputs = {{.shape = {2, 3}}, {.shape = {4, 3}}},
           .attrs = {{"axis", 0}}}}},
    {.name = "ConcatGrad",
     .former_name = "ConcatGradient",
     .doc = "dy cut along an axis into tensors of the given shapes.",
     .made_by = MadeBy::kGradients,
     .inputs = {{"dy"}, {"shapes", "int64", true}},
     .outputs = {{"dx", "T", true}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axis", AttrType::kInt}},
     .shape = ConcatGradShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       Outputs dx(node.num_inputs());
       dx[0] = Concat(Completed(node, dy), node.attrs().Int("axis"));
       return dx;
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 7}},
                            {.shape = {2}, .values = {2, 3}},
                            {.shape = {2}, .values = {2, 4}}},
                 .attrs = {{"axis", 1}}}}},
    {.name = "Split",
     .doc = "x cut along an axis into `num` equal parts.",
     .inputs = {{"x"}},
     .outputs = {{"parts", "T", true}},
     .types = {{"T", kAnyType}},
     .attrs = {{"num", AttrType::kInt}, {"axis", 0}},
     .shape = SplitShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Concat(Completed(node, dy), node.attrs().Int("axis"))};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6}}},
                 .attrs = {{"num", 3}, {"axis", 1}}},
                {.inputs = {{.shape = {4, 3}}}, .attrs = {{"num", 2}}}}},
    {.name = "Stack",
     .doc = "The operands along a new dimension.",
     .inputs = {{"parts", "T", true}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axis", 0}},
     .shape = StackShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return Unstack(dy[0], node.attrs().Int("axis"));
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}, {.shape = {2, 3}}}},
                {.inputs = {{.shape = {3}}, {.shape = {3}}},
                 .attrs = {{"axis", -1}}}}},
    {.name = "Unstack",
     .doc = "The `num` slices of x along an axis, without that dimension.",
     .inputs = {{"x"}},
     .outputs = {{"parts", "T", true}},
     .types = {{"T", kAnyType}},
     .attrs = {{"num", AttrType::kInt}, {"axis", 0}},
     .shape = UnstackShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Stack(Completed(node, dy), node.attrs().Int("axis"))};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {{"num", 2}}},
                {.inputs = {{.shape = {2, 3}}},
                 .attrs = {{"num", 3}, {"axis", -1}}}}},
    {.name = "Tile",
     .doc = "x repeated multiples[i] times along each dimension.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"multiples", AttrType::kInts}},
     .shape = [](InferContext& c) -> Status {
       SLUICE_ASSIGN_OR_RETURN(const Shape y,
                               TileShape(c.attrs(), c.input(0), false));
       c.SetOutput(0, y);
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {TileLike("TileGrad", dy[0], node.attrs().Ints("multiples"))};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}},
                 .attrs = {{"multiples", Ints{2, 3}}}},
                {.inputs = {{.shape = {2, 3, 2}}},
                 .attrs = {{"multiples", Ints{3, 1, 1}}}}}},
    {.name = "TileGrad",
     .former_name = "TileGradient",
     .doc = "The sum of the tiles that Tile made.",
     .made_by = MadeBy::kGradients,
     .inputs = {{"dy"}},
     .types = {{"T", kNumeric}},
     .attrs = {{"multiples", AttrType::kInts}},
     .shape = [](InferContext& c) -> Status {
       SLUICE_ASSIGN_OR_RETURN(const Shape x,
                               TileShape(c.attrs(), c.input(0), true));
       c.SetOutput(0, x);
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {TileLike("Tile", dy[0], node.attrs().Ints("multiples"))};
     },
     .probes = {{.inputs = {{.shape = {4, 9}}},
                 .attrs = {{"multiples", Ints{2, 3}}}},
                {.inputs = {{.shape = {6, 3, 2}}},
                 .attrs = {{"multiples", Ints{3, 1, 1}}}}}},
    {.name = "Reverse",
     .doc = "The order of elements turned round along each of `axes`.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"axes", AttrType::kInts}},
     .shape = ReverseShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Reverse(dy[0], node.attrs().Ints("axes"))};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {3, 4}}}, .attrs = {{"axes", Ints{0}}}},
                {.inputs = {{.shape = {2, 3, 4}}},
                 .attrs = {{"axes", Ints{-1, 0}}}}}},
};

// An op over several tensors.
Output Join(const char* op, const std::vector<Output>& parts, int64_t axis,
            const std::source_location& location) {
  if (parts.empty()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: no tensors given ({})", op, FormatLocation(location)));
  }
  std::vector<Operand> inputs;
  for (const Output& part : parts) inputs.emplace_back(part, location);
  return inputs[0].graph().Add({op, inputs, {{"axis", axis}}}).output(0);
}

std::vector<Output> Part(const char* op, const Operand& x, int64_t num,
                         int64_t axis) {
  Node& node = x.graph().Add({op, {x}, {{"num", num}, {"axis", axis}}});
  std::vector<Output> parts;
  for (int i = 0; i < node.num_outputs(); ++i) parts.push_back(node.output(i));
  return parts;
}

}  // namespace

std::span<const OpDef> ArrayOps() {
  return kArrayOps;
}

Output Concat(const std::vector<Output>& parts, int64_t axis,
              const std::source_location& location) {
  return Join("Concat", parts, axis, location);
}
std::vector<Output> Split(Operand x, int64_t num, int64_t axis) {
  return Part("Split", x, num, axis);
}
Output Stack(const std::vector<Output>& parts, int64_t axis,
             const std::source_location& location) {
  return Join("Stack", parts, axis, location);
}
std::vector<Output> Unstack(Operand x, int64_t axis) {
  const Shape& shape = x.tensor().shape();
  const Result<int> normal = NormalizeAxis(axis, shape.rank());
  // A wrong axis or an unknown size is refused where the node is inferred.
  return Part("Unstack", x, normal.ok() ? shape[*normal] : 0, axis);
}
Output Tile(Operand x, const std::vector<int64_t>& multiples) {
  return TileLike("Tile", x, multiples);
}
Output Reverse(Operand x, const std::vector<int64_t>& axes) {
  return x.graph().Add({"Reverse", {x}, {{"axes", axes}}}).output(0);
}

}  // namespace sluice
