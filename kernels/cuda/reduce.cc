// The kernels of reductions.
#include "kernels/cuda/reduce.h"

#include "kernels/cuda/kernels.h"

namespace sluice::cuda {
namespace {

// Which of x's dimensions go: those of the attribute `axes`; those that the
// output of SumTo lacks or has as 1; all of them.
std::vector<bool> ReducedDims(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  std::vector<bool> reduced(x.rank(), false);
  if (spec.op == "SumTo") {
    const Shape& y = spec.outputs[0].shape;
    for (int d = 1; d <= x.rank(); ++d) {
      reduced[x.rank() - d] = d > y.rank() || y[-d] == 1;
    }
  } else if (!spec.attrs.Has("axes") || spec.attrs.Ints("axes").empty()) {
    reduced.assign(x.rank(), true);
  } else {
    for (int64_t a : spec.attrs.Ints("axes")) {
      reduced[a < 0 ? a + x.rank() : a] = true;
    }
  }
  return reduced;
}

Result<KernelPtr> MakeReduce(const KernelSpec& spec) {
  const ReducePlan plan(spec.inputs[0].shape, ReducedDims(spec));
  const Reduction reduction =
      FindReduce(spec.op == "SumTo" ? "Sum" : spec.op, spec.inputs[0].dtype);
  return KernelOf(
      [plan, launch = reduction.launch](const KernelContext& c) {
        return launch(c.input<void>(0), c.output<void>(0), plan, c.workspace(),
                      StreamOf(c));
      },
      plan.states() * reduction.state_bytes);
}

}  // namespace

void RegisterReduceKernels(KernelTable& table) {
  for (const char* op : {"Sum", "SumTo", "Prod", "Max", "Min"}) {
    RegisterOwn(table, op, kNumeric, MakeReduce);
  }
  for (const char* op : {"Mean", "LogSumExp", "L2Loss"}) {
    RegisterOwn(table, op, kFloating, MakeReduce);
  }
  for (const char* op : {"Any", "All"}) {
    RegisterOwn(table, op, DType::kBool, MakeReduce);
  }
}

}  // namespace sluice::cuda
