#include "dist/mpi/gathered_trees.h"

#include <algorithm>

#include "dist/collective/subtree_sums.h"

namespace sluice::dist {

GatheredTrees::GatheredTrees(DType dtype, int64_t leaves, int rank, int size)
    : dtype_(dtype), rank_(static_cast<size_t>(rank)) {
  size_t most = 0;
  SubtreeRow row;  // as Added makes it, for how long it becomes
  size_t longest = 0;
  for (int other = 0; other < size; ++other) {
    const SubtreeRow trees = SubtreesOf(LeavesOf(leaves, other, size));
    of_ranks_.push_back(trees.subtrees());
    most = std::max(most, trees.size());
    for (const Subtree& tree : trees.subtrees()) {
      row.Append(tree);
      longest = std::max(longest, row.size());
    }
  }
  each_ = most * kPieceBytes;
  all_.resize(each_ * of_ranks_.size());
  slots_.resize(longest, std::vector<std::byte>(kPieceBytes));
}

const std::byte* GatheredTrees::Added(size_t bytes) {
  SubtreeRow row;
  for (size_t rank = 0; rank < of_ranks_.size(); ++rank) {
    for (size_t sum = 0; sum < of_ranks_[rank].size(); ++sum) {
      AppendSum(dtype_, of_ranks_[rank][sum], At(rank, sum),
                static_cast<int64_t>(bytes), row,
                [&](size_t slot) { return slots_[slot].data(); });
    }
  }
  return slots_[0].data();
}

}  // namespace sluice::dist
