// Elementwise arithmetic, comparisons and logic. Operands of the binary ones
// broadcast as in NumPy and share a dtype; a number takes the other operand's.
//
// Comparisons are functions, not operators: == and < on Output compare handles.
#ifndef SLUICE_GRAPH_OPS_ELEMENTWISE_H_
#define SLUICE_GRAPH_OPS_ELEMENTWISE_H_

#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// --- One operand -------------------------------------------------------------

// Any number type; integers wrap around.
Output Neg(Operand x);
Output Abs(Operand x);
Output Sign(Operand x);  // -1, 0 or 1
Output Square(Operand x);

// Floating point.
Output Exp(Operand x);
Output Expm1(Operand x);
Output Log(Operand x);
Output Log1p(Operand x);
Output Sqrt(Operand x);
Output Rsqrt(Operand x);
Output Reciprocal(Operand x);
Output Sin(Operand x);
Output Cos(Operand x);
Output Tan(Operand x);
Output Asin(Operand x);
Output Acos(Operand x);
Output Atan(Operand x);
Output Sinh(Operand x);
Output Cosh(Operand x);
Output Tanh(Operand x);
Output Erf(Operand x);
Output Floor(Operand x);
Output Ceil(Operand x);
Output Round(Operand x);  // halves to the even neighbour

// Floating point in, bool out.
Output IsNan(Operand x);
Output IsInf(Operand x);
Output IsFinite(Operand x);

Output LogicalNot(Operand x);  // bool

// Any dtype to any other. Floats to integers truncate towards zero, values out
// of range become the nearest in range and NaN 0; integers to shorter ones wrap
// around; to bool: x != 0.
Output Cast(Operand x, DType to);

// x limited to [lo, hi], which an integer dtype must be able to hold; an
// infinity is no bound. The gradient flows where lo <= x <= hi.
Output Clip(Operand x, const Number& lo, const Number& hi);

// --- Two operands ------------------------------------------------------------

// Any number type. Integer division truncates towards zero; n / 0 = 0.
Output Add(Operand a, Operand b);
Output Sub(Operand a, Operand b);
Output Mul(Operand a, Operand b);
Output Div(Operand a, Operand b);
Output FloorDiv(Operand a, Operand b);
// With b's sign: a - b FloorDiv(a, b), but n Mod 0 = 0 for integers.
Output Mod(Operand a, Operand b);
Output Pow(Operand a, Operand b);
Output Maximum(Operand a, Operand b);  // NaN if either is
Output Minimum(Operand a, Operand b);
Output SquaredDifference(Operand a, Operand b);
Output Atan2(Operand a, Operand b);  // floating point

inline Output operator+(const Operand& a, const Operand& b) {
  return Add(a, b);
}
inline Output operator-(const Operand& a, const Operand& b) {
  return Sub(a, b);
}
inline Output operator*(const Operand& a, const Operand& b) {
  return Mul(a, b);
}
inline Output operator/(const Operand& a, const Operand& b) {
  return Div(a, b);
}
inline Output operator-(const Operand& x) {
  return Neg(x);
}

// Any dtype (the order: any number type); bool out.
Output Equal(Operand a, Operand b);
Output NotEqual(Operand a, Operand b);
Output Less(Operand a, Operand b);
Output LessEqual(Operand a, Operand b);
Output Greater(Operand a, Operand b);
Output GreaterEqual(Operand a, Operand b);

// bool.
Output LogicalAnd(Operand a, Operand b);
Output LogicalOr(Operand a, Operand b);
Output LogicalXor(Operand a, Operand b);

// --- More --------------------------------------------------------------------

// a where the bool `condition` holds, b elsewhere. All three broadcast.
Output Select(Operand condition, Operand a, Operand b);

// The sum of one or more tensors of one shape, from left to right.
Output AddN(const std::vector<Output>& terms);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_ELEMENTWISE_H_
