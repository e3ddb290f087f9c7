// Parts of tensors and tensors as parts: strided copies, after a fill where
// the rest has to be something.
#include "engine/tensor.h"
#include "kernels/cpu/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Pad and StridedSliceGradient.
Result<KernelPtr> MakeMoveIntoFilled(const KernelSpec& spec) {
  const TensorType& to = spec.outputs[0];
  const double value = spec.op == "Pad" ? spec.attrs.Float("value") : 0;
  const StridedCopy copy(to.dtype, MoveOf(spec));
  return KernelOf([copy, to, element = Tensor::Full(to.dtype, {}, value)](
                      const KernelContext& c) {
    FillElements(to.dtype, c.output<char>(0), to.shape.elements(),
                 element.raw());
    copy.Run(c.output<char>(0), c.input<char>(0));
  });
}

}  // namespace

void RegisterSliceKernels(KernelTable& table) {
  table.Register({.op = "Slice", .make = MakeMove});
  table.Register({.op = "StridedSlice", .make = MakeMove});
  table.Register({.op = "StridedSliceGradient", .make = MakeMoveIntoFilled});
  table.Register({.op = "Pad", .make = MakeMoveIntoFilled});
}

}  // namespace sluice::cpu
