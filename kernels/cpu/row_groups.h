// Slices that belong to rows of a table, brought together by row: what sums
// them adds those of a row in one order, whatever the threads do.
#ifndef SLUICE_KERNELS_CPU_ROW_GROUPS_H_
#define SLUICE_KERNELS_CPU_ROW_GROUPS_H_

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/semantics/compensated_sum.h"
#include "engine/semantics/index_error.h"
#include "engine/semantics/row_ids.h"

namespace sluice::cpu {

// Is each of n indices in [0, limit)?
template <typename I>
Status CheckIndices(const I* indices, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; ++i) {
    if (indices[i] < 0 || indices[i] >= limit) {
      return IndexOutOfRange(fmt::to_string(indices[i]), i, limit);
    }
  }
  return {};
}

// Checks that each of n rows is in [0, limit), or is kNoRow.
template <typename I>
Status CheckRows(const I* rows, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; ++i) {
    if (rows[i] != kNoRow && (rows[i] < 0 || rows[i] >= limit)) {
      return IndexOutOfRange(fmt::to_string(rows[i]), i, limit);
    }
  }
  return {};
}

class RowGroups {
 public:
  static size_t WorkspaceBytes(int64_t n) {
    return static_cast<size_t>(n) * (sizeof(Place) + sizeof(int64_t)) +
           sizeof(int64_t);
  }

  // Groups the slices of rows[0], ..., rows[n - 1] by row, without those of
  // kNoRow. The workspace, of WorkspaceBytes(n), is in use as long as this
  // lives.
  template <typename I>
  RowGroups(const I* rows, int64_t n, void* workspace)
      : places_(static_cast<Place*>(workspace)),
        starts_(reinterpret_cast<int64_t*>(places_ + n)) {
    int64_t taken = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (rows[i] != kNoRow) places_[taken++] = {rows[i], i};
    }
    std::sort(places_, places_ + taken, [](const Place& a, const Place& b) {
      return a.row != b.row ? a.row < b.row : a.slice < b.slice;
    });
    for (int64_t i = 0; i < taken; ++i) {
      if (i == 0 || places_[i].row != places_[i - 1].row) starts_[count_++] = i;
    }
    starts_[count_] = taken;
  }

  // Different rows.
  int64_t count() const { return count_; }
  int64_t row(int64_t group) const { return places_[starts_[group]].row; }
  int64_t first_slice(int64_t group) const { return slice(group, 0); }
  // The number of the group's i-th slice, in their order.
  int64_t slice(int64_t group, int64_t i) const {
    return places_[starts_[group] + i].slice;
  }
  int64_t slices(int64_t group) const {
    return starts_[group + 1] - starts_[group];
  }

  // sum[0, n) = the elements [first, first + n) of the group's slices, which
  // are `width` elements each, added to zero in their order, those after the
  // first kSlicesRun by runs.
  template <typename T>
  void Sum(int64_t group, const T* slices, int64_t width, int64_t first,
           int64_t n, T* sum) const {
    std::fill_n(sum, n, T(0));
    const int64_t end = starts_[group + 1];
    const int64_t later = std::min(starts_[group] + kSlicesRun, end);
    Add(starts_[group], later, slices + first, width, n, sum);
    if (later == end) return;
    constexpr int64_t kTile = 256;  // elements, on the stack
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      SumOfMany<T> total[kTile] = {};
      for (int64_t i = later; i < end; i += kSlicesRun) {
        T run[kTile] = {};
        Add(i, std::min(i + kSlicesRun, end), slices + first + at, width, m,
            run);
        for (int64_t k = 0; k < m; ++k) total[k] += SumOfMany<T>(run[k]);
      }
      for (int64_t k = 0; k < m; ++k) {
        sum[at + k] = static_cast<T>(SumOfMany<T>(sum[at + k]) + total[k]);
      }
    }
  }

  // Calls fn(group, its first element, number of elements) for the part
  // [begin, end) of the elements of all groups, `width` each.
  template <typename Fn>
  static void ForEach(int64_t begin, int64_t end, int64_t width, Fn fn) {
    while (begin < end) {
      const int64_t group = begin / width, first = begin % width;
      const int64_t n = std::min(width - first, end - begin);
      fn(group, first, n);
      begin += n;
    }
  }

 private:
  struct Place {
    int64_t row, slice;
  };

  // Adds n elements of each of the slices at places [begin, end) to sum.
  template <typename T>
  void Add(int64_t begin, int64_t end, const T* slices, int64_t width,
           int64_t n, T* sum) const {
    for (int64_t i = begin; i < end; ++i) {
      const T* slice = slices + places_[i].slice * width;
      for (int64_t k = 0; k < n; ++k) sum[k] += slice[k];
    }
  }

  Place* places_;    // by row, those of a row in order
  int64_t* starts_;  // of the groups, and the end of the last
  int64_t count_ = 0;
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_ROW_GROUPS_H_
