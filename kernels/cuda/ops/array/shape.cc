// The kernels of transposes and of facts about shapes.
#include "kernels/cuda/ops/array/shape.h"

#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// An op whose int64 elements are known when it is made.
KernelPtr ConstantKernel(const Shape& numbers) {
  return KernelOf([numbers](const KernelContext& c) {
    return WriteShape(numbers, c.output<int64_t>(0), StreamOf(c));
  });
}

Result<KernelPtr> MakeShapeOf(const KernelSpec& spec) {
  return ConstantKernel(spec.inputs[0].shape);
}
Result<KernelPtr> MakeRank(const KernelSpec& spec) {
  return ConstantKernel({spec.inputs[0].shape.rank()});
}
Result<KernelPtr> MakeSize(const KernelSpec& spec) {
  return ConstantKernel({spec.inputs[0].shape.elements()});
}

}  // namespace

void RegisterShapeKernels(KernelTable& table) {
  RegisterOwn(table, "Transpose", kAnyType, MakeMove);
  RegisterOwn(table, "ShapeOf", kAnyType, MakeShapeOf);
  RegisterOwn(table, "Rank", kAnyType, MakeRank);
  RegisterOwn(table, "Size", kAnyType, MakeSize);
}

}  // namespace sluice::cuda
