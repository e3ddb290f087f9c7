// SumRows: what slices of one row add up to, at the first of them.
#include <algorithm>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_groups.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per piece of work

template <typename T, typename I>
KernelPtr SumRowsKernel(int64_t n, int64_t width, int64_t limit) {
  return KernelOf(
      [=](const KernelContext& c) -> Status {
        SLUICE_RETURN_IF_ERROR(CheckRows(c.input<I>(0), n, limit));
        const RowGroups groups(c.input<I>(0), n, c.workspace());
        I* rows = c.output<I>(0);
        T* sums = c.output<T>(1);
        std::fill_n(rows, n, static_cast<I>(kNoRow));
        std::fill_n(sums, n * width, T(0));
        for (int64_t group = 0; group < groups.count(); ++group) {
          rows[groups.first_slice(group)] = static_cast<I>(groups.row(group));
        }
        if (width == 0) return {};
        const auto sum = [&](int64_t group, int64_t first, int64_t count) {
          groups.Sum(group, c.input<T>(1), width, first, count,
                     sums + groups.first_slice(group) * width + first);
        };
        ParallelFor(groups.count() * width, kGrain,
                    [&](int64_t begin, int64_t end) {
                      RowGroups::ForEach(begin, end, width, sum);
                    });
        return {};
      },
      RowGroups::WorkspaceBytes(n));
}

Result<KernelPtr> MakeSumRows(const KernelSpec& spec) {
  const Shape& rows = spec.inputs[0].shape;
  const Shape& values = spec.inputs[1].shape;
  const int64_t width = values.elements(rows.rank(), values.rank());
  const int64_t n = rows.elements(), limit = spec.attrs.Int("limit");
  return DispatchIndex(spec.inputs[0].dtype,
                       [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
                         return spec.inputs[1].dtype == DType::kFloat32
                                    ? SumRowsKernel<float, I>(n, width, limit)
                                    : SumRowsKernel<double, I>(n, width, limit);
                       });
}

}  // namespace

void RegisterSumRowsKernels(KernelTable& table) {
  table.Register({.op = "SumRows", .dtypes = kIndex, .make = MakeSumRows});
}

}  // namespace sluice::cpu
