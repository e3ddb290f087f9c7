// The kernels of optimizer steps on some rows of a variable.
#include "kernels/cuda/ops/rows/optimizer_rows.h"

#include <string>

#include "engine/semantics/index_error.h"
#include "engine/semantics/optimizer_operands.h"
#include "kernels/cuda/ops/array/index_report.h"
#include "kernels/cuda/ops/array/sorted_rows.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

Result<KernelPtr> MakeRows(const KernelSpec& spec,
                           const OptimizerRowsRule& rule) {
  const OptimizerOperands at(spec, rule.slots, rule.counts_steps);
  const Shape& variable = spec.inputs[0].shape;
  OptimizerRows sizes;
  sizes.rows = variable[0];
  sizes.width = variable.elements(1, variable.rank());
  sizes.slices = spec.inputs[at.rows].shape.elements();
  const RowSlices slices = {.size = sizes.rows, .count = sizes.slices};
  if (!SortRowsSupports(slices)) {
    return Unimplemented("so many slices of so many rows");
  }
  const OptimizerRowsLauncher launch =
      spec.inputs[0].dtype == DType::kFloat32 ? rule.f32 : rule.f64;
  return CheckingKernelOf(
      [limit = sizes.rows](std::string_view index, int64_t position) {
        return IndexOutOfRange(index, position, limit);
      },
      [=, params = OptimizerParamsOf(spec.attrs),
       index = spec.inputs[at.rows].dtype](const KernelContext& c,
                                           BadIndex* bad) {
        OptimizerRows work = sizes;
        work.variable = c.mutable_input<void>(0);
        for (int s = 0; s < at.slots; ++s) {
          work.slots[s] = c.mutable_input<void>(1 + s);
        }
        work.gradient = c.input<void>(at.gradient);
        work.learning_rate = c.input<float>(at.rate);
        if (at.step >= 0) work.step = c.input<int64_t>(at.step);
        if (at.apply >= 0) work.apply = c.input<bool>(at.apply);
        return launch(work, params, index, c.input<void>(at.rows),
                      c.workspace(), bad, StreamOf(c));
      },
      SortRowsWorkspace(sizes.slices));
}

}  // namespace

void RegisterOptimizerRowsKernels(KernelTable& table) {
  for (const OptimizerRowsRule& rule : OptimizerRowsRules()) {
    RegisterOwn(
        table, std::string(rule.op) + optimizer::kRowsSuffix, kFloatDouble,
        [&rule](const KernelSpec& spec) { return MakeRows(spec, rule); });
  }
}

}  // namespace sluice::cuda
