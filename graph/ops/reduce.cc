#include "graph/ops/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/ops/axes.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/expression.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// --- Shapes ------------------------------------------------------------------

// The axes an op reduces, ascending and not negative.
Result<Axes> ReducedAxes(const Axes& given, int rank) {
  SLUICE_ASSIGN_OR_RETURN(Axes axes, NormalizeAxes(given, rank));
  for (int a = 0; given.empty() && a < rank; ++a) axes.push_back(a);
  std::sort(axes.begin(), axes.end());
  return axes;
}

Shape WithoutAxes(const Shape& shape, const Axes& axes, bool keep_dims) {
  Shape out;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), d);
    if (!reduced) out.push_back(shape[d]);
    if (reduced && keep_dims) out.push_back(1);
  }
  return out;
}

Status ReduceShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(
      const Axes axes, ReducedAxes(c.attrs().Ints("axes"), c.input(0).rank()));
  c.SetOutput(0, WithoutAxes(c.input(0), axes, c.attrs().Bool("keep_dims")));
  return {};
}

Status ArgShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(
      const int axis, NormalizeAxis(c.attrs().Int("axis"), c.input(0).rank()));
  if (c.input(0)[axis] == 0) {
    return InvalidArgument(fmt::format("axis {} is empty", axis));
  }
  c.SetOutput(0, WithoutAxes(c.input(0), {axis}, c.attrs().Bool("keep_dims")));
  return {};
}

Status ScanShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(
      NormalizeAxis(c.attrs().Int("axis"), c.input(0).rank()).status());
  return SameShape(c);
}

Status SumToShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape to, FullShapeOperand(c, 1));
  const Shape& x = c.input(0);
  bool fits = to.rank() <= x.rank();
  for (int d = 1; fits && d <= to.rank(); ++d) {
    fits = to[-d] == 1 || to[-d] == kUnknown || x[-d] == kUnknown ||
           to[-d] == x[-d];
  }
  if (!fits) {
    return InvalidArgument(fmt::format("{} does not broadcast to {}",
                                       to.ToString(), x.ToString()));
  }
  c.SetOutput(0, to);
  return {};
}

// --- Gradients ---------------------------------------------------------------

Axes AxesOf(const Node& node) {
  return *ReducedAxes(node.attrs().Ints("axes"), node.input(0).shape().rank());
}

// An output, or its gradient, with the reduced dimensions put back as 1.
Output KeepDims(const Node& node, Output reduced) {
  if (node.attrs().Bool("keep_dims")) return reduced;
  for (int64_t axis : AxesOf(node)) reduced = ExpandDims(reduced, axis);
  return reduced;
}

Outputs SumGradient(const Node& node, const Outputs& dy) {
  return {BroadcastToShapeOf(KeepDims(node, dy[0]), node.input(0))};
}

Outputs MeanGradient(const Node& node, const Outputs& dy) {
  const Output x = node.input(0), y = node.output(0);
  // In float64, and multiplied in float32 at least: a float16 neither counts
  // beyond 65504 nor holds the shares of so many. Of nothing there is nothing
  // to share, and no infinity for a second gradient to multiply by 0.
  const Output share = Cast(Size(y), DType::kFloat64) /
                       Cast(Maximum(Size(x), 1), DType::kFloat64);
  const DType wide = ComputeDType(x.dtype());
  const Output dx = CastTo(KeepDims(node, dy[0]), wide) * Cast(share, wide);
  return {BroadcastToShapeOf(CastTo(dx, x.dtype()), x)};
}

// Of Max and Min: elements that tie share equally.
Outputs ExtremeGradient(const Node& node, const Outputs& dy) {
  const Output x = node.input(0);
  const Output tied = Equal(x, KeepDims(node, node.output(0)));
  return {SharedByTied(tied, KeepDims(node, dy[0]), AxesOf(node))};
}

Outputs LogSumExpGradient(const Node& node, const Outputs& dy) {
  const Output x = node.input(0);
  // Where |y| is large its rounding scales all weights alike: divided by their
  // sum they are right.
  const Output weights = Exp(x - KeepDims(node, node.output(0)));
  const Output sum = Sum(weights, AxesOf(node), true);
  return {KeepDims(node, dy[0]) / sum * weights};
}

Output ProdGrad(const Output& dy, const Output& x, int64_t axis) {
  return dy.graph().Add({"ProdGrad", {dy, x}, {{"axis", axis}}}).output(0);
}

// As if one axis after another had been reduced; in float64, since the products
// over some of them may lie outside x's range where that over all does not.
Outputs ProdGradient(const Node& node, const Outputs& dy) {
  const Axes axes = AxesOf(node);
  const Output x = node.input(0);
  const DType wide = axes.size() > 1 ? DType::kFloat64 : x.dtype();
  Outputs partial = {CastTo(x, wide)};
  for (int64_t axis : axes) {
    partial.push_back(Prod(partial.back(), {axis}, true));
  }
  Output gradient = CastTo(KeepDims(node, dy[0]), wide);
  for (size_t i = axes.size(); i-- > 0;) {
    gradient = ProdGrad(gradient, partial[i], axes[i]);
  }
  return {CastTo(gradient, x.dtype())};
}

// ProdGrad as a product over a square whose diagonal is 1.
Outputs ProdGradExpression(const Node& node, const Outputs& inputs) {
  const Output dy = inputs[0], x = inputs[1];
  const int64_t axis =
      *NormalizeAxis(node.attrs().Int("axis"), x.shape().rank());
  const Output index = CumSum(Cast(OnesLike(x), DType::kFloat32), axis);
  const Output diagonal =
      Equal(ExpandDims(index, axis), ExpandDims(index, axis + 1));
  const Output square = Select(diagonal, 1, ExpandDims(x, axis));
  return {dy * Prod(square, {axis + 1})};
}

Outputs CumSumGradient(const Node& node, const Outputs& dy) {
  return {CumSum(dy[0], node.attrs().Int("axis"),
                 {.exclusive = node.attrs().Bool("exclusive"),
                  .reverse = !node.attrs().Bool("reverse")})};
}

// --- Records -----------------------------------------------------------------

constexpr Probe Over(Ints shape, Ints axes, bool keep_dims) {
  return {.inputs = {{.shape = shape}},
          .attrs = {{"axes", axes}, {"keep_dims", keep_dims}}};
}

constexpr OpDef Reduction(const char* name, const char* doc,
                          GradientFn gradient, DTypeSet types) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .types = {{"T", types}},
          .attrs = {{"axes", Ints{}}, {"keep_dims", false}},
          .shape = ReduceShape,
          .gradient = gradient,
          .probes = {Over({7}, {}, false), Over({3, 20}, {1}, true),
                     Over({20, 3}, {0}, false), Over({2, 3, 4}, {-2}, false),
                     Over({2, 3, 2, 3}, {0, 2}, true),
                     Over({2, 3, 2, 3}, {1, 3}, false)}};
}

constexpr OpDef SumOp() {
  OpDef op = Reduction("Sum", "Sum over axes; integers wrap around.",
                       SumGradient, kNumeric);
  op.sums = true;
  return op;
}

// A mean lies among its operands, so half can hold it as a pool's.
constexpr OpDef MeanOp() {
  OpDef op = Reduction("Mean", "Mean over axes.", MeanGradient, kFloating);
  op.averages = true;
  op.half = HalfRule::kFollow;
  return op;
}

constexpr OpDef ProdOp() {
  OpDef op = Reduction("Prod", "Product over axes.", ProdGradient, kNumeric);
  op.probes = {
      Over({5}, {}, false),
      Over({2, 3, 2}, {0, -1}, true),
      Over({2, 4, 2}, {1}, false),
      {.inputs = {{.shape = {2, 4}, .values = {0, 1.5, 2, 3, 0, 0, 1, 2}}},
       .attrs = {{"axes", Ints{1}}}}};
  return op;
}

constexpr OpDef ProdGradOp() {
  return {.name = "ProdGrad",
          .doc = "dy times, for each x, the product of the others on the axis.",
          .made_by = MadeBy::kGradients,
          .inputs = {{"dy"}, {"x"}},
          .attrs = {{"axis", AttrType::kInt}},
          .shape = [](InferContext& c) -> Status {
            const Shape& x = c.input(1);
            SLUICE_ASSIGN_OR_RETURN(
                const int axis, NormalizeAxis(c.attrs().Int("axis"), x.rank()));
            Shape product = x;
            product.set(axis, 1);
            if (!Compatible(product, c.input(0))) {
              return InvalidArgument(
                  fmt::format("dy must have shape {}, x's with "
                              "axis {} of size 1",
                              product.ToString(), axis));
            }
            c.SetOutput(0, x);
            return {};
          },
          .gradient = [](const Node& node, const Outputs& dz) -> Outputs {
            return GradientOfExpression(node, dz, ProdGradExpression);
          },
          .probes = {{.inputs = {{.shape = {2, 1, 2}}, {.shape = {2, 3, 2}}},
                      .attrs = {{"axis", 1}}},
                     {.inputs = {{.shape = {2, 1}},
                                 {.shape = {2, 4},
                                  .values = {0, 1.5, 2, 3, 0, 0, 1, 2}}},
                      .attrs = {{"axis", -1}}}}};
}

constexpr OpDef ArgOp(const char* name, const char* doc) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .outputs = {{"y", "int64"}},
          .types = {{"T", kNumeric}},
          .attrs = {{"axis", -1}, {"keep_dims", false}},
          .shape = ArgShape,
          .gradient = NotDifferentiable,
          .probes = {{.inputs = {{.shape = {7, 3}}}},
                     {.inputs = {{.shape = {3, 20, 2}}},
                      .attrs = {{"axis", 1}, {"keep_dims", true}}},
                     {.inputs = {{.shape = {4, 5}, .values = {1, 3, 3, 2}}},
                      .attrs = {{"axis", 0}}}}};
}

constexpr Probe Scanning(Ints shape, int axis, bool exclusive, bool reverse) {
  return {.inputs = {{.shape = shape}},
          .attrs = {
              {"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}};
}

constexpr OpDef CumSumOp() {
  return {.name = "CumSum",
          .doc = "Running sums along an axis.",
          .inputs = {{"x"}},
          .types = {{"T", kNumeric}},
          .attrs = {{"axis", AttrType::kInt},
                    {"exclusive", false},
                    {"reverse", false}},
          .shape = ScanShape,
          .gradient = CumSumGradient,
          .inplace = {0},
          .probes = {Scanning({7}, 0, false, false),
                     Scanning({2, 5, 3}, 1, true, false),
                     Scanning({4, 3}, 0, false, true),
                     Scanning({3, 4}, -1, true, true)}};
}

constexpr Probe Undoing(Ints from, FixedList<double, 8> to) {
  return {.inputs = {{.shape = from}, {.shape = {to.size()}, .values = to}}};
}

constexpr OpDef SumToOp() {
  return {.name = "SumTo",
          .doc = "x summed to a shape that broadcasts to x's.",
          .inputs = {{"x"}, {"shape", "S"}},
          .types = {{"T", kNumeric}, {"S", kIndex}},
          .shape = SumToShape,
          .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
            return {BroadcastToShapeOf(dy[0], node.input(0)), Output()};
          },
          .sums = true,
          .probes = {Undoing({4, 3}, {3}), Undoing({2, 3, 4}, {3, 1}),
                     Undoing({2, 3, 20}, {2, 1, 20}), Undoing({2, 3}, {2, 3}),
                     Undoing({2, 3, 2}, {1, 3, 1})}};
}

constexpr OpDef AllFiniteOp() {
  return {
      .name = "AllFinite",
      .doc = "Is no element of any operand infinite or NaN?",
      .inputs = {{.name = "tensors", .variadic = true}},
      .outputs = {{"y", "bool"}},
      .shape = ScalarShape,
      .gradient = NotDifferentiable,
      .asks_finite = true,
      .probes = {
          {.inputs = {{.shape = {37}}, {.shape = {2, 3}}}},
          {.inputs = {{.shape = {3}, .values = {0, 1, -3}},
                      {.shape = {}, .values = {-__builtin_inf()}}}},
          {.inputs = {{.shape = {40000}, .values = {1, __builtin_nan("")}}}}}};
}

// What the fusion pass makes of AllFinite of products, which then need not be
// there: those of an optimizer's gradients, whose update multiplies them too.
// Products are rounded to the scale's dtype.
constexpr OpDef AllFiniteScaledOp() {
  OpDef op = AllFiniteOp();
  op.name = "AllFiniteScaled";
  op.made_by = MadeBy::kEngine;
  op.doc = "Is no product of scale and any operand's element infinite or NaN?";
  op.inputs = {{"scale"},
               {.name = "tensors", .type = kTOrHalf, .variadic = true}};
  op.types = {{"T", DType::kFloat32}};
  op.probes = {{.inputs = {{.values = {0.5}}, {.shape = {37}}, {.shape = {}}}},
               {.inputs = {{.values = {1e35}},
                           {.shape = {5}},
                           {.shape = {4000}, .values = {0, 1}, .half = true}}},
               {.inputs = {{.values = {1e35}},
                           {.shape = {4000}, .values = {1, 1e4}, .half = true},
                           {.shape = {5}}}},
               {.inputs = {{.values = {1e30}},
                           {.shape = {2, 3}},
                           {.shape = {40000}, .values = {1, 1e30}}}},
               {.inputs = {{.values = {__builtin_inf()}}, {.shape = {3}}}}};
  return op;
}

constexpr OpDef kReduceOps[] = {
    SumOp(),
    MeanOp(),
    ProdOp(),
    ProdGradOp(),
    Reduction(
        "Max",
        "Largest over axes; NaN if any is. Equal ones share the gradient.",
        ExtremeGradient, kNumeric),
    Reduction("Min",
              "Smallest over axes; NaN if any is. Equal ones share the "
              "gradient.",
              ExtremeGradient, kNumeric),
    Reduction("LogSumExp", "log(sum(exp(x))) over axes, without overflow.",
              LogSumExpGradient, kFloating),
    Reduction("Any", "Does any hold, over axes?", NotDifferentiable,
              DType::kBool),
    Reduction("All", "Do all hold, over axes?", NotDifferentiable,
              DType::kBool),
    ArgOp("ArgMax",
          "Position of the largest along an axis, the first if many."),
    ArgOp("ArgMin",
          "Position of the smallest along an axis, the first if many."),
    AllFiniteOp(),
    AllFiniteScaledOp(),
    CumSumOp(),
    SumToOp(),
};

Output Reduce(const char* op, const Operand& x, const Axes& axes,
              bool keep_dims) {
  return x.graph()
      .Add({op, {x}, {{"axes", axes}, {"keep_dims", keep_dims}}})
      .output(0);
}

Output Arg(const char* op, const Operand& x, int64_t axis, bool keep_dims) {
  return x.graph()
      .Add({op, {x}, {{"axis", axis}, {"keep_dims", keep_dims}}})
      .output(0);
}

}  // namespace

std::span<const OpDef> ReduceOps() {
  return kReduceOps;
}

Output Sum(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Sum", x, axes, keep_dims);
}
Output Prod(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Prod", x, axes, keep_dims);
}
Output Mean(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Mean", x, axes, keep_dims);
}
Output Max(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Max", x, axes, keep_dims);
}
Output Min(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Min", x, axes, keep_dims);
}
Output LogSumExp(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("LogSumExp", x, axes, keep_dims);
}
Output Any(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("Any", x, axes, keep_dims);
}
Output All(Operand x, const Axes& axes, bool keep_dims) {
  return Reduce("All", x, axes, keep_dims);
}
Output ArgMax(Operand x, int64_t axis, bool keep_dims) {
  return Arg("ArgMax", x, axis, keep_dims);
}
Output ArgMin(Operand x, int64_t axis, bool keep_dims) {
  return Arg("ArgMin", x, axis, keep_dims);
}

Output AllFinite(const std::vector<Output>& tensors) {
  if (tensors.empty()) {
    throw Error(Code::kInvalidArgument, "AllFinite: no tensors given");
  }
  NodeRequest request{"AllFinite", {}};
  for (const Output& tensor : tensors) request.inputs.emplace_back(tensor);
  Graph& graph = request.inputs[0].graph();
  return graph.Add(std::move(request)).output(0);
}

Output CumSum(Operand x, int64_t axis, const CumSumOptions& options) {
  return x.graph()
      .Add({"CumSum",
            {x},
            {{"axis", axis},
             {"exclusive", options.exclusive},
             {"reverse", options.reverse}}})
      .output(0);
}

Output SumTo(Operand x, const ShapeOperand& shape) {
  const Operand dims = shape.In(x.graph(), x.location());
  return x.graph().Add({"SumTo", {x, dims}}).output(0);
}

Output SumToShapeOf(Operand x, Operand like) {
  const Shape& from = x.tensor().shape();
  const Shape& to = like.tensor().shape();
  if (from.concrete() && from == to) return x.output();
  return SumTo(x, to.concrete() ? ShapeOperand(to) : ShapeOf(like));
}

}  // namespace sluice
