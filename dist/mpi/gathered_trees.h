// Sums in the order of a tree (engine/runtime/subtrees.h) where every rank has
// those of all ranks' subtrees. Internal to dist/mpi.
#ifndef SLUICE_DIST_MPI_GATHERED_TREES_H_
#define SLUICE_DIST_MPI_GATHERED_TREES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/dtype.h"
#include "engine/runtime/subtrees.h"

namespace sluice::dist {

// Memory for a piece of them, and what it adds up to. Of each rank it has as
// many sums as the one has that has most.
class GatheredTrees {
 public:
  static constexpr size_t kPieceBytes = 256 << 10;

  GatheredTrees(DType dtype, int64_t leaves, int rank, int size);

  // The places of this rank's sums, each kPieceBytes behind the one before; and
  // of all ranks', each() bytes of each rank.
  std::byte* Mine(size_t sum) { return At(rank_, sum); }
  std::byte* all() { return all_.data(); }
  int64_t each() const { return static_cast<int64_t>(each_); }

  // The first `bytes` of the whole tree's sum.
  const std::byte* Added(size_t bytes);

 private:
  std::byte* At(size_t rank, size_t sum) {
    return all_.data() + rank * each_ + sum * kPieceBytes;
  }

  const DType dtype_;
  const size_t rank_;
  std::vector<std::vector<Subtree>> of_ranks_;
  size_t each_ = 0;
  std::vector<std::byte> all_;
  std::vector<std::vector<std::byte>> slots_;  // of a SubtreeRow
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MPI_GATHERED_TREES_H_
