// Sums in the order of a tree (engine/runtime/subtrees.h), over connections
// that lead from a rank to the next.
//
// Ranks have leaves from the left. The sums of the subtrees of all leaves
// before a rank's come from the rank before, piece by piece; it appends its
// own, joins siblings, and passes on what is left, at most log2 of the leaves.
// The last rank has the whole, which goes round to the one before it. In round
// t rank r < n - 1 sends piece t - r of its sums, and of the whole rank n - 1
// piece t - n + 1, rank r < n - 2 piece t - n - r.

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "dist/collective/subtree_sums.h"
#include "engine/runtime/subtrees.h"

namespace sluice::dist {
namespace {

struct Span {
  int64_t begin = 0, bytes = 0;
};

}  // namespace

class Group::Chain {
 public:
  // Of SumTree, by two ranks or more.
  Chain(DType dtype, int64_t leaves, std::span<const void* const> sums,
        void* whole, int64_t count, int rank, int size)
      : dtype_(dtype),
        sums_(sums),
        whole_(static_cast<std::byte*>(whole)),
        count_(count),
        rank_(rank),
        last_(size - 1),
        mine_(LeavesOf(leaves, rank, size)),
        own_(SubtreesOf(mine_)),
        before_(SubtreesOf({0, mine_.begin})),
        pieces_(PiecesOf(count * ElementBytes())) {
    after_ = SubtreesOf({0, mine_.end}).size();
    const auto most = static_cast<size_t>(PieceOf(0).bytes);
    for (auto& buffer : buffers_) {
      buffer = std::make_unique_for_overwrite<std::byte[]>(
          most * (before_.size() + own_.size() + 1));
    }
  }

  int64_t rounds() const { return pieces_ + 2 * last_ - 1; }

  // One part, as it is received.
  Bytes Out(int64_t round) {
    const int64_t sums = SumsOut(round), whole = WholeOut(round);
    if (!Is(sums)) return Is(whole) ? Bytes(Whole(PieceOf(whole))) : Bytes();
    const Span piece = PieceOf(sums);
    // Those of the first rank are as its caller has them.
    if (rank_ == 0) {
      if (after_ == 1 && !Is(whole)) return Sum(0, piece);
      for (size_t i = 0; i < after_; ++i) {
        std::memcpy(Slot(round - 1, i, piece), Sum(i, piece).data(),
                    static_cast<size_t>(piece.bytes));
      }
    }
    int64_t bytes = static_cast<int64_t>(after_) * piece.bytes;
    if (Is(whole)) {
      const Bytes last = Whole(PieceOf(whole));
      std::memcpy(Slot(round - 1, after_, piece), last.data(), last.size());
      bytes += PieceOf(whole).bytes;
    }
    return {Slot(round - 1, 0, {}), static_cast<size_t>(bytes)};
  }

  MutableBytes In(int64_t round) {
    const int64_t sums = SumsIn(round), whole = WholeIn(round);
    if (!Is(sums)) return Is(whole) ? Whole(PieceOf(whole)) : MutableBytes();
    int64_t bytes = static_cast<int64_t>(before_.size()) * PieceOf(sums).bytes;
    if (Is(whole)) bytes += PieceOf(whole).bytes;
    return {Slot(round, 0, {}), static_cast<size_t>(bytes)};
  }

  // What has come in.
  void Take(int64_t round) {
    const int64_t sums = SumsIn(round);
    if (!Is(sums)) return;
    const Span piece = PieceOf(sums);
    if (const int64_t whole = WholeIn(round); Is(whole)) {
      const MutableBytes place = Whole(PieceOf(whole));
      std::memcpy(place.data(), Slot(round, before_.size(), piece),
                  place.size());
    }
    SubtreeRow row = before_;
    for (size_t i = 0; i < own_.size(); ++i) {
      AppendSum(dtype_, own_.subtrees()[i], Sum(i, piece).data(), piece.bytes,
                row, [&](size_t slot) { return Slot(round, slot, piece); });
    }
    if (rank_ < last_) return;
    const MutableBytes place = Whole(piece);
    std::memcpy(place.data(), Slot(round, 0, piece), place.size());
  }

 private:
  int64_t ElementBytes() const { return static_cast<int64_t>(SizeOf(dtype_)); }
  bool Is(int64_t piece) const { return piece >= 0 && piece < pieces_; }
  Span PieceOf(int64_t i) const {
    const Range part = Part(count_, pieces_, i);
    return {part.begin * ElementBytes(), part.count * ElementBytes()};
  }
  // Pieces that are sent, and received, of the sums and the whole.
  int64_t SumsOut(int64_t round) const {
    return rank_ == last_ ? -1 : round - rank_;
  }
  int64_t WholeOut(int64_t round) const {
    if (rank_ == last_) return round - last_;
    return rank_ == last_ - 1 ? -1 : round - last_ - 1 - rank_;
  }
  int64_t SumsIn(int64_t round) const {
    return rank_ == 0 ? -1 : round - rank_ + 1;
  }
  int64_t WholeIn(int64_t round) const {
    return rank_ == last_ ? -1 : round - last_ - rank_;
  }
  Bytes Sum(size_t i, const Span& piece) const {
    return {static_cast<const std::byte*>(sums_[i]) + piece.begin,
            static_cast<size_t>(piece.bytes)};
  }
  MutableBytes Whole(const Span& piece) const {
    return {whole_ + piece.begin, static_cast<size_t>(piece.bytes)};
  }
  // Of what came in that round, and was added to there.
  std::byte* Slot(int64_t round, size_t slot, const Span& piece) const {
    return buffers_[static_cast<size_t>(round + 2) % 2].get() +
           static_cast<int64_t>(slot) * piece.bytes;
  }

  DType dtype_;
  std::span<const void* const> sums_;
  std::byte* whole_;
  int64_t count_;
  int rank_, last_;
  LeafRange mine_;
  SubtreeRow own_, before_;  // of its leaves, and of all before these
  size_t after_ = 0;         // subtrees of the leaves up to this rank's
  int64_t pieces_;
  // Into one comes what is sent from it in the next round.
  std::array<std::unique_ptr<std::byte[]>, 2> buffers_;
};

Status Group::AddTree(DType dtype, int64_t leaves,
                      std::span<const void* const> sums, void* whole,
                      int64_t count) {
  if (count == 0) return GreetAll();
  Chain chain(dtype, leaves, sums, whole, count, rank_, size_);
  SLUICE_RETURN_IF_ERROR(Greet());
  for (int64_t round = 0; round < chain.rounds(); ++round) {
    const Bytes out = chain.Out(round);
    SLUICE_RETURN_IF_ERROR(Move({&out, 1}, chain.In(round)));
    chain.Take(round);
  }
  return {};
}

}  // namespace sluice::dist
