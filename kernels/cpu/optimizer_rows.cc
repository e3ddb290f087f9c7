// Optimizer steps on some rows of a variable. Slices of one row are summed
// first, so that each row and its slots are updated once, by the same loops
// that update whole variables.
#include <algorithm>
#include <string>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer_rules.h"
#include "kernels/cpu/row_groups.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per piece of work
constexpr int64_t kSumTile = 1024;   // elements of a sum, on the stack

template <typename T, typename I>
KernelPtr RowsKernel(const KernelSpec& spec, const OptimizerRule& rule,
                     OptimizerLoop<T> loop) {
  const OptimizerOperands at(spec, rule.slots, rule.counts_steps);
  const OptimizerParams params = OptimizerParamsOf(spec.attrs);
  const Shape& variable = spec.inputs[0].shape;
  const int64_t limit = variable[0];
  const int64_t width = variable.elements(1, variable.rank());
  const int64_t n = spec.inputs[at.rows].shape.elements();
  return KernelOf(
      [=](const KernelContext& c) -> Status {
        if (at.apply >= 0 && !*c.input<bool>(at.apply)) return {};
        const I* rows = c.input<I>(at.rows);
        SLUICE_RETURN_IF_ERROR(CheckRows(rows, n, limit));
        if (n * width == 0) return {};
        const RowGroups groups(rows, n, c.workspace());
        const optimizer::Update<T> u = UpdateOfStep<T>(at, params, c);
        const T* slices = c.input<T>(at.gradient);
        const auto update = [&](int64_t group, int64_t first, int64_t count) {
          T sum[kSumTile];
          while (count > 0) {
            const int64_t m = std::min(count, kSumTile);
            groups.Sum(group, slices, width, first, m, sum);
            const auto part = [&](int input) {
              return c.mutable_input<T>(input) + groups.row(group) * width +
                     first;
            };
            loop(u, sum, part(0), at.slots > 0 ? part(1) : nullptr,
                 at.slots > 1 ? part(2) : nullptr, m);
            first += m;
            count -= m;
          }
        };
        ParallelFor(groups.count() * width, kGrain,
                    [&](int64_t begin, int64_t end) {
                      RowGroups::ForEach(begin, end, width, update);
                    });
        return {};
      },
      RowGroups::WorkspaceBytes(n));
}

template <typename T>
Result<KernelPtr> MakeRows(const KernelSpec& spec, const OptimizerRule& rule,
                           OptimizerLoop<T> loop) {
  const OptimizerOperands at(spec, rule.slots, rule.counts_steps);
  return DispatchIndex(spec.inputs[at.rows].dtype,
                       [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
                         return RowsKernel<T, I>(spec, rule, loop);
                       });
}

}  // namespace

void RegisterOptimizerRowsKernels(KernelTable& table) {
  for (const OptimizerRule& rule : OptimizerRules()) {
    const std::string op = std::string(rule.op) + optimizer::kRowsSuffix;
    table.Register(
        {.op = op,
         .dtypes = kFloatDouble,
         .make = [&rule](const KernelSpec& spec) -> Result<KernelPtr> {
           return spec.inputs[0].dtype == DType::kFloat32
                      ? MakeRows(spec, rule, rule.f32)
                      : MakeRows(spec, rule, rule.f64);
         }});
    table.Register(
        {.op = op,
         .priority = 10,
         .provider = "simd",
         .dtypes = DType::kFloat32,
         .make = [&rule](const KernelSpec& spec) -> Result<KernelPtr> {
           return MakeRows(spec, rule, rule.simd);
         }});
  }
}

}  // namespace sluice::cpu
