#include "graph/ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/reduce.h"
#include "graph/ops/tables.h"
#include "graph/ops/unary.h"

namespace sluice {
namespace {

// The gradient of y = f(x) from a rule (dy, x, y) -> dx.
template <auto kRule>
Outputs Rule(const Node& node, const Outputs& dy) {
  return {kRule(dy[0], node.input(0), node.output(0))};
}

// Probes of x uniform in [lo, hi]; the larger one fills vector registers.
constexpr FixedList<Probe, 6> ProbesIn(double lo, double hi) {
  return {{.inputs = {{.shape = {2, 3}, .lo = lo, .hi = hi}}},
          {.inputs = {{.shape = {37}, .lo = lo, .hi = hi}}},
          {.inputs = {{.shape = {}, .lo = lo, .hi = hi}}}};
}

constexpr OpDef Unary(const char* name, const char* doc, GradientFn gradient,
                      double lo = -2, double hi = 2,
                      DTypeSet types = kFloating) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .types = {{"T", types}},
          .gradient = gradient,
          .elementwise = true,
          .inplace = {0},
          .probes = ProbesIn(lo, hi)};
}

constexpr OpDef Predicate(const char* name, const char* doc) {
  OpDef op = Unary(name, doc, NotDifferentiable);
  op.outputs = {{"y", "bool"}};
  op.probes = {
      {.inputs = {{.shape = {8},
                   .values = {0, 1, -3, __builtin_inf(), -__builtin_inf(),
                              __builtin_nan(""), -0.0, 1e9}}}},
      {.inputs = {{.shape = {37}}}}};
  return op;
}

constexpr OpDef LogicalNotOp() {
  OpDef op =
      Unary("LogicalNot", "y = not x.", NotDifferentiable, 0, 1, DType::kBool);
  return op;
}

// Integers that the other dtype holds, too, stay what they are; beyond its
// range they would wrap around, and in floats be rounded.
bool PartialOfCast(const Node& node, int depth, Shape* elements) {
  const DType from = node.input(0).dtype(), to = node.attrs().Type("to");
  if (!IsInteger(from) || !IsInteger(to)) return false;
  const int before = elements->rank();
  return PartialOfInputs(node, depth, elements) &&
         std::all_of(elements->begin() + before, elements->end(),
                     [&](int64_t d) { return CheckHolds(to, d).ok(); });
}

constexpr OpDef CastOp() {
  OpDef op = Unary(
      "Cast", "x converted to dtype `to`.",
      [](const Node& node, const Outputs& dy) -> Outputs {
        const DType from = node.input(0).dtype();
        return {IsFloating(from) ? Cast(dy[0], from) : Output()};
      },
      -100, 100, kAnyType);
  op.outputs = {{"y", "to"}};
  op.partial = PartialOfCast;
  op.attrs = {{"to", AttrType::kDType}};
  op.probes = {
      {.inputs = {{.shape = {37}}}, .attrs = {{"to", DType::kFloat64}}},
      {.inputs = {{.shape = {2, 3}}}, .attrs = {{"to", DType::kFloat32}}},
      {.inputs = {{.shape = {37}, .lo = -9, .hi = 9}},
       .attrs = {{"to", DType::kInt32}}},
      {.inputs = {{.shape = {5}}}, .attrs = {{"to", DType::kBool}}},
      {.inputs = {{.shape = {37}}}, .attrs = {{"to", DType::kFloat16}}},
      {.inputs = {{.shape = {37}}}, .attrs = {{"to", DType::kBFloat16}}}};
  return op;
}

Status CastListShape(InferContext& c) {
  if (!IsHalf(c.attrs().Type("to"))) {
    return InvalidArgument(
        fmt::format("wanted 'to' float16 or bfloat16, got {}",
                    NameOf(c.attrs().Type("to"))));
  }
  c.SetNumOutputs(c.num_inputs());
  for (int i = 0; i < c.num_inputs(); ++i) c.SetOutput(i, c.input(i));
  return {};
}

// What the fusion pass makes of the half copies of a step's variables.
constexpr OpDef CastListOp() {
  constexpr Probe kProbe = {.inputs = {{.shape = {37}},
                                       {.shape = {}},
                                       {.shape = {40, 3000}, .hi = 1e5}}};
  Probe to_half = kProbe, to_bfloat = kProbe;
  to_half.attrs = {{"to", DType::kFloat16}};
  to_bfloat.attrs = {{"to", DType::kBFloat16}};
  return {.name = "CastList",
          .doc = "Tensors converted to half dtype `to`, all in one pass.",
          .made_by = MadeBy::kEngine,
          .inputs = {{.name = "tensors", .variadic = true}},
          .outputs = {{.name = "halves", .type = "to", .variadic = true}},
          .types = {{"T", DType::kFloat32}},
          .attrs = {{"to", AttrType::kDType}},
          .shape = CastListShape,
          .gradient = NotDifferentiable,
          .probes = {to_half, to_bfloat}};
}

// A bound beside x: what x's dtype cannot hold is an infinity there.
Output BoundBeside(const Output& x, const Number& bound) {
  return x.graph().Constant(
      Tensor::Full(DType::kFloat64, {}, bound).Cast(x.dtype()));
}

Status CheckBounds(const Attributes& attrs, DType dtype) {
  const Number lo = attrs.NumberOf("lo"), hi = attrs.NumberOf("hi");
  if (!(lo <= hi)) {
    return InvalidArgument(fmt::format("wanted lo <= hi, got {} and {}",
                                       lo.ToString(), hi.ToString()));
  }
  if (IsFloating(dtype)) return {};
  if (lo.real() != -INFINITY) SLUICE_RETURN_IF_ERROR(CheckHolds(dtype, lo));
  if (hi.real() != INFINITY) SLUICE_RETURN_IF_ERROR(CheckHolds(dtype, hi));
  return {};
}

constexpr OpDef ClipOp() {
  OpDef op = Unary(
      "Clip", "x limited to [lo, hi]; at either the slope is 1.",
      [](const Node& node, const Outputs& dy) -> Outputs {
        const Output& x = node.input(0);
        const Output inside = LogicalAnd(
            GreaterEqual(x, BoundBeside(x, node.attrs().NumberOf("lo"))),
            LessEqual(x, BoundBeside(x, node.attrs().NumberOf("hi"))));
        return {Select(inside, dy[0], 0)};
      },
      -9, 9, kNumeric);
  op.attrs = {{"lo", AttrType::kNumber}, {"hi", AttrType::kNumber}};
  op.shape = [](InferContext& c) -> Status {
    SLUICE_RETURN_IF_ERROR(CheckBounds(c.attrs(), c.type(0).dtype));
    return SameShape(c);
  };
  op.probes = {{.inputs = {{.shape = {37}, .lo = -9, .hi = 9}},
                .attrs = {{"lo", 1.0}, {"hi", 4.0}}}};
  return op;
}

constexpr OpDef SelectOp() {
  return {
      .name = "Select",
      .doc = "a where condition holds, b elsewhere.",
      .inputs = {{"condition", "bool"}, {"a"}, {"b"}},
      .types = {{"T", kAnyType}},
      .shape = BroadcastShape,
      .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
        const Output& condition = node.input(0);
        return {Output(),
                SumToShapeOf(Select(condition, dy[0], 0), node.input(1)),
                SumToShapeOf(Select(condition, 0, dy[0]), node.input(2))};
      },
      .elementwise = true,
      .inplace = {1, 2, 0},
      .probes = {
          {.inputs = {{.shape = {37}}, {.shape = {37}}, {.shape = {37}}}},
          {.inputs = {{.shape = {2, 1, 5}}, {.shape = {3, 1}}, {.shape = {}}}},
          {.inputs = {{.shape = {3, 1}}, {.shape = {5}}, {.shape = {3, 5}}}},
          {.inputs = {{.shape = {}}, {.shape = {2, 3}}, {.shape = {2, 1}}}}}};
}

constexpr OpDef AddNOp() {
  return {.name = "AddN",
          .doc = "The sum of tensors of one shape, from left to right.",
          .inputs = {{.name = "terms", .variadic = true}},
          .types = {{"T", kNumeric}},
          .shape = [](InferContext& c) -> Status {
            if (c.num_inputs() == 0) return InvalidArgument("nothing to add");
            Shape shape = c.input(0);
            for (int i = 1; i < c.num_inputs(); ++i) {
              if (!Compatible(shape, c.input(i))) {
                return InvalidArgument("the terms differ in shape");
              }
              for (int d = 0; d < shape.rank(); ++d) {
                if (shape[d] == kUnknown) shape.set(d, c.input(i)[d]);
              }
            }
            c.SetOutput(0, shape);
            return {};
          },
          .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
            return Outputs(node.num_inputs(), dy[0]);
          },
          .elementwise = true,
          .inplace = {0},
          .scalar = "Add",
          .probes = {{.inputs = {{.shape = {5, 3}}}},
                     {.inputs = {
                          {.shape = {37}}, {.shape = {37}}, {.shape = {37}}}}}};
}

constexpr OpDef kElementwiseOps[] = {
    Follows(Unary("Neg", "-x.", Rule<[](auto dy, auto, auto) { return -dy; }>,
                  -2, 2, kNumeric)),
    Follows(Unary("Abs", "|x|; at 0 the slope is 0.",
                  Rule<[](auto dy, auto x, auto) { return dy * Sign(x); }>, 0.1,
                  2, kNumeric)),
    Follows(Unary("Sign", "-1, 0 or 1.", NotDifferentiable, -2, 2, kNumeric)),
    Unary("Square", "x x.",
          Rule<[](auto dy, auto x, auto) { return dy * 2 * x; }>, -2, 2,
          kNumeric),
    Unary("Exp", "e^x.", Rule<[](auto dy, auto, auto y) { return dy * y; }>),
    Unary("Expm1", "e^x - 1, precise near 0.",
          Rule<[](auto dy, auto, auto y) { return dy * (y + 1); }>),
    Unary("Log", "Natural logarithm.",
          Rule<[](auto dy, auto x, auto) { return dy / x; }>, 0.3, 3),
    Unary("Log1p", "log(1 + x), precise near 0.",
          Rule<[](auto dy, auto x, auto) { return dy / (x + 1); }>, -0.6, 3),
    Unary("Sqrt", "Square root.",
          Rule<[](auto dy, auto, auto y) { return dy * 0.5 / y; }>, 0.3, 3),
    Unary("Rsqrt", "1 / sqrt(x).",
          Rule<[](auto dy, auto, auto y) { return dy * -0.5 * (y * y * y); }>,
          0.3, 3),
    Unary("Reciprocal", "1 / x.",
          Rule<[](auto dy, auto, auto y) { return -dy * (y * y); }>, 0.3, 3),
    Follows(Unary("Sin", "Sine.",
                  Rule<[](auto dy, auto x, auto) { return dy * Cos(x); }>)),
    Follows(Unary("Cos", "Cosine.",
                  Rule<[](auto dy, auto x, auto) { return -dy * Sin(x); }>)),
    Unary("Tan", "Tangent.",
          Rule<[](auto dy, auto, auto y) { return dy * (y * y + 1); }>, -1, 1),
    Unary("Asin", "Arc sine.",
          Rule<[](auto dy, auto x, auto) { return dy * Rsqrt(1 - x * x); }>,
          -0.8, 0.8),
    Unary("Acos", "Arc cosine.",
          Rule<[](auto dy, auto x, auto) { return -dy * Rsqrt(1 - x * x); }>,
          -0.8, 0.8),
    Unary("Atan", "Arc tangent.",
          Rule<[](auto dy, auto x, auto) { return dy / (x * x + 1); }>),
    Unary("Sinh", "Hyperbolic sine.",
          Rule<[](auto dy, auto x, auto) { return dy * Cosh(x); }>),
    Unary("Cosh", "Hyperbolic cosine.",
          Rule<[](auto dy, auto x, auto) { return dy * Sinh(x); }>),
    Follows(Unary("Tanh", "Hyperbolic tangent.",
                  Rule<[](auto dy, auto, auto y) { return TanhGrad(dy, y); }>)),
    Unary("Erf", "Error function.", Rule<[](auto dy, auto x, auto) {
            constexpr double kSlopeAt0 = 1.1283791670955126;  // 2 / sqrt(pi)
            return dy * kSlopeAt0 * Exp(-(x * x));
          }>),
    Follows(Unary("Floor", "The integer below.", NotDifferentiable)),
    Follows(Unary("Ceil", "The integer above.", NotDifferentiable)),
    Follows(Unary("Round", "The nearest integer, halves to even.",
                  NotDifferentiable)),
    Predicate("IsNan", "Is x not a number?"),
    Predicate("IsInf", "Is x infinite?"),
    Predicate("IsFinite", "Is x neither infinite nor NaN?"),
    LogicalNotOp(),
    CastOp(),
    CastListOp(),
    Follows(ClipOp()),
    Follows(SelectOp()),
    Follows(AddNOp()),
};

}  // namespace

std::span<const OpDef> ElementwiseOps() {
  return kElementwiseOps;
}

// clang-format off
Output Neg(Operand x) { return AddUnary("Neg", x); }
Output Abs(Operand x) { return AddUnary("Abs", x); }
Output Sign(Operand x) { return AddUnary("Sign", x); }
Output Square(Operand x) { return AddUnary("Square", x); }
Output Exp(Operand x) { return AddUnary("Exp", x); }
Output Expm1(Operand x) { return AddUnary("Expm1", x); }
Output Log(Operand x) { return AddUnary("Log", x); }
Output Log1p(Operand x) { return AddUnary("Log1p", x); }
Output Sqrt(Operand x) { return AddUnary("Sqrt", x); }
Output Rsqrt(Operand x) { return AddUnary("Rsqrt", x); }
Output Reciprocal(Operand x) { return AddUnary("Reciprocal", x); }
Output Sin(Operand x) { return AddUnary("Sin", x); }
Output Cos(Operand x) { return AddUnary("Cos", x); }
Output Tan(Operand x) { return AddUnary("Tan", x); }
Output Asin(Operand x) { return AddUnary("Asin", x); }
Output Acos(Operand x) { return AddUnary("Acos", x); }
Output Atan(Operand x) { return AddUnary("Atan", x); }
Output Sinh(Operand x) { return AddUnary("Sinh", x); }
Output Cosh(Operand x) { return AddUnary("Cosh", x); }
Output Tanh(Operand x) { return AddUnary("Tanh", x); }
Output Erf(Operand x) { return AddUnary("Erf", x); }
Output Floor(Operand x) { return AddUnary("Floor", x); }
Output Ceil(Operand x) { return AddUnary("Ceil", x); }
Output Round(Operand x) { return AddUnary("Round", x); }
Output IsNan(Operand x) { return AddUnary("IsNan", x); }
Output IsInf(Operand x) { return AddUnary("IsInf", x); }
Output IsFinite(Operand x) { return AddUnary("IsFinite", x); }
Output LogicalNot(Operand x) { return AddUnary("LogicalNot", x); }
// clang-format on

Output Cast(Operand x, DType to) {
  return AddUnary("Cast", x, {{"to", to}});
}

Output Clip(Operand x, const Number& lo, const Number& hi) {
  return AddUnary("Clip", x, {{"lo", lo}, {"hi", hi}});
}

Output Select(Operand condition, Operand a, Operand b) {
  return condition.graph().Add({"Select", {condition, a, b}}).output(0);
}

Output AddN(const std::vector<Output>& terms) {
  if (terms.empty()) {
    throw Error(Code::kInvalidArgument, "AddN: nothing to add");
  }
  NodeRequest request{"AddN", {}};
  for (const Output& term : terms) request.inputs.emplace_back(term);
  Graph& graph = request.inputs[0].graph();
  return graph.Add(std::move(request)).output(0);
}

}  // namespace sluice
