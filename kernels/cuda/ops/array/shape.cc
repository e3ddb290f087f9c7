// The kernels of transposes and of facts about shapes.
#include "kernels/cuda/ops/array/shape.h"

#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// ShapeOf, Rank and Size.
Result<KernelPtr> MakeFact(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const Shape numbers = spec.op == "ShapeOf" ? x
                        : spec.op == "Rank"  ? Shape{x.rank()}
                                             : Shape{x.elements()};
  return KernelOf([numbers](const KernelContext& c) {
    return WriteShape(numbers, c.output<int64_t>(0), StreamOf(c));
  });
}

}  // namespace

void RegisterShapeKernels(KernelTable& table) {
  RegisterOwn(table, "Transpose", kAnyType, MakeMove);
  for (const char* op : {"ShapeOf", "Rank", "Size"}) {
    RegisterOwn(table, op, kAnyType, MakeFact);
  }
}

}  // namespace sluice::cuda
