#include "graph/ops/slice.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "engine/semantics/slicing.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// Of positions and paddings, so that sums with dimensions do not overflow.
constexpr int64_t kFarthest = int64_t{1} << 60;

Attributes AttributesOf(const StridedSliceOptions& options) {
  std::vector<int64_t> strides = options.strides;
  if (strides.empty()) strides.assign(options.begin.size(), 1);
  return {{"begin", options.begin},
          {"end", options.end},
          {"strides", strides},
          {"begin_mask", options.begin_mask},
          {"end_mask", options.end_mask}};
}

// What the attributes take from a tensor of shape x; kUnknown dimensions where
// that depends on an unknown one.
Result<Shape> StridedShape(const Attributes& attrs, const Shape& x) {
  const auto& begin = attrs.Ints("begin");
  const auto& end = attrs.Ints("end");
  const auto& strides = attrs.Ints("strides");
  if (begin.size() != end.size() || begin.size() != strides.size() ||
      begin.size() > static_cast<size_t>(x.rank())) {
    return InvalidArgument(
        fmt::format("{} begins, {} ends and {} strides for {} dimensions",
                    begin.size(), end.size(), strides.size(), x.rank()));
  }
  Shape y = x;
  for (size_t i = 0; i < begin.size(); ++i) {
    const int d = static_cast<int>(i);
    const bool from_start = attrs.Int("begin_mask") >> i & 1;
    const bool to_end = attrs.Int("end_mask") >> i & 1;
    if (strides[i] == 0) return InvalidArgument("a stride is 0");
    if (strides[i] < -kFarthest) {
      return InvalidArgument(fmt::format("a stride is {}", strides[i]));
    }
    if (x[d] != kUnknown) {
      y.set(d, ResolveSlice(from_start ? std::nullopt : std::optional(begin[i]),
                            to_end ? std::nullopt : std::optional(end[i]),
                            strides[i], x[d])
                   .count);
    } else if (!from_start || !to_end || std::abs(strides[i]) != 1) {
      y.set(d, kUnknown);
    }
  }
  return y;
}

Status StridedSliceShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y, StridedShape(c.attrs(), c.input(0)));
  c.SetOutput(0, y);
  return {};
}

Status StridedSliceGradShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape x, FullShapeOperand(c, 1));
  SLUICE_ASSIGN_OR_RETURN(const Shape taken, StridedShape(c.attrs(), x));
  if (!Compatible(taken, c.input(0))) {
    return InvalidArgument(fmt::format("the slice has shape {}, dy {}",
                                       taken.ToString(),
                                       c.input(0).ToString()));
  }
  c.SetOutput(0, x);
  return {};
}

// Zeros of x's shape with dy where the slice was taken.
Output PutSlice(const Output& dy, const Output& x, Attributes slice) {
  return dy.graph()
      .Add({"StridedSliceGrad", {dy, ShapeOf(x)}, std::move(slice)})
      .output(0);
}

Status SliceShape(InferContext& c) {
  const Shape& x = c.input(0);
  const auto& begin = c.attrs().Ints("begin");
  const auto& size = c.attrs().Ints("size");
  if (begin.size() != static_cast<size_t>(x.rank()) ||
      size.size() != begin.size()) {
    return InvalidArgument(
        fmt::format("{} begins and {} sizes for {} dimensions", begin.size(),
                    size.size(), x.rank()));
  }
  Shape y = x;
  for (int i = 0; i < x.rank(); ++i) {
    const bool known = x[i] != kUnknown;
    const bool near = begin[i] >= 0 && begin[i] <= kFarthest && size[i] >= -1 &&
                      size[i] <= kFarthest;
    const int64_t rest = known && near ? x[i] - begin[i] : kUnknown;
    if (!near || (known && (rest < 0 || size[i] > rest))) {
      return InvalidArgument(
          fmt::format("{} elements from {} are not within dimension {} of {}",
                      size[i], begin[i], i, x.ToString()));
    }
    y.set(i, size[i] == -1 ? rest : size[i]);
  }
  c.SetOutput(0, y);
  return {};
}

Outputs SliceGradient(const Node& node, const Outputs& dy) {
  StridedSliceOptions slice{.begin = node.attrs().Ints("begin")};
  const auto& size = node.attrs().Ints("size");
  for (size_t i = 0; i < size.size(); ++i) {
    slice.end.push_back(slice.begin[i] + size[i]);
    if (size[i] == -1) slice.end_mask |= int64_t{1} << i;
  }
  return {PutSlice(dy[0], node.input(0), AttributesOf(slice))};
}

Status PadShape(InferContext& c) {
  Shape y = c.input(0);
  const auto& paddings = c.attrs().Ints("paddings");
  if (paddings.size() != 2 * static_cast<size_t>(y.rank())) {
    return InvalidArgument(
        fmt::format("{} paddings for {} dimensions, wanted two for each",
                    paddings.size(), y.rank()));
  }
  for (int i = 0; i < y.rank(); ++i) {
    const int64_t before = paddings[2 * i], after = paddings[2 * i + 1];
    if (before < 0 || after < 0) {
      return InvalidArgument("a padding is negative; use Slice to cut");
    }
    if (before > kFarthest || after > kFarthest) {
      return InvalidArgument(
          fmt::format("no tensor has paddings of {} and {}", before, after));
    }
    if (y[i] != kUnknown) y.set(i, before + y[i] + after);
  }
  if (!IsFloating(c.type(0).dtype)) {
    SLUICE_RETURN_IF_ERROR(
        CheckHolds(c.type(0).dtype, c.attrs().NumberOf("value")));
  }
  c.SetOutput(0, y);
  return {};
}

Outputs PadGradient(const Node& node, const Outputs& dy) {
  const auto& paddings = node.attrs().Ints("paddings");
  StridedSliceOptions inside;
  for (size_t i = 0; i < paddings.size() / 2; ++i) {
    const int64_t before = paddings[2 * i], after = paddings[2 * i + 1];
    inside.begin.push_back(before);
    inside.end.push_back(-after);
    if (before == 0) inside.begin_mask |= int64_t{1} << i;
    if (after == 0) inside.end_mask |= int64_t{1} << i;
  }
  return {StridedSlice(dy[0], inside)};
}

Status CastPadShape(InferContext& c) {
  Shape y = c.input(0);
  const int64_t axis = c.attrs().Int("axis"), size = c.attrs().Int("size");
  if (axis < 0 || axis >= y.rank()) {
    return InvalidArgument(
        fmt::format("x={} has no dimension {}", y.ToString(), axis));
  }
  const int d = static_cast<int>(axis);
  if (size < y[d] || size < 0 || size > kFarthest) {
    return InvalidArgument(fmt::format("dimension {} of {} cannot grow to {}",
                                       axis, y.ToString(), size));
  }
  if (!IsFloating(c.attrs().Type("to"))) {
    return InvalidArgument("`to` must be a floating dtype");
  }
  y.set(d, size);
  c.SetOutput(0, y);
  return {};
}

constexpr FixedList<AttrDef, 10> kStridedAttrs = {{"begin", AttrType::kInts},
                                                  {"end", AttrType::kInts},
                                                  {"strides", AttrType::kInts},
                                                  {"begin_mask", 0},
                                                  {"end_mask", 0}};

bool PartialOfSlice(const Node& node, int depth, Shape* elements) {
  const Shape& vector = node.input(0).shape();
  // A Shape holds no more.
  if (vector.rank() != 1 || vector[0] == kUnknown ||
      vector[0] > Shape::kMaxRank) {
    return false;
  }
  Shape whole;
  if (!PartialOfInputs(node, depth, &whole)) return false;
  const auto begin = static_cast<int>(node.attrs().Ints("begin")[0]);
  const auto count = static_cast<int>(node.output_type(0).shape[0]);
  for (int i = begin; i < begin + count; ++i) elements->push_back(whole[i]);
  return true;
}

constexpr OpDef kSliceOps[] = {
    {.name = "Slice",
     .doc =
         "size[i] elements from begin[i] on in each dimension; -1: the rest.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"begin", AttrType::kInts}, {"size", AttrType::kInts}},
     .shape = SliceShape,
     .gradient = SliceGradient,
     .partial = PartialOfSlice,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {4, 5}}},
                 .attrs = {{"begin", Ints{1, 0}}, {"size", Ints{2, -1}}}},
                {.inputs = {{.shape = {3, 4, 2}}},
                 .attrs = {{"begin", Ints{0, 1, 1}},
                           {"size", Ints{-1, 2, 1}}}}}},
    {.name = "StridedSlice",
     .doc = "NumPy's x[begin:end:stride] for the leading dimensions.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = kStridedAttrs,
     .shape = StridedSliceShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {PutSlice(dy[0], node.input(0), node.attrs())};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {5, 6, 2}}},
                 .attrs = {{"begin", Ints{1, -1}},
                           {"end", Ints{5, -7}},
                           {"strides", Ints{2, -2}}}},
                {.inputs = {{.shape = {4, 3}}},
                 .attrs = {{"begin", Ints{0, 1}},
                           {"end", Ints{0, -1}},
                           {"strides", Ints{-1, 1}},
                           {"begin_mask", 1},
                           {"end_mask", 1}}}}},
    {.name = "StridedSliceGrad",
     .former_name = "StridedSliceGradient",
     .doc = "Zeros of the given shape with dy where StridedSlice reads.",
     .made_by = MadeBy::kGradients,
     .inputs = {{"dy"}, {"shape", "int64"}},
     .types = {{"T", kAnyType}},
     .attrs = kStridedAttrs,
     .shape = StridedSliceGradShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {
           dy[0].graph().Add({"StridedSlice", {dy[0]}, node.attrs()}).output(0),
           {}};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3, 2}},
                            {.shape = {3}, .values = {5, 6, 2}}},
                 .attrs = {{"begin", Ints{1, -1}},
                           {"end", Ints{5, -7}},
                           {"strides", Ints{2, -2}}}}}},
    {.name = "Pad",
     .doc = "`value` put around x: before and after each dimension.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = {{"paddings", AttrType::kInts},
               {"value", AttrLiteral::OfNumber(0)}},
     .shape = PadShape,
     .gradient = PadGradient,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}},
                 .attrs = {{"paddings", Ints{1, 0, 2, 1}}, {"value", 1.0}}},
                {.inputs = {{.shape = {2, 3, 2}}},
                 .attrs = {{"paddings", Ints{0, 0, 1, 1, 0, 2}}}}}},
    // The pass that pads channels makes it, after gradients were taken.
    {.name = "CastPad",
     .doc = "x converted to dtype `to`, with zeros behind dimension `axis` up "
            "to `size`.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .outputs = {{"y", "to"}},
     .attrs = {{"to", AttrType::kDType},
               {"axis", AttrType::kInt},
               {"size", AttrType::kInt}},
     .shape = CastPadShape,
     .gradient = NotDifferentiable,
     .probes =
         {{.inputs = {{.shape = {2, 3, 3}}},
           .attrs = {{"to", DType::kFloat16}, {"axis", 2}, {"size", 4}}},
          {.inputs = {{.shape = {5, 2, 3}}},
           .attrs = {{"to", DType::kBFloat16}, {"axis", 1}, {"size", 3}}},
          {.inputs = {{.shape = {4, 5}}},
           .attrs = {{"to", DType::kFloat32}, {"axis", 0}, {"size", 4}}}}},
};

}  // namespace

std::span<const OpDef> SliceOps() {
  return kSliceOps;
}

Output Slice(Operand x, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& size) {
  return x.graph()
      .Add({"Slice", {x}, {{"begin", begin}, {"size", size}}})
      .output(0);
}
Output StridedSlice(Operand x, const StridedSliceOptions& options) {
  return x.graph().Add({"StridedSlice", {x}, AttributesOf(options)}).output(0);
}
Output Pad(Operand x, const std::vector<int64_t>& paddings,
           const Number& value) {
  // Here rather than by the shape function: mixed precision may turn the node
  // to a dtype that cannot hold the value, which is an infinity then.
  if (Status held = CheckHolds(x.tensor().dtype(), value); !held.ok()) {
    throw Error(held.code(), fmt::format("Pad: {} ({})", held.message(),
                                         FormatLocation(x.location())));
  }
  return x.graph()
      .Add({"Pad", {x}, {{"paddings", paddings}, {"value", value}}})
      .output(0);
}

}  // namespace sluice
