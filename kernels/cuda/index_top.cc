// The kernels of TopK and InTopK.
#include "kernels/cuda/index_top.h"

#include "kernels/cuda/kernels.h"

namespace sluice::cuda {
namespace {

TopShape ShapeOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  return {x.elements(0, x.rank() - 1), x[-1], spec.attrs.Int("k")};
}

Result<KernelPtr> MakeTopK(const KernelSpec& spec) {
  return KernelOf([launch = FindTopK(spec.inputs[0].dtype),
                   shape = ShapeOf(spec)](const KernelContext& c) {
    return launch(c.input<void>(0), c.output<void>(0), c.output<int64_t>(1),
                  shape, StreamOf(c));
  });
}

Result<KernelPtr> MakeInTopK(const KernelSpec& spec) {
  return KernelOf(
      [launch = FindInTopK(spec.inputs[0].dtype, spec.inputs[1].dtype),
       shape = ShapeOf(spec)](const KernelContext& c) {
        return launch(c.input<void>(0), c.input<void>(1), c.output<bool>(0),
                      shape, StreamOf(c));
      });
}

}  // namespace

void RegisterIndexTopKernels(KernelTable& table) {
  RegisterOwn(table, "TopK", kNumeric, MakeTopK);
  RegisterOwn(table, "InTopK", kFloating, MakeInTopK);
}

}  // namespace sluice::cuda
