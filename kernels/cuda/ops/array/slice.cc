// The kernels of parts of tensors and tensors as parts: strided copies, after a
// fill where the rest has to be something, and CastPad.
#include "kernels/cuda/ops/array/slice.h"

#include "engine/tensor.h"
#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/ops/array/shape_fill.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// Pad and StridedSliceGrad.
Result<KernelPtr> MakeMoveIntoFilled(const KernelSpec& spec) {
  const TensorType& to = spec.outputs[0];
  const uint64_t pattern = PatternOf(SurroundingOf(spec));
  return KernelOf([move = MoveOf(spec), dtype = to.dtype, bytes = to.bytes(),
                   pattern](const KernelContext& c) -> Status {
    SLUICE_RETURN_IF_ERROR(
        FillBytes(c.output<void>(0), pattern, bytes, StreamOf(c)));
    return CopyStrided("Pad", move, dtype, c.input<void>(0), c.output<void>(0),
                       StreamOf(c));
  });
}

Result<KernelPtr> MakeCastPad(const KernelSpec& spec) {
  return KernelOf(
      [launch = FindCastPad(spec.inputs[0].dtype, spec.outputs[0].dtype),
       rows = RowPaddingOf(spec)](const KernelContext& c) {
        return launch(c.input<void>(0), c.output<void>(0), rows, StreamOf(c));
      });
}

}  // namespace

void RegisterSliceKernels(KernelTable& table) {
  for (const char* op : {"Slice", "StridedSlice"}) {
    RegisterOwn(table, op, kAnyType, MakeMove);
  }
  for (const char* op : {"Pad", "StridedSliceGrad"}) {
    RegisterOwn(table, op, kAnyType, MakeMoveIntoFilled);
  }
  RegisterOwn(table, "CastPad", kFloating, MakeCastPad);
}

}  // namespace sluice::cuda
