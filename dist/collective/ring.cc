// The collectives as rings. Everything moves from a rank to the next, in pieces
// (pieces.h).

#include <algorithm>
#include <array>
#include <utility>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "dist/collective/reduce.h"

namespace sluice::dist {
namespace {

// Pieces of a chunk that go round together.
constexpr int64_t kBlockPieces = 2;
// Pieces that are sent before it is their turn.
constexpr int64_t kAhead = 1;
// A first piece of up to this many bytes goes with the header: the buffers of
// the system take so much though nobody reads yet.
constexpr int64_t kEagerBytes = 16 << 10;

}  // namespace

// `rows` of so many elements: a chunk of whole rows a process, of as many
// pieces in each, which may be empty. In each of so many steps a process sends
// a chunk.
//
// All steps are taken with the first few pieces of every chunk, a block, then
// all with the next ones: what is added, passed on and replaced in so few bytes
// stays in the cache, where the whole does not. The flow is those pieces in
// this order; what an element is added to is a matter of its chunk alone.
class Group::Cut {
 public:
  Cut(std::byte* data, int64_t rows, int64_t row, int64_t element_bytes,
      int size, int64_t steps)
      : data_(data),
        rows_(rows),
        row_(row),
        element_bytes_(element_bytes),
        size_(size),
        steps_(steps),
        pieces_(PiecesOf(Part(rows, size, 0).count * row * element_bytes)) {}

  int64_t flow() const { return steps_ * pieces_; }
  int64_t Step(int64_t i) const { return PlaceOf(i).step; }
  // Which of the flow must have arrived before i can be sent; below 0: none.
  int64_t Needs(int64_t i) const {
    const Place place = PlaceOf(i);
    return place.step == 0 ? -1 : i - place.block;
  }
  // Piece i of a process whose chunk at step 0 is `first`, and which goes one
  // chunk back with every step.
  MutableBytes Piece(int64_t first, int64_t i) const {
    const Place place = PlaceOf(i);
    const int64_t chunk = (first - place.step + 2 * size_) % size_;
    const Range whole = Part(rows_, size_, chunk);
    const Range part = Part(whole.count * row_, pieces_, place.piece);
    return {data_ + (whole.begin * row_ + part.begin) * element_bytes_,
            static_cast<size_t>(part.count * element_bytes_)};
  }

 private:
  struct Place {
    int64_t step, piece;  // of its chunk
    int64_t block;        // pieces of a chunk in its block
  };
  Place PlaceOf(int64_t i) const {
    const int64_t begin = i / (steps_ * kBlockPieces) * kBlockPieces;
    const int64_t block = std::min(kBlockPieces, pieces_ - begin);
    const int64_t within = i - begin * steps_;
    return {within / block, begin + within % block, block};
  }

  std::byte* data_;
  int64_t rows_, row_, element_bytes_;
  int64_t size_, steps_, pieces_;
};

const Combine Group::kPut;

Status Group::Move(std::span<const Bytes> out, MutableBytes in,
                   const Combine& combine) {
  return Trade(ring().next, out, ring().previous, in, combine);
}

Status Group::Trade(int to, std::span<const Bytes> out, int from,
                    MutableBytes in, const Combine& combine) {
  SLUICE_RETURN_IF_ERROR(
      links_.Exchange(to, out, from, in, combine, After(peer_timeout_)));
  for (const Bytes& piece : out) {
    bytes_sent_ += static_cast<int64_t>(piece.size());
  }
  return {};
}

Status Group::Greet(Bytes first) {
  std::array<std::byte, kFrameBytes> mine;
  Encode(frame_, mine);
  const std::array<Bytes, 2> out = {Bytes(mine), first};
  return HearHeader(out);
}

Status Group::HearHeader(std::span<const Bytes> out) {
  if (std::exchange(greeted_, false)) return Move(out, {});
  SLUICE_ASSIGN_OR_RETURN(Frame other, Hear(out));
  while (other.kind == FrameKind::kJoin) {
    SLUICE_RETURN_IF_ERROR(NoteJoined(other, size_ - 1));
    SLUICE_ASSIGN_OR_RETURN(other, Hear({}));
  }
  return CheckSame(frame_, other, RankName(other.rank, size_));
}

Result<Frame> Group::Hear(std::span<const Bytes> out) {
  std::array<std::byte, kFrameBytes> header;
  SLUICE_RETURN_IF_ERROR(Move(out, header));
  return Decode(header);
}

Status Group::GreetAll() {
  for (int round = 1; round < size_; ++round) {
    SLUICE_RETURN_IF_ERROR(Greet());
  }
  return {};
}

// Headers to and from all, before anything else of any of them is believed. The
// neighbours in the ring have greeted.
Status Group::GreetThem(std::span<const int> to, std::span<const int> from) {
  const Circle all = ring();
  std::array<std::byte, kFrameBytes> header;
  Encode(frame_, header);
  const Bytes out(header);
  for (const int rank : to) {
    if (rank == all.next) continue;
    SLUICE_RETURN_IF_ERROR(Trade(rank, {&out, 1}, rank, {}));
  }
  SLUICE_RETURN_IF_ERROR(Greet());
  for (const int rank : from) {
    if (rank == all.previous) continue;
    SLUICE_RETURN_IF_ERROR(Trade(rank, {}, rank, header));
    SLUICE_RETURN_IF_ERROR(CheckHeader(header));
  }
  return {};
}

Status Group::CheckHeader(
    std::span<const std::byte, kFrameBytes> header) const {
  SLUICE_ASSIGN_OR_RETURN(const Frame other, Decode(header));
  return CheckSame(frame_, other, RankName(other.rank, size_));
}

// Sends ahead where it may, so that there is something on the way while a piece
// is added.
Status Group::MoveAround(const Circle& circle, const Flow& flow, int64_t sent) {
  for (int64_t i = 0; i < flow.pieces; ++i) {
    std::array<Bytes, kAhead + 1> out;
    size_t count = 0;
    const int64_t end = std::min(i + 1 + kAhead, flow.pieces);
    while (sent < end && flow.needs(sent) < i) out[count++] = flow.out(sent++);
    SLUICE_RETURN_IF_ERROR(Trade(circle.next, {out.data(), count},
                                 circle.previous, flow.in(i), flow.combine(i)));
  }
  return {};
}

Status Group::Reduce(DType dtype, std::byte* data, int64_t rows, int64_t row,
                     bool mean, bool scattered) {
  const int64_t count = rows * row;
  if (count == 0) return GreetAll();
  if (mean && IsHalf(dtype)) DivideBy(dtype, data, count, size_);
  const int divisor = mean && !IsHalf(dtype) ? size_ : 1;
  const auto bytes = count * static_cast<int64_t>(SizeOf(dtype));
  switch (scattered ? Way::kRing : links_.plan.Of(bytes)) {
    case Way::kDoubling:
      return ReduceByDoubling(dtype, data, count, divisor);
    case Way::kHalving:
      return ReduceByHalving(dtype, data, count, divisor);
    case Way::kHierarchical:
      return ReduceOverHosts(dtype, data, count, divisor);
    case Way::kRing:
      break;
  }
  return ReduceAround(ring(), dtype, data, rows, row, divisor, scattered,
                      /*greets=*/true);
}

// Reduce-scatter, then all-gather. At each step a rank sends the chunk that it
// received in the step before: first that of the rank before it, n-1 times what
// it has added its own to; the last of these is its own chunk, whole, and from
// then on it passes on what is whole. So the chunk c is added in the order of
// ranks c+1, c+2, ..., c, and everyone gets the bits of the last.
Status Group::ReduceAround(const Circle& circle, DType dtype, std::byte* data,
                           int64_t rows, int64_t row, int divisor,
                           bool scattered, bool greets) {
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const auto elements = [&](MutableBytes piece) {
    return static_cast<int64_t>(piece.size()) / element_bytes;
  };
  const int64_t adding = circle.size - 1;  // steps
  const Cut cut(data, rows, row, element_bytes, circle.size,
                scattered ? adding : 2 * adding);
  const auto mine = [&](int64_t i) { return cut.Piece(circle.place - 1, i); };
  const auto theirs = [&](int64_t i) { return cut.Piece(circle.place - 2, i); };
  const Combine add = [&](MutableBytes sum, Bytes part) {
    AddTo(dtype, sum.data(), part.data(), elements(sum));
  };
  const Combine add_last = [&](MutableBytes sum, Bytes part) {
    add(sum, part);
    if (divisor > 1) DivideBy(dtype, sum.data(), elements(sum), divisor);
  };

  Flow flow;
  flow.pieces = cut.flow();
  flow.needs = [&](int64_t i) { return cut.Needs(i); };
  flow.out = mine;
  flow.in = theirs;
  flow.combine = [&](int64_t i) -> const Combine& {
    const int64_t step = cut.Step(i);
    return step >= adding ? kPut : step == adding - 1 ? add_last : add;
  };
  if (!greets) return MoveAround(circle, flow, 0);
  const Bytes first = mine(0);
  const bool eager = static_cast<int64_t>(first.size()) <= kEagerBytes;
  SLUICE_RETURN_IF_ERROR(Greet(eager ? first : Bytes()));
  return MoveAround(circle, flow, eager ? 1 : 0);
}

// The second half of the above.
Status Group::Gather(int64_t each, std::byte* all) {
  if (each == 0) return GreetAll();
  const Cut cut(all, each * size_, 1, 1, size_, size_ - 1);
  Flow flow;
  flow.pieces = cut.flow();
  flow.needs = [&](int64_t i) { return cut.Needs(i); };
  flow.out = [&](int64_t i) { return cut.Piece(rank_, i); };
  flow.in = [&](int64_t i) { return cut.Piece(rank_ - 1, i); };
  SLUICE_RETURN_IF_ERROR(Greet());
  return MoveAround(ring(), flow, 0);
}

// Along the ring from the root to the rank before it. Everyone has greeted
// before, or the root would return while another is in something else.
Status Group::Spread(std::byte* data, int64_t bytes, int root) {
  SLUICE_RETURN_IF_ERROR(GreetAll());
  const int64_t pieces = PiecesOf(bytes);
  const auto piece = [&](int64_t i) {
    const Range part = Part(bytes, pieces, i);
    return MutableBytes(data + part.begin, static_cast<size_t>(part.count));
  };
  const bool receives = rank_ != root;
  const bool sends = (rank_ + 1) % size_ != root;
  // A piece goes out while the next comes in.
  for (int64_t i = 0; i <= pieces; ++i) {
    Bytes out;
    MutableBytes in;
    if (sends && i > 0) out = piece(i - 1);
    if (receives && i < pieces) in = piece(i);
    SLUICE_RETURN_IF_ERROR(Move({&out, 1}, in));
  }
  return {};
}

}  // namespace sluice::dist
