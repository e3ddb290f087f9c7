#include "dist/mpi/gathered_trees.h"

#include <algorithm>
#include <cstring>

#include "dist/collective/reduce.h"

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
  const auto count = static_cast<int64_t>(bytes / SizeOf(dtype_));
  SubtreeRow row;
  for (size_t rank = 0; rank < of_ranks_.size(); ++rank) {
    for (size_t sum = 0; sum < of_ranks_[rank].size(); ++sum) {
      const std::byte* hand = At(rank, sum);
      row.Append(
          of_ranks_[rank][sum],
          [&](size_t slot) {
            AddTo(dtype_, slots_[slot].data(), hand, count);
            hand = slots_[slot].data();
          },
          [&](size_t slot) {
            if (slots_[slot].data() == hand) return;
            std::memcpy(slots_[slot].data(), hand, bytes);
          });
    }
  }
  return slots_[0].data();
}

}  // namespace sluice::dist
