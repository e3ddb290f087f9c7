#include "dist/collective/arguments.h"

#include <fmt/format.h>

#include <bit>

#include "dist/collective/reduce.h"
#include "dist/net/frame.h"
#include "engine/runtime/subtrees.h"

namespace sluice::dist {

Status CheckReduction(DType dtype, int64_t count, Reduction how) {
  const bool mean = how == Reduction::kMean;
  if (!kReducible.Contains(dtype) || (mean && !IsFloating(dtype))) {
    return InvalidArgument(
        fmt::format("{} has no {}", NameOf(dtype), mean ? "mean" : "sum"));
  }
  const uint64_t most = kMaxPayload / SizeOf(dtype);
  if (count < 0 || static_cast<uint64_t>(count) > most) {
    return InvalidArgument(
        fmt::format("{} elements, of at most {}", count, most));
  }
  return {};
}

Status CheckRows(int64_t count, int64_t row) {
  if (row >= 1 && count % row == 0) return {};
  return InvalidArgument(fmt::format("{} elements in rows of {}", count, row));
}

Status CheckEach(int64_t each) {
  if (each >= 0 && static_cast<uint64_t>(each) <= kMaxPayload) return {};
  return InvalidArgument(
      fmt::format("{} bytes each, of at most {}", each, kMaxPayload));
}

Status CheckRoot(int64_t bytes, int root, int size) {
  if (bytes >= 0 && root >= 0 && root < size) return {};
  return InvalidArgument(
      fmt::format("{} bytes from rank {} of {}", bytes, root, size));
}

Status CheckTree(DType dtype, int64_t leaves, size_t sums, int64_t count,
                 int rank, int size) {
  if (!kReducible.Contains(dtype)) {
    return InvalidArgument(fmt::format("{} has no sum", NameOf(dtype)));
  }
  if (leaves < size || !std::has_single_bit(static_cast<uint64_t>(leaves))) {
    return InvalidArgument(fmt::format(
        "{} leaves: wanted a power of two, at least {}", leaves, size));
  }
  const size_t wanted = SubtreesOf(LeavesOf(leaves, rank, size)).size();
  if (count < 0 || sums != wanted) {
    return InvalidArgument(
        fmt::format("{} sums of {} elements, wanted {}", sums, count, wanted));
  }
  return {};
}

}  // namespace sluice::dist
