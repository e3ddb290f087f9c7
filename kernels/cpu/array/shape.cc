// Transposes and broadcasts as strided copies, fills, and facts about shapes.
// Reshape, ExpandDims and Squeeze are views: no kernel runs.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "kernels/cpu/array/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

Result<KernelPtr> MakeFill(const KernelSpec& spec) {
  return KernelOf([type = spec.outputs[0]](const KernelContext& c) {
    FillElements(type.dtype, c.output<char>(0), type.shape.elements(),
                 c.input<char>(1));
  });
}

template <int value>
Result<KernelPtr> MakeFilledLike(const KernelSpec& spec) {
  const TensorType& type = spec.outputs[0];
  const Tensor element = Tensor::Full(type.dtype, {}, value);
  return KernelOf([type, element](const KernelContext& c) {
    FillElements(type.dtype, c.output<char>(0), type.shape.elements(),
                 element.raw());
  });
}

Result<KernelPtr> MakeRange(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.elements();
  const auto make = [n]<typename T>(TypeTag<T>) {
    // Unsigned: a step on the way may be beyond int64.
    using Wide =
        std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    return KernelOf([n](const KernelContext& c) {
      const auto start = static_cast<Wide>(*c.input<T>(0));
      const auto delta = static_cast<Wide>(*c.input<T>(2));
      T* y = c.output<T>(0);
      for (int64_t i = 0; i < n; ++i) {
        y[i] = static_cast<T>(start + static_cast<Wide>(i) * delta);
      }
    });
  };
  const DType dtype = spec.outputs[0].dtype;
  return IsFloating(dtype) ? DispatchFloatDouble(dtype, make)
                           : DispatchIndex(dtype, make);
}

// An op whose int64 elements are known when it is made.
KernelPtr ConstantKernel(std::vector<int64_t> values) {
  return KernelOf([values = std::move(values)](const KernelContext& c) {
    std::copy(values.begin(), values.end(), c.output<int64_t>(0));
  });
}

}  // namespace

void RegisterShapeKernels(KernelTable& table) {
  table.Register({.op = "Transpose", .make = MakeMove});
  table.Register({.op = "BroadcastTo", .make = MakeMove});
  table.Register({.op = "Fill", .make = MakeFill});
  table.Register({.op = "ZerosLike", .make = MakeFilledLike<0>});
  table.Register({.op = "OnesLike", .make = MakeFilledLike<1>});
  table.Register(
      {.op = "Range", .dtypes = kFloatDouble | kIndex, .make = MakeRange});
  table.Register({.op = "ShapeOf",
                  .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
                    const Shape& x = spec.inputs[0].shape;
                    return ConstantKernel({x.begin(), x.end()});
                  }});
  table.Register(
      {.op = "Rank", .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
         return ConstantKernel({spec.inputs[0].shape.rank()});
       }});
  table.Register(
      {.op = "Size", .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
         return ConstantKernel({spec.inputs[0].shape.elements()});
       }});
}

}  // namespace sluice::cpu
