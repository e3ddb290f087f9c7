// ScatterAdd: each row gets the updates of its index, in their order; of more
// than kSlicesRun (row_ids.h) those after the first as what runs of so many add
// up to. Where the row was 0, as in gradients, that is to the bit the sum
// that RowGroups makes.
#include <algorithm>
#include <type_traits>

#include "engine/ceil_div.h"
#include "engine/semantics/compensated_sum.h"
#include "engine/semantics/gather_shape.h"
#include "engine/semantics/row_ids.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_groups.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kScatterGrain = 1 << 14;  // elements per piece of work, about
constexpr int64_t kToRow = -1;

// Rows that need runs at most, of one batch.
int64_t MostRuns(const GatherShape& plan) {
  return plan.count / kSlicesRun;
}

// For few updates of a tall table: no memory or time that grows with its rows.
bool FindsByGroups(const GatherShape& plan) {
  return plan.size / 4 > plan.count;
}

// Which updates of one batch are summed before they come to their row; in a
// workspace of Words(plan).
struct Runs {
  static int64_t Words(const GatherShape& plan) {
    const int64_t finding =
        FindsByGroups(plan)
            ? static_cast<int64_t>(RowGroups::WorkspaceBytes(plan.count) /
                                   sizeof(int64_t))
            : plan.size;
    return 1 + MostRuns(plan) + plan.count + finding;
  }
  Runs(const GatherShape& plan, int64_t* words)
      : num_rows(words),
        rows(num_rows + 1),
        places(rows + MostRuns(plan)),
        finding(places + plan.count) {}

  int64_t* num_rows;
  int64_t* rows;  // [num_rows]: each has one run at a time
  // [count]: kToRow, or r * kSlicesRun + its place in the run of rows[r].
  int64_t* places;
  int64_t* finding;  // what FindRuns needs
};

template <typename I>
void FindRunsByGroups(const I* index, const GatherShape& plan,
                      const Runs& runs) {
  const RowGroups groups(index, plan.count, runs.finding);
  int64_t found = 0;
  for (int64_t group = 0; group < groups.count(); ++group) {
    const int64_t slices = groups.slices(group);
    for (int64_t i = 0; i < slices; ++i) {
      runs.places[groups.slice(group, i)] =
          i < kSlicesRun ? kToRow : found * kSlicesRun + i % kSlicesRun;
    }
    if (slices > kSlicesRun) runs.rows[found++] = groups.row(group);
  }
  *runs.num_rows = found;
}

template <typename I>
void FindRuns(const I* index, const GatherShape& plan, const Runs& runs) {
  if (FindsByGroups(plan)) return FindRunsByGroups(index, plan, runs);
  // [size]: how many updates a row had; once it has runs -1 - the last of them.
  int64_t* const seen_of = runs.finding;
  std::fill_n(seen_of, plan.size, 0);
  int64_t found = 0;
  for (int64_t j = 0; j < plan.count; ++j) {
    int64_t& seen = seen_of[index[j]];
    if (seen >= 0 && seen < kSlicesRun) {
      runs.places[j] = kToRow;
      ++seen;
      continue;
    }
    if (seen >= 0) {
      runs.rows[found] = index[j];
      runs.places[j] = found++ * kSlicesRun;
    } else {
      const int64_t next = runs.places[-1 - seen] + 1;
      runs.places[j] = next % kSlicesRun == 0 ? next - kSlicesRun : next;
    }
    seen = -1 - j;
  }
  *runs.num_rows = found;
}

template <typename T>
void AddSlice(const T* x, int64_t n, T* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>(sum[i] + x[i]);
}

// Adds the updates of one [batch, middle] block that are for rows [low, high).
template <typename T, typename I>
void AddToRows(const GatherShape& plan, const I* index, const T* update,
               int64_t low, int64_t high, T* rows) {
  for (int64_t j = 0; j < plan.count; ++j, update += plan.inner) {
    if (index[j] < low || index[j] >= high) continue;
    AddSlice(update, plan.inner, rows + index[j] * plan.inner);
  }
}

// The same by runs. `totals` and `sums` are room for those of the block.
template <typename T, typename I>
void AddInRuns(const GatherShape& plan, const I* index, const T* update,
               int64_t low, int64_t high, const Runs& runs,
               SumOfMany<T>* totals, T* sums, T* rows) {
  const int64_t inner = plan.inner;
  const auto for_own = [&](const auto& fn) {
    for (int64_t r = 0; r < *runs.num_rows; ++r) {
      if (runs.rows[r] >= low && runs.rows[r] < high) fn(r);
    }
  };
  const auto end_run = [&](int64_t r) {
    T* const sum = sums + r * inner;
    for (int64_t i = 0; i < inner; ++i) {
      totals[r * inner + i] += SumOfMany<T>(sum[i]);
    }
    std::fill_n(sum, inner, T(0));
  };
  for_own([&](int64_t r) {
    std::fill_n(totals + r * inner, inner, SumOfMany<T>(0));
    std::fill_n(sums + r * inner, inner, T(0));
  });
  for (int64_t j = 0; j < plan.count; ++j, update += inner) {
    if (index[j] < low || index[j] >= high) continue;
    const int64_t place = runs.places[j], r = place / kSlicesRun;
    AddSlice(update, inner,
             place == kToRow ? rows + index[j] * inner : sums + r * inner);
    if (place % kSlicesRun == kSlicesRun - 1) end_run(r);
  }
  for_own([&](int64_t r) {
    end_run(r);
    T* const row = rows + runs.rows[r] * inner;
    for (int64_t i = 0; i < inner; ++i) {
      row[i] = static_cast<T>(SumOfMany<T>(row[i]) + totals[r * inner + i]);
    }
  });
}

// Each piece of work owns a range of `size` within one [batch, middle] block.
template <typename T, typename I>
KernelPtr ScatterAddKernel(const GatherShape& plan) {
  const int64_t blocks = plan.batch * plan.middle;
  const int64_t work = plan.count * plan.inner;
  const int64_t ranges = std::clamp<int64_t>(
      work / kScatterGrain, 1, std::clamp<int64_t>(plan.size, 1, 16));
  const int64_t width = CeilDiv(plan.size, ranges);
  // Integers lose nothing.
  const bool in_runs = std::is_floating_point_v<T> && plan.count > kSlicesRun;
  const int64_t words = in_runs ? Runs::Words(plan) : 0;           // of a batch
  const int64_t sums = in_runs ? MostRuns(plan) * plan.inner : 0;  // of a block
  const size_t bytes = plan.batch * words * sizeof(int64_t) +
                       blocks * sums * (sizeof(SumOfMany<T>) + sizeof(T));
  return KernelOf(
      [=](const KernelContext& c) -> Status {
        const I* indices = c.input<I>(1);
        SLUICE_RETURN_IF_ERROR(
            CheckIndices(indices, plan.batch * plan.count, plan.size));
        T* y = c.output<T>(0);
        const T* x = c.input<T>(0);
        if (y != x) {
          CopyBytes(x, y, blocks * plan.size * plan.inner * sizeof(T));
        }
        if (work == 0) return {};  // there may be 2^62 blocks of nothing
        auto* const workspace = static_cast<int64_t*>(c.workspace());
        const auto runs_of = [&](int64_t batch) {
          return Runs(plan, workspace + batch * words);
        };
        if (in_runs) {
          ParallelFor(plan.batch,
                      std::max<int64_t>(kScatterGrain / plan.count, 1),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t b = begin; b < end; ++b) {
                          FindRuns(indices + b * plan.count, plan, runs_of(b));
                        }
                      });
        }
        const auto add = [&](int64_t piece) {
          const int64_t block = piece / ranges, batch = block / plan.middle;
          const int64_t low = piece % ranges * width, high = low + width;
          const I* index = indices + batch * plan.count;
          const T* update = c.input<T>(2) + block * work;
          T* rows = y + block * plan.size * plan.inner;
          if (in_runs) {
            auto* all =
                reinterpret_cast<SumOfMany<T>*>(workspace + plan.batch * words);
            AddInRuns(plan, index, update, low, high, runs_of(batch),
                      all + block * sums,
                      reinterpret_cast<T*>(all + blocks * sums) + block * sums,
                      rows);
          } else {
            AddToRows(plan, index, update, low, high, rows);
          }
        };
        ParallelFor(blocks * ranges,
                    std::max<int64_t>(
                        kScatterGrain / std::max<int64_t>(work / ranges, 1), 1),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) add(i);
                    });
        return {};
      },
      bytes);
}

Result<KernelPtr> MakeScatterAdd(const KernelSpec& spec) {
  const GatherShape plan =
      GatherShapeOf(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  return DispatchAmong<float, double, int8_t, uint8_t, int32_t, int64_t>(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return DispatchIndex(spec.inputs[1].dtype,
                             [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
                               return ScatterAddKernel<T, I>(plan);
                             });
      });
}

}  // namespace

void RegisterScatterAddKernels(KernelTable& table) {
  // Halves would be rounded with every addition: widen.cc has them.
  table.Register({.op = "ScatterAdd",
                  .dtypes = kFloatDouble | kIntegral,
                  .make = MakeScatterAdd});
}

}  // namespace sluice::cpu
