// Elementwise ops of two operands.
#include "kernels/cpu/elementwise/elementwise.h"

namespace sluice::cpu {
namespace {

template <typename TypeList, typename... Ops>
void RegisterAll(KernelTable& table) {
  (RegisterBinary<Ops, TypeList>(table), ...);
}

}  // namespace

void RegisterElementwiseBinaryKernels(KernelTable& table) {
  namespace s = scalar;
  RegisterAll<NumericTypes, s::Add, s::Sub, s::Mul, s::Div, s::FloorDiv, s::Mod,
              s::Pow, s::Maximum, s::Minimum, s::SquaredDifference, s::Less,
              s::LessEqual, s::Greater, s::GreaterEqual>(table);
  RegisterAll<AllTypes, s::Equal, s::NotEqual>(table);
  RegisterAll<FloatingTypes, s::Atan2>(table);
  RegisterAll<Types<bool>, s::LogicalAnd, s::LogicalOr, s::LogicalXor>(table);
}

}  // namespace sluice::cpu
