// Rows of a table that is in pieces (graph/ops/counted_rows.cc).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/semantics/index_error.h"
#include "engine/semantics/row_bytes.h"
#include "engine/semantics/row_ids.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_groups.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrainBytes = 1 << 16;  // of a piece of work, about

int64_t SlicesPerPiece(int64_t bytes) {
  return std::max<int64_t>(kGrainBytes / std::max<int64_t>(bytes, 1), 1);
}

Status CheckCount(int64_t count, int64_t most) {
  if (count >= 0 && count <= most) return {};
  return OutOfRange(fmt::format("{} of {} rows are counted", count, most));
}

template <typename I>
KernelPtr RowsBetweenKernel(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  const int64_t begin = spec.attrs.Int("begin"), end = spec.attrs.Int("end");
  const int64_t limit = spec.attrs.Int("limit");
  return KernelOf([=](const KernelContext& c) -> Status {
    const I* all = c.input<I>(0);
    SLUICE_RETURN_IF_ERROR(CheckRows(all, n, limit));
    I* rows = c.output<I>(0);
    int64_t* places = c.output<int64_t>(1);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = all[i];
      if (row < begin || row >= end) continue;
      rows[count] = static_cast<I>(row - begin);
      places[count++] = i;
    }
    std::fill_n(rows + count, n - count, static_cast<I>(kNoRow));
    std::fill_n(places + count, n - count, kNoRow);
    *c.output<int64_t>(2) = count;
    return {};
  });
}

template <typename I>
KernelPtr GatherCountedKernel(const KernelSpec& spec) {
  const int64_t limit = spec.inputs[0].shape[0];
  const int64_t most = spec.inputs[1].shape[0];
  const int64_t bytes = static_cast<int64_t>(RowBytes(spec.inputs[0]));
  return KernelOf([=](const KernelContext& c) -> Status {
    const I* rows = c.input<I>(1);
    const int64_t count = *c.input<int64_t>(2);
    SLUICE_RETURN_IF_ERROR(CheckCount(count, most));
    SLUICE_RETURN_IF_ERROR(CheckIndices(rows, count, limit));
    if (bytes == 0) return {};
    const char* params = c.input<char>(0);
    char* y = c.output<char>(0);
    ParallelFor(count, SlicesPerPiece(bytes), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        std::memcpy(y + i * bytes, params + rows[i] * bytes, bytes);
      }
    });
    return {};
  });
}

template <typename I>
KernelPtr PadRowsKernel(const KernelSpec& spec) {
  const int64_t most = spec.inputs[0].shape[0];
  return KernelOf([=](const KernelContext& c) -> Status {
    const int64_t count = *c.input<int64_t>(1);
    SLUICE_RETURN_IF_ERROR(CheckCount(count, most));
    const I* rows = c.input<I>(0);
    I* y = c.output<I>(0);
    if (y != rows) std::copy_n(rows, count, y);
    std::fill_n(y + count, most - count, static_cast<I>(kNoRow));
    return {};
  });
}

// Where each slice is comes first, since those of a piece are in the order of
// its rows; then they are copied side by side.
template <typename I>
KernelPtr JoinRowsKernel(const KernelSpec& spec) {
  const std::vector<int64_t> ends = spec.attrs.Ints("ends");
  const int64_t n = spec.inputs[0].shape.elements();
  const int64_t bytes = static_cast<int64_t>(RowBytes(spec.inputs[1]));
  const size_t pieces = ends.size();
  return KernelOf(
      [=](const KernelContext& c) -> Status {
        const I* rows = c.input<I>(0);
        auto* const next = static_cast<const char**>(c.workspace());
        const char** const from = next + pieces;
        for (size_t p = 0; p < pieces; ++p) {
          next[p] = c.input<char>(static_cast<int>(p) + 1);
        }
        for (int64_t i = 0; i < n; ++i) {
          const int64_t row = rows[i];
          if (row < 0 || row >= ends.back()) {
            return IndexOutOfRange(fmt::to_string(row), i, ends.back());
          }
          const auto piece = static_cast<size_t>(
              std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
          from[i] = next[piece];
          next[piece] += bytes;
        }
        if (bytes == 0) return {};
        char* y = c.output<char>(0);
        ParallelFor(n, SlicesPerPiece(bytes), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            std::memcpy(y + i * bytes, from[i], bytes);
          }
        });
        return {};
      },
      (pieces + static_cast<size_t>(n)) * sizeof(const char*));
}

}  // namespace

void RegisterCountedRowsKernels(KernelTable& table) {
  const auto add = [&](const char* op, size_t rows, auto make) {
    table.Register({.op = op, .make = [rows, make](const KernelSpec& spec) {
                      return DispatchIndex(
                          spec.inputs[rows].dtype,
                          [&]<typename I>(TypeTag<I> tag) -> Result<KernelPtr> {
                            return make(tag, spec);
                          });
                    }});
  };
  add("RowsBetween", 0, []<typename I>(TypeTag<I>, const KernelSpec& spec) {
    return RowsBetweenKernel<I>(spec);
  });
  add("GatherCounted", 1, []<typename I>(TypeTag<I>, const KernelSpec& spec) {
    return GatherCountedKernel<I>(spec);
  });
  add("PadRows", 0, []<typename I>(TypeTag<I>, const KernelSpec& spec) {
    return PadRowsKernel<I>(spec);
  });
  add("JoinRows", 0, []<typename I>(TypeTag<I>, const KernelSpec& spec) {
    return JoinRowsKernel<I>(spec);
  });
}

}  // namespace sluice::cpu
