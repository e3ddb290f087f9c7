// A fixed order in which numbers of 0, 1, ..., n - 1 are added, whoever has
// them: a binary tree over these leaves, whose subtree of 2^k leaves begins at
// a multiple of 2^k and is the sum of its halves, left + right.
#ifndef SLUICE_ENGINE_RUNTIME_SUBTREES_H_
#define SLUICE_ENGINE_RUNTIME_SUBTREES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct Subtree {
  int64_t begin = 0;   // its first leaf, a multiple of `leaves`
  int64_t leaves = 1;  // a power of two

  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// Leaves [begin, end).
struct LeafRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// The leaves that rank `rank` of `size` has: shares are as even as possible,
// and none is empty if size <= leaves.
inline LeafRange LeavesOf(int64_t leaves, int64_t rank, int64_t size) {
  return {leaves * rank / size, leaves * (rank + 1) / size};
}

// The sums of subtrees side by side, from the left, with no two siblings among
// them: each is in a slot, from 0. Where the values are is the caller's matter.
class SubtreeRow {
 public:
  // Appends `next`, which begins where the row ends, and joins siblings. The
  // caller holds the value of `next`: add(i) must add it to the value in slot
  // i, which the caller then holds; at last put(i) must store the value held in
  // slot i, where it is already after an add(i).
  template <typename Add, typename Put>
  void Append(Subtree next, const Add& add, const Put& put) {
    while (!row_.empty() && row_.back().leaves == next.leaves &&
           row_.back().begin % (2 * next.leaves) == 0) {
      next = {row_.back().begin, 2 * next.leaves};
      row_.pop_back();
      add(row_.size());
    }
    put(row_.size());
    row_.push_back(next);
  }
  // Appends `next` without any values.
  void Append(Subtree next) {
    Append(
        next, [](size_t) {}, [](size_t) {});
  }

  const std::vector<Subtree>& subtrees() const { return row_; }
  size_t size() const { return row_.size(); }
  void Clear() { row_.clear(); }

 private:
  std::vector<Subtree> row_;
};

// The subtrees that these leaves form when appended one by one.
inline SubtreeRow SubtreesOf(LeafRange range) {
  SubtreeRow row;
  for (int64_t leaf = range.begin; leaf < range.end; ++leaf) {
    row.Append({leaf, 1});
  }
  return row;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_SUBTREES_H_
