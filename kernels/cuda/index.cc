// The kernels of ops that take positions as data.
#include "kernels/cuda/index.h"

#include "engine/tensor.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/shape_fill.h"

namespace sluice::cuda {
namespace {

GatherShape ShapeOf(const KernelSpec& spec) {
  return GatherShapeOf(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
}

Result<KernelPtr> MakeGather(const KernelSpec& spec) {
  return KernelOf([shape = ShapeOf(spec), dtype = spec.inputs[0].dtype,
                   index = spec.inputs[1].dtype](const KernelContext& c) {
    return Gather(shape, dtype, c.input<void>(0), index, c.input<void>(1),
                  c.output<void>(0), StreamOf(c));
  });
}

Result<KernelPtr> MakeScatterAdd(const KernelSpec& spec) {
  const GatherShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return KernelOf(
      [shape, dtype, index = spec.inputs[1].dtype](const KernelContext& c) {
        return ScatterAdd(shape, dtype, c.input<void>(0), index,
                          c.input<void>(1), c.input<void>(2), c.output<void>(0),
                          c.workspace(), StreamOf(c));
      },
      ScatterAddWorkspace(shape, dtype));
}

Result<KernelPtr> MakeOneHot(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  const auto pattern = [&](const char* attr) {
    return PatternOf(Tensor::Full(dtype, {}, spec.attrs.Float(attr)));
  };
  const OneHotShape shape = {spec.inputs[0].shape.elements(),
                             spec.attrs.Int("depth"), pattern("on"),
                             pattern("off")};
  return KernelOf(
      [shape, index = spec.inputs[0].dtype, dtype](const KernelContext& c) {
        return OneHot(shape, index, c.input<void>(0), dtype, c.output<void>(0),
                      StreamOf(c));
      });
}

TopKShape RowsOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  return {x.elements(0, x.rank() - 1), x[-1], spec.attrs.Int("k")};
}

Result<KernelPtr> MakeTopK(const KernelSpec& spec) {
  return KernelOf([shape = RowsOf(spec),
                   dtype = spec.inputs[0].dtype](const KernelContext& c) {
    return TopK(shape, dtype, c.input<void>(0), c.output<void>(0),
                c.output<int64_t>(1), StreamOf(c));
  });
}

Result<KernelPtr> MakeInTopK(const KernelSpec& spec) {
  return KernelOf([shape = RowsOf(spec), dtype = spec.inputs[0].dtype,
                   index = spec.inputs[1].dtype](const KernelContext& c) {
    return InTopK(shape, dtype, c.input<void>(0), index, c.input<void>(1),
                  c.output<bool>(0), StreamOf(c));
  });
}

}  // namespace

void RegisterIndexKernels(KernelTable& table) {
  RegisterOwn(table, "Gather", kAnyType, MakeGather);
  RegisterOwn(table, "InTopK", kFloating, MakeInTopK);
  RegisterOwn(table, "OneHot", kIndex, MakeOneHot);
  RegisterOwn(
      table, "ScatterAdd", kNumeric, MakeScatterAdd,
      [](const KernelSpec& spec) { return ScatterAddSupports(ShapeOf(spec)); });
  RegisterOwn(table, "TopK", kNumeric, MakeTopK);
}

}  // namespace sluice::cuda
