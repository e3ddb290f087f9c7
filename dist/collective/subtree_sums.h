// Sums of subtrees side by side (engine/runtime/subtrees.h), in memory.
#ifndef SLUICE_DIST_COLLECTIVE_SUBTREE_SUMS_H_
#define SLUICE_DIST_COLLECTIVE_SUBTREE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dist/collective/reduce.h"
#include "engine/dtype.h"
#include "engine/runtime/subtrees.h"

namespace sluice::dist {

// Appends the sum of `next`, `bytes` at `sum`, to the row, whose sums are at
// slot(0), slot(1), ...: siblings are added, left + right.
template <typename Slot>
void AppendSum(DType dtype, const Subtree& next, const std::byte* sum,
               int64_t bytes, SubtreeRow& row, const Slot& slot) {
  const std::byte* hand = sum;
  row.Append(
      next,
      [&](size_t i) {
        std::byte* const left = slot(i);
        AddTo(dtype, left, hand, bytes / static_cast<int64_t>(SizeOf(dtype)));
        hand = left;
      },
      [&](size_t i) {
        std::byte* const place = slot(i);
        if (place == hand) return;
        std::memcpy(place, hand, static_cast<size_t>(bytes));
      });
}

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_SUBTREE_SUMS_H_
