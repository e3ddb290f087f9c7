// Elementwise ops of two operands that broadcast against each other.
#include <fmt/format.h>

#include <utility>

#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

using Pair = std::pair<Output, Output>;

// The gradient of y = f(a, b) from a rule (dy, a, b, y) -> (da, db), both
// before broadcasting is undone.
template <auto kRule>
Outputs BinaryRule(const Node& node, const Outputs& dy) {
  const Output a = node.input(0), b = node.input(1);
  const Pair d = kRule(dy[0], a, b, node.output(0));
  return {SumToShapeOf(d.first, a), SumToShapeOf(d.second, b)};
}

constexpr ProbeInput Within(Ints shape, double lo, double hi) {
  return {.shape = shape, .lo = lo, .hi = hi};
}

// Pairs of shapes that broadcast in each way, a in [alo, ahi], b in [blo, bhi].
constexpr FixedList<Probe, 6> PairsIn(double alo, double ahi, double blo,
                                      double bhi) {
  return {{.inputs = {Within({37}, alo, ahi), Within({37}, blo, bhi)}},
          {.inputs = {Within({2, 3}, alo, ahi), Within({3}, blo, bhi)}},
          {.inputs = {Within({2, 1, 3}, alo, ahi), Within({4, 1}, blo, bhi)}},
          {.inputs = {Within({}, alo, ahi), Within({3, 2}, blo, bhi)}},
          {.inputs = {Within({3, 19}, alo, ahi), Within({3, 1}, blo, bhi)}},
          {.inputs = {Within({3, 1, 2}, alo, ahi), Within({}, blo, bhi)}}};
}

struct Ranges {
  double alo = -2, ahi = 2, blo = -2, bhi = 2;
};

constexpr OpDef Binary(const char* name, const char* doc, GradientFn gradient,
                       Ranges r = {}, DTypeSet types = kNumeric) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"a"}, {"b"}},
          .types = {{"T", types}},
          .shape = BroadcastShape,
          .gradient = gradient,
          .elementwise = true,
          .broadcasts = true,
          .inplace = {0, 1},
          .probes = PairsIn(r.alo, r.ahi, r.blo, r.bhi)};
}

constexpr OpDef Commutative(OpDef op) {
  op.commutative = true;
  return op;
}

constexpr OpDef Comparison(const char* name, const char* doc,
                           DTypeSet types = kNumeric) {
  OpDef op = Binary(name, doc, NotDifferentiable, {}, types);
  op.outputs = {{"y", "bool"}};
  // A smaller operand may have as many bytes, but not element by element.
  op.inplace = {};
  op.probes = {
      {.inputs = {{.shape = {37}, .values = {1, 2, 3, 4, 5}},
                  {.shape = {37}, .values = {5, 2, 4}}}},
      {.inputs = {{.shape = {2, 1, 3}, .values = {1, 2, 3, 0, 1}},
                  {.shape = {4, 1}, .values = {0, 1, 2, 3}}}},
      {.inputs = {{.shape = {4}, .values = {__builtin_nan(""), 1, 2, 3}},
                  {.shape = {}, .values = {2}}}}};
  return op;
}

constexpr OpDef Logical(const char* name, const char* doc) {
  return Commutative(Binary(name, doc, NotDifferentiable, {}, DType::kBool));
}

// a, or 1 where the gradient of a^b would be 0 * inf: where b is 0 and 1 / a is
// not finite. The exponent stays b - 1, or the gradient of the gradient with
// respect to b would lack a term.
Output AwayFromPole(const Output& a, const Output& b) {
  const Tensor* exponent = ConstantValue(b);
  if (exponent != nullptr && b.shape().scalar() && exponent->At(0) != 0) {
    return a;
  }
  const Output pole =
      LogicalAnd(Equal(b, 0), LogicalNot(IsFinite(Reciprocal(a))));
  return Select(pole, 1, a);
}

// dy to the operand that does not lose, half to each where they are equal.
// Where either is NaN none loses, and both get dy.
Pair ToWinner(const Output& dy, const Output& first_loses,
              const Output& second_loses, const Output& equal) {
  const Output share = Select(equal, dy * 0.5, dy);
  return {Select(first_loses, 0, share), Select(second_loses, 0, share)};
}

constexpr OpDef kBinaryOps[] = {
    Follows(Commutative(Binary(
        "Add", "a + b.",
        BinaryRule<[](auto dy, auto, auto, auto) { return Pair(dy, dy); }>))),
    Follows(Binary(
        "Sub", "a - b.",
        BinaryRule<[](auto dy, auto, auto, auto) { return Pair(dy, -dy); }>)),
    Follows(Commutative(
        Binary("Mul", "a b.", BinaryRule<[](auto dy, auto a, auto b, auto) {
                 return Pair(dy * b, dy * a);
               }>))),
    Follows(Binary("Div", "a / b; integers towards zero, and n / 0 = 0.",
                   BinaryRule<[](auto dy, auto, auto b, auto y) {
                     const Output da = dy / b;
                     return Pair(da, -da * y);
                   }>,
                   {.blo = 0.5})),
    Binary("FloorDiv", "floor(a / b); integers: n / 0 = 0.", NotDifferentiable,
           {.alo = 1, .ahi = 9, .blo = 2, .bhi = 4}),
    Binary("Mod", "a - b floor(a / b).",
           BinaryRule<[](auto dy, auto a, auto b, auto) {
             return Pair(dy, -dy * FloorDiv(a, b));
           }>,
           {.alo = 1.1, .ahi = 1.9, .blo = 2, .bhi = 4}),
    Binary("Pow", "a^b.",
           // Where a is 0 or less, b has no gradient: 0, also where y is
           // infinite or NaN. Where a is NaN, so is that.
           BinaryRule<[](auto dy, auto a, auto b, auto y) {
             const Output none = LessEqual(a, 0);
             const Output base = Select(none, 1, a);
             const Output power = Select(none, 0, y);
             return Pair(dy * (b * Pow(AwayFromPole(a, b), b - 1)),
                         dy * (power * Log(base)));
           }>,
           {.alo = 0.5, .ahi = 2, .blo = 0.2, .bhi = 3}),
    // Of 0 and -0 the second one: these do not commute.
    Follows(Binary("Maximum",
                   "The larger; NaN if either is. Of equal ones "
                   "each has half the gradient.",
                   BinaryRule<[](auto dy, auto a, auto b, auto) {
                     return ToWinner(dy, Less(a, b), Less(b, a), Equal(a, b));
                   }>)),
    Follows(Binary("Minimum",
                   "The smaller; NaN if either is. Of equal ones "
                   "each has half the gradient.",
                   BinaryRule<[](auto dy, auto a, auto b, auto) {
                     return ToWinner(dy, Greater(a, b), Greater(b, a),
                                     Equal(a, b));
                   }>)),
    Commutative(Binary("SquaredDifference", "(a - b)^2.",
                       BinaryRule<[](auto dy, auto a, auto b, auto) {
                         const Output da = dy * 2 * (a - b);
                         return Pair(da, -da);
                       }>)),
    Binary("Atan2", "The angle of the point (b, a).",
           BinaryRule<[](auto dy, auto a, auto b, auto) {
             const Output scaled = dy / (a * a + b * b);
             return Pair(scaled * b, -scaled * a);
           }>,
           {.blo = 0.5}, kFloating),
    Commutative(Comparison("Equal", "a = b?", kAnyType)),
    Commutative(Comparison("NotEqual", "Do a and b differ?", kAnyType)),
    Comparison("Less", "a < b?"),
    Comparison("LessEqual", "a <= b?"),
    Comparison("Greater", "a > b?"),
    Comparison("GreaterEqual", "a >= b?"),
    Logical("LogicalAnd", "a and b."),
    Logical("LogicalOr", "a or b."),
    Logical("LogicalXor", "Either a or b."),
};

Output BuildBinary(const char* op, const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: wanted at least one tensor, got two numbers ({})", op,
                    FormatLocation(a.location())));
  }
  Graph& graph = (a.is_number() ? b : a).graph();
  return graph.Add({op, {a, b}}).output(0);
}

}  // namespace

std::span<const OpDef> ElementwiseBinaryOps() {
  return kBinaryOps;
}

// clang-format off
Output Add(Operand a, Operand b) { return BuildBinary("Add", a, b); }
Output Sub(Operand a, Operand b) { return BuildBinary("Sub", a, b); }
Output Mul(Operand a, Operand b) { return BuildBinary("Mul", a, b); }
Output Div(Operand a, Operand b) { return BuildBinary("Div", a, b); }
Output FloorDiv(Operand a, Operand b) { return BuildBinary("FloorDiv", a, b); }
Output Mod(Operand a, Operand b) { return BuildBinary("Mod", a, b); }
Output Pow(Operand a, Operand b) { return BuildBinary("Pow", a, b); }
Output Maximum(Operand a, Operand b) { return BuildBinary("Maximum", a, b); }
Output Minimum(Operand a, Operand b) { return BuildBinary("Minimum", a, b); }
Output SquaredDifference(Operand a, Operand b) {
  return BuildBinary("SquaredDifference", a, b);
}
Output Atan2(Operand a, Operand b) { return BuildBinary("Atan2", a, b); }
Output Equal(Operand a, Operand b) { return BuildBinary("Equal", a, b); }
Output NotEqual(Operand a, Operand b) { return BuildBinary("NotEqual", a, b); }
Output Less(Operand a, Operand b) { return BuildBinary("Less", a, b); }
Output LessEqual(Operand a, Operand b) { return BuildBinary("LessEqual", a, b); }
Output Greater(Operand a, Operand b) { return BuildBinary("Greater", a, b); }
Output GreaterEqual(Operand a, Operand b) {
  return BuildBinary("GreaterEqual", a, b);
}
Output LogicalAnd(Operand a, Operand b) { return BuildBinary("LogicalAnd", a, b); }
Output LogicalOr(Operand a, Operand b) { return BuildBinary("LogicalOr", a, b); }
Output LogicalXor(Operand a, Operand b) { return BuildBinary("LogicalXor", a, b); }
// clang-format on

}  // namespace sluice
