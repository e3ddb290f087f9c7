#include "graph/ops/activation.h"

#include "graph/ops/elementwise.h"
#include "graph/ops/tables.h"
#include "graph/ops/unary.h"

namespace sluice {
namespace {

// The gradient op of an activation, dy f'(x), written in terms of y = f(x) or,
// where that does not do, of x.
Output Build(const char* op, const Operand& dy, const Operand& y_or_x,
             Attributes attrs = {}) {
  return dy.graph().Add({op, {dy, y_or_x}, std::move(attrs)}).output(0);
}

// Gradients: of y = f(x) by the op kGrad of (dy, y); the same of (dy, x).
template <const char* kGrad>
Outputs FromY(const Node& node, const Outputs& dy) {
  return {Build(kGrad, dy[0], node.output(0), node.attrs())};
}
template <const char* kGrad>
Outputs FromX(const Node& node, const Outputs& dy) {
  return {Build(kGrad, dy[0], node.input(0), node.attrs())};
}

// The gradient of a gradient op z = dy g(v), from a rule (node, v, g) -> g'(v)
// where g is z for dy = 1.
template <auto kRule>
Outputs Second(const Node& node, const Outputs& dz) {
  const Output dy = node.input(0), v = node.input(1);
  const Output dz_g = Build(node.op().name, dz[0], v, node.attrs());
  return {dz_g, kRule(dz[0] * dy, v, node)};
}

// Of a gradient op that is linear in pieces of v.
Outputs SecondOfPiecewise(const Node& node, const Outputs& dz) {
  return {Build(node.op().name, dz[0], node.input(1), node.attrs()), Output()};
}

// g Elu''(x), also Selu's: the first derivative below 0, else 0.
Output EluSecond(const Output& g, const Output& x, const Node& node) {
  return Select(Greater(x, 0), 0, Build(node.op().name, g, x, node.attrs()));
}

// The density of the standard normal distribution.
Output NormalDensity(const Output& x) {
  constexpr double kScale = 0.3989422804014327;  // 1 / sqrt(2 pi)
  return Exp(x * x * -0.5) * kScale;
}

// g Gelu''(x), both forms.
Output GeluSecond(const Output& g, const Output& operand, const Node& node) {
  // It is 0 beyond, where powers of x would be infinities times 0, in float16
  // early.
  const double bound = operand.dtype() == DType::kFloat64 ? 40 : 14;
  const Output x = Clip(operand, -bound, bound);
  if (!node.attrs().Bool("approximate")) {
    return g * NormalDensity(x) * (2 - x * x);
  }
  // y = x s(w) with w = c (x + k x^3) and s the sigmoid:
  // y'' = 2 w' s' + x (w'' s' + w'^2 s''), s' = s (1 - s), s'' = s' (1 - 2 s).
  constexpr double kC = 1.5957691216057308, kK = 0.044715;
  const Output x2 = x * x;
  const Output s = Sigmoid(x * (x2 * (kC * kK) + kC));
  const Output ds = s * (1 - s);
  const Output dw = x2 * (3 * kC * kK) + kC;
  const Output ddw = x * (6 * kC * kK);
  return g * ds * (2 * dw + x * (ddw + dw * dw * (1 - 2 * s)));
}

Status NonNegativeAlpha(InferContext& c) {
  if (!(c.attrs().Float("alpha") >= 0)) {
    return InvalidArgument("wanted alpha >= 0");
  }
  return SameShape(c);
}

Status EqualShapes(InferContext& c) {
  if (!Compatible(c.input(0), c.input(1))) {
    return InvalidArgument("the operands differ in shape");
  }
  return SameShape(c);
}

// Points on all sides of the kinks at 0 and 6.
constexpr ProbeInput kEverySide = {
    .shape = {37}, .values = {-2.1, 0.4, 1.7, -0.6, 6.5, -0.8, 0.9, 2.2}};

constexpr OpDef Activation(const char* name, const char* doc,
                           GradientFn gradient, ShapeFn shape = SameShape) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .shape = shape,
          .gradient = gradient,
          .elementwise = true,
          .inplace = {0},
          .half = HalfRule::kFollow,
          .probes = {{.inputs = {kEverySide}},
                     {.inputs = {{.shape = {3, 2}, .lo = 0.1, .hi = 3}}}}};
}

// A gradient op; `v` names its second operand, x or y.
constexpr OpDef GradientOp(const char* name, const char* doc, const char* v,
                           GradientFn gradient) {
  return {.name = name,
          .doc = doc,
          .made_by = MadeBy::kGradients,
          .inputs = {{"dy"}, {v}},
          .shape = EqualShapes,
          .gradient = gradient,
          .elementwise = true,
          .inplace = {0, 1},
          .half = HalfRule::kFollow,
          .probes = {
              {.inputs = {{.shape = {37}}, kEverySide}},
              {.inputs = {{.shape = {2, 3}}, {.shape = {2, 3}, .lo = 0.1}}}}};
}

// Has a builder, for the op of another family whose gradient it is.
constexpr OpDef Shared(OpDef op) {
  op.made_by = MadeBy::kUsers;
  return op;
}

constexpr OpDef With(OpDef op, AttrDef attr) {
  op.attrs = {attr};
  return op;
}

// Another probe with an attribute set.
constexpr OpDef Trying(OpDef op, AttrSetting setting) {
  const Probe first = op.probes[0];
  Probe other = first;
  other.attrs = {setting};
  op.probes = {first, op.probes[1], other};
  return op;
}

constexpr char kSigmoidGrad[] = "SigmoidGrad";
constexpr char kSoftplusGrad[] = "SoftplusGrad";
constexpr char kReluGrad[] = "ReluGrad";
constexpr char kRelu6Grad[] = "Relu6Grad";
constexpr char kLeakyReluGrad[] = "LeakyReluGrad";
constexpr char kEluGrad[] = "EluGrad";
constexpr char kSeluGrad[] = "SeluGrad";
constexpr char kGeluGrad[] = "GeluGrad";
constexpr char kSiluGrad[] = "SiluGrad";

constexpr AttrDef kLeakyAlpha = {"alpha", 0.01};
constexpr AttrDef kEluAlpha = {"alpha", 1.0};
constexpr AttrDef kApproximate = {"approximate", false};

// With the attribute `approximate`, which makes it another function.
constexpr OpDef Approximated(OpDef op, const char* function) {
  op = Trying(With(op, kApproximate), {"approximate", true});
  op.scalar_approximate = function;
  return op;
}

constexpr OpDef kActivationOps[] = {
    Activation("Sigmoid", "1 / (1 + e^-x).", FromY<kSigmoidGrad>),
    Activation("Softplus", "log(1 + e^x).", FromX<kSoftplusGrad>),
    Activation("Softsign", "x / (1 + |x|).",
               [](const Node& node, const Outputs& dy) -> Outputs {
                 return {dy[0] / Square(Abs(node.input(0)) + 1)};
               }),
    Activation("Relu", "max(x, 0); at 0 the slope is 0.", FromY<kReluGrad>),
    Activation("Relu6", "min(max(x, 0), 6); at 0 and at 6 the slope is 0.",
               FromY<kRelu6Grad>),
    Trying(With(Activation("LeakyRelu",
                           "x where x > 0, else alpha x; at 0 the slope is "
                           "alpha.",
                           FromY<kLeakyReluGrad>, NonNegativeAlpha),
                kLeakyAlpha),
           {"alpha", 0.3}),
    Trying(With(Activation("Elu",
                           "x where x > 0, else alpha (e^x - 1); at 0 the "
                           "slope is alpha.",
                           FromX<kEluGrad>, NonNegativeAlpha),
                kEluAlpha),
           {"alpha", 0.7}),
    Activation("Selu",
               "Elu that keeps mean 0 and variance 1; at 0 the slope is that "
               "below 0.",
               FromX<kSeluGrad>),
    Approximated(Activation("Gelu", "x times the normal distribution at x.",
                            FromX<kGeluGrad>),
                 "GeluTanh"),
    Activation("Silu", "x sigmoid(x).", FromX<kSiluGrad>),

    Shared(
        GradientOp("TanhGrad", "dy (1 - y^2).", "y",
                   Second<[](auto g, auto y, auto&) { return g * -2 * y; }>)),
    GradientOp(kSigmoidGrad, "dy y (1 - y).", "y",
               Second<[](auto g, auto y, auto&) { return g * (1 - 2 * y); }>),
    GradientOp(kSoftplusGrad, "dy sigmoid(x).", "x",
               Second<[](auto g, auto x, auto&) {
                 const Output s = Sigmoid(x);
                 return g * s * (1 - s);
               }>),
    GradientOp(kReluGrad, "dy where y > 0, else 0.", "y", SecondOfPiecewise),
    GradientOp(kRelu6Grad, "dy where 0 < y < 6, else 0.", "y",
               SecondOfPiecewise),
    With(GradientOp(kLeakyReluGrad, "dy where y > 0, else alpha dy.", "y",
                    SecondOfPiecewise),
         kLeakyAlpha),
    With(GradientOp(kEluGrad, "dy where x > 0, else dy alpha e^x.", "x",
                    Second<EluSecond>),
         kEluAlpha),
    GradientOp(kSeluGrad, "dy times the derivative of Selu.", "x",
               Second<EluSecond>),
    Approximated(GradientOp(kGeluGrad, "dy times the derivative of Gelu.", "x",
                            Second<GeluSecond>),
                 "GeluTanhGrad"),
    GradientOp(kSiluGrad, "dy times the derivative of Silu.", "x",
               Second<[](auto g, auto x, auto&) {
                 const Output s = Sigmoid(x);
                 return g * s * (1 - s) * (2 + x * (1 - 2 * s));
               }>),
};

}  // namespace

std::span<const OpDef> ActivationOps() {
  return kActivationOps;
}

// clang-format off
Output Sigmoid(Operand x) { return AddUnary("Sigmoid", x); }
Output Softplus(Operand x) { return AddUnary("Softplus", x); }
Output Softsign(Operand x) { return AddUnary("Softsign", x); }
Output Relu(Operand x) { return AddUnary("Relu", x); }
Output Relu6(Operand x) { return AddUnary("Relu6", x); }
Output Selu(Operand x) { return AddUnary("Selu", x); }
Output Silu(Operand x) { return AddUnary("Silu", x); }
// clang-format on

Output LeakyRelu(Operand x, double alpha) {
  return AddUnary("LeakyRelu", x, {{"alpha", alpha}});
}
Output Elu(Operand x, double alpha) {
  return AddUnary("Elu", x, {{"alpha", alpha}});
}
Output Gelu(Operand x, bool approximate) {
  return AddUnary("Gelu", x, {{"approximate", approximate}});
}
Output TanhGrad(Operand dy, Operand y) {
  return Build("TanhGrad", dy, y);
}

}  // namespace sluice
