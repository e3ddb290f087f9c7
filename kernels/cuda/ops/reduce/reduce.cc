// The kernels of reductions.
#include "kernels/cuda/ops/reduce/reduce.h"

#include <string_view>

#include "kernels/cuda/ops/array/shape_fill.h"
#include "kernels/cuda/ops/reduce/reduce_finite.h"
#include "kernels/cuda/ops/reduce/reduce_scan.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// Elements become one as they do in `reduction_op`.
Result<KernelPtr> MakeReduceBy(const KernelSpec& spec,
                               std::string_view reduction_op) {
  const ReducePlan plan(
      spec.inputs[0].shape,
      ReducedDims(spec.inputs[0].shape, spec.outputs[0].shape, spec.attrs));
  const Reduction reduction = FindReduce(reduction_op, spec.inputs[0].dtype);
  return KernelOf(
      [plan, launch = reduction.launch](const KernelContext& c) {
        return launch(c.input<void>(0), c.output<void>(0), plan, c.workspace(),
                      StreamOf(c));
      },
      plan.states() * reduction.state_bytes);
}

Result<KernelPtr> MakeReduce(const KernelSpec& spec) {
  return MakeReduceBy(spec, spec.op);
}
Result<KernelPtr> MakeSumTo(const KernelSpec& spec) {
  return MakeReduceBy(spec, "Sum");
}

// --- Along an axis -----------------------------------------------------------

Result<KernelPtr> MakeCumSum(const KernelSpec& spec) {
  const CumSumForm form = {AxisFormOf(spec, 0), spec.attrs.Bool("exclusive"),
                           spec.attrs.Bool("reverse")};
  return KernelOf([form, launch = FindCumSum(spec.inputs[0].dtype)](
                      const KernelContext& c) {
    return launch(c.input<void>(0), c.output<void>(0), form, StreamOf(c));
  });
}

Result<KernelPtr> MakeProdGrad(const KernelSpec& spec) {
  return KernelOf(
      [shape = AxisFormOf(spec, 1),
       launch = FindProdGrad(spec.inputs[0].dtype)](const KernelContext& c) {
        return launch(c.input<void>(0), c.input<void>(1), c.output<void>(0),
                      static_cast<double*>(c.workspace()), shape, StreamOf(c));
      },
      spec.inputs[1].shape.elements() * sizeof(double));
}

template <bool least>
Result<KernelPtr> MakeArg(const KernelSpec& spec) {
  return KernelOf(
      [shape = AxisFormOf(spec, 0),
       launch = FindArg(spec.inputs[0].dtype)](const KernelContext& c) {
        return launch(least, c.input<void>(0), c.output<int64_t>(0), shape,
                      StreamOf(c));
      });
}

// --- AllFinite ---------------------------------------------------------------

// Of AllFinite, and of AllFiniteScaled, whose first operand is the scale.
// `first`: of the arrays.
Result<KernelPtr> MakeAllFinite(const KernelSpec& spec, int first) {
  return KernelOf([lists = ListsOf(std::span(spec.inputs).subspan(first)),
                   first](const KernelContext& c) mutable -> Status {
    bool* y = c.output<bool>(0);
    SLUICE_RETURN_IF_ERROR(
        FillBytes(y, /*pattern=*/1, sizeof(bool), StreamOf(c)));
    const float* scale = first > 0 ? c.input<float>(0) : nullptr;
    return LaunchLists(
        lists,
        [&](int i, ArrayList::Array& array) {
          array.from = c.input<void>(first + i);
        },
        [&](const ArrayList& list) {
          return LaunchAllFinite(list, scale, y, StreamOf(c));
        });
  });
}

}  // namespace

void RegisterReduceKernels(KernelTable& table) {
  for (const char* op : {"Sum", "Prod", "Max", "Min"}) {
    RegisterOwn(table, op, kNumeric, MakeReduce);
  }
  RegisterOwn(table, "SumTo", kNumeric, MakeSumTo);
  for (const char* op : {"Mean", "LogSumExp", "L2Loss", "SquaredNorm"}) {
    RegisterOwn(table, op, kFloating, MakeReduce);
  }
  for (const char* op : {"Any", "All"}) {
    RegisterOwn(table, op, DType::kBool, MakeReduce);
  }
  RegisterOwn(table, "CumSum", kNumeric, MakeCumSum);
  RegisterOwn(table, "ProdGrad", kFloating, MakeProdGrad);
  RegisterOwn(table, "ArgMax", kNumeric, MakeArg<false>);
  RegisterOwn(table, "ArgMin", kNumeric, MakeArg<true>);
  RegisterOwn(table, "AllFinite", kFloating,
              [](const KernelSpec& spec) { return MakeAllFinite(spec, 0); });
  RegisterOwn(table, "AllFiniteScaled", DType::kFloat32,
              [](const KernelSpec& spec) { return MakeAllFinite(spec, 1); });
}

}  // namespace sluice::cuda
