// Parts of tensors and tensors as parts: strided copies, after a fill where
// the rest has to be something. CastPad converts as well.
#include <algorithm>

#include "engine/convert.h"
#include "engine/semantics/row_padding.h"
#include "engine/tensor.h"
#include "kernels/cpu/array/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Pad and StridedSliceGrad.
Result<KernelPtr> MakeMoveIntoFilled(const KernelSpec& spec) {
  const TensorType& to = spec.outputs[0];
  const StridedCopy copy(to.dtype, MoveOf(spec));
  return KernelOf(
      [copy, to, element = SurroundingOf(spec)](const KernelContext& c) {
        FillElements(to.dtype, c.output<char>(0), to.shape.elements(),
                     element.raw());
        copy.Run(c.output<char>(0), c.input<char>(0));
      });
}

// The reference for other devices': no pass makes it for the CPU.
Result<KernelPtr> MakeCastPad(const KernelSpec& spec) {
  const RowPadding rows = RowPaddingOf(spec);
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename X>(TypeTag<X>) {
    return DispatchFloating(spec.outputs[0].dtype, [&]<typename Y>(TypeTag<Y>) {
      return KernelOf([rows](const KernelContext& c) {
        const X* x = c.input<X>(0);
        Y* y = c.output<Y>(0);
        for (int64_t r = 0; r < rows.rows; ++r, x += rows.from, y += rows.to) {
          std::transform(x, x + rows.from, y, Convert<Y, X>);
          std::fill(y + rows.from, y + rows.to, Y(0));
        }
      });
    });
  });
}

}  // namespace

void RegisterSliceKernels(KernelTable& table) {
  table.Register({.op = "Slice", .make = MakeMove});
  table.Register({.op = "StridedSlice", .make = MakeMove});
  table.Register({.op = "StridedSliceGrad", .make = MakeMoveIntoFilled});
  table.Register({.op = "Pad", .make = MakeMoveIntoFilled});
  table.Register({.op = "CastPad", .make = MakeCastPad});
}

}  // namespace sluice::cpu
