// The kernels of ops that take positions as data.
#include "kernels/cuda/ops/array/index.h"

#include "engine/semantics/index_error.h"
#include "engine/tensor.h"
#include "kernels/cuda/ops/array/index_report.h"
#include "kernels/cuda/ops/array/shape_fill.h"
#include "kernels/cuda/ops/array/sorted_rows.h"
#include "kernels/cuda/ops/array/sum_rows.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

GatherShape ShapeOf(const KernelSpec& spec) {
  return GatherShapeOf(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
}

// Of indices that must be in [0, limit).
DescribeIndex Within(int64_t limit) {
  return [limit](std::string_view index, int64_t position) {
    return IndexOutOfRange(index, position, limit);
  };
}

Result<KernelPtr> MakeGather(const KernelSpec& spec) {
  const GatherShape shape = ShapeOf(spec);
  return CheckingKernelOf(
      Within(shape.size),
      [shape, dtype = spec.inputs[0].dtype, index = spec.inputs[1].dtype](
          const KernelContext& c, BadIndex* bad) {
        return Gather(shape, dtype, c.input<void>(0), index, c.input<void>(1),
                      c.output<void>(0), bad, StreamOf(c));
      });
}

Result<KernelPtr> MakeScatterAdd(const KernelSpec& spec) {
  const GatherShape shape = ShapeOf(spec);
  const DType dtype = spec.inputs[0].dtype;
  return CheckingKernelOf(
      Within(shape.size),
      [shape, dtype, index = spec.inputs[1].dtype](const KernelContext& c,
                                                   BadIndex* bad) {
        return ScatterAdd(shape, dtype, c.input<void>(0), index,
                          c.input<void>(1), c.input<void>(2), c.output<void>(0),
                          c.workspace(), bad, StreamOf(c));
      },
      ScatterAddWorkspace(shape, dtype));
}

Result<KernelPtr> MakeOneHot(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  const auto pattern = [&](const char* attr) {
    return PatternOf(Tensor::Full(dtype, {}, spec.attrs.NumberOf(attr)));
  };
  const OneHotShape shape = {spec.inputs[0].shape.elements(),
                             spec.attrs.Int("depth"), pattern("on"),
                             pattern("off")};
  return CheckingKernelOf(Within(shape.depth),
                          [shape, index = spec.inputs[0].dtype, dtype](
                              const KernelContext& c, BadIndex* bad) {
                            return OneHot(shape, index, c.input<void>(0), dtype,
                                          c.output<void>(0), bad, StreamOf(c));
                          });
}

TopKShape RowsOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  return {x.elements(0, x.rank() - 1), x[-1], spec.attrs.Int("k")};
}

Result<KernelPtr> MakeTopK(const KernelSpec& spec) {
  const TopKShape shape = RowsOf(spec);
  return KernelOf(
      [shape, dtype = spec.inputs[0].dtype](const KernelContext& c) {
        return TopK(shape, dtype, c.input<void>(0), c.output<void>(0),
                    c.output<int64_t>(1), c.workspace(), StreamOf(c));
      },
      TopKWorkspace(shape));
}

Result<KernelPtr> MakeInTopK(const KernelSpec& spec) {
  const TopKShape shape = RowsOf(spec);
  return CheckingKernelOf(
      Within(shape.n),
      [shape, dtype = spec.inputs[0].dtype, index = spec.inputs[1].dtype](
          const KernelContext& c, BadIndex* bad) {
        return InTopK(shape, dtype, c.input<void>(0), index, c.input<void>(1),
                      c.output<bool>(0), bad, StreamOf(c));
      });
}

// The slices of rows and their values, inputs 0 and 1.
SumRowsShape SlicesOf(const KernelSpec& spec) {
  const Shape& rows = spec.inputs[0].shape;
  const Shape& values = spec.inputs[1].shape;
  return {rows.elements(), values.elements(rows.rank(), values.rank()),
          spec.attrs.Int("limit")};
}

Result<KernelPtr> MakeSumRows(const KernelSpec& spec) {
  const SumRowsShape shape = SlicesOf(spec);
  return CheckingKernelOf(
      Within(shape.limit),
      [shape, index = spec.inputs[0].dtype, dtype = spec.inputs[1].dtype](
          const KernelContext& c, BadIndex* bad) {
        return SumRows(shape, index, c.input<void>(0), dtype, c.input<void>(1),
                       c.output<void>(0), c.output<void>(1), c.workspace(), bad,
                       StreamOf(c));
      },
      SortRowsWorkspace(shape.slices));
}

}  // namespace

void RegisterIndexKernels(KernelTable& table) {
  RegisterOwn(table, "Gather", kAnyType, MakeGather);
  RegisterOwn(table, "InTopK", kFloating, MakeInTopK);
  RegisterOwn(table, "OneHot", kIndex, MakeOneHot);
  RegisterOwn(
      table, "ScatterAdd", kNumeric, MakeScatterAdd,
      [](const KernelSpec& spec) { return ScatterAddSupports(ShapeOf(spec)); });
  RegisterOwn(table, "SumRows", kIndex, MakeSumRows,
              [](const KernelSpec& spec) {
                const SumRowsShape s = SlicesOf(spec);
                return SortRowsSupports({.size = s.limit, .count = s.slices});
              });
  RegisterOwn(table, "TopK", kNumeric, MakeTopK);
}

}  // namespace sluice::cuda
