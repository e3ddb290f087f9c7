// The collectives as rings. Everything moves from a rank to the next, in pieces
// that fit a core's cache: while one is added, the system moves the next one.

#include <algorithm>
#include <array>

#include "dist/collective/group.h"
#include "dist/collective/reduce.h"

namespace sluice::dist {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;
// A first piece of up to this many bytes goes with the header: the buffers of
// the system take so much though nobody reads yet.
constexpr int64_t kEagerBytes = 16 << 10;

int64_t PiecesOf(int64_t bytes) {
  return std::max<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes, 1);
}

// Part `i` of `total` cut into `parts`: those before i, and those up to it, by
// which the first ones are the larger.
struct Range {
  int64_t begin, count;
};
Range Part(int64_t total, int64_t parts, int64_t i) {
  const int64_t each = total / parts, more = total % parts;
  return {each * i + std::min(i, more), each + (i < more ? 1 : 0)};
}

}  // namespace

// `count` elements: a chunk a process, of as many pieces in each, which may be
// empty. Step t of a ring is pieces [t * pieces(), (t + 1) * pieces()).
class Group::Cut {
 public:
  Cut(std::byte* data, int64_t count, int64_t element_bytes, int size)
      : data_(data),
        count_(count),
        element_bytes_(element_bytes),
        size_(size),
        pieces_(PiecesOf(Part(count, size, 0).count * element_bytes)) {}

  int64_t pieces() const { return pieces_; }
  // Piece i of a process whose chunk at step 0 is `first`, and which goes one
  // chunk back with every step.
  MutableBytes Piece(int64_t first, int64_t i) const {
    const int64_t chunk = (first - i / pieces_ + 2 * size_) % size_;
    const Range whole = Part(count_, size_, chunk);
    const Range part = Part(whole.count, pieces_, i % pieces_);
    return {data_ + (whole.begin + part.begin) * element_bytes_,
            static_cast<size_t>(part.count * element_bytes_)};
  }

 private:
  std::byte* data_;
  int64_t count_, element_bytes_;
  int64_t size_, pieces_;
};

Status Group::Move(std::span<const Bytes> out, MutableBytes in) {
  SLUICE_RETURN_IF_ERROR(Exchange(links_.next, out, links_.previous, {&in, 1},
                                  After(peer_timeout_)));
  for (const Bytes& piece : out) {
    bytes_sent_ += static_cast<int64_t>(piece.size());
  }
  return {};
}

Status Group::Greet(Bytes first) {
  std::array<std::byte, kFrameBytes> mine, theirs;
  Encode(frame_, mine);
  const std::array<Bytes, 2> out = {Bytes(mine), first};
  SLUICE_RETURN_IF_ERROR(Move(out, theirs));
  SLUICE_ASSIGN_OR_RETURN(const Frame other, Decode(theirs));
  return CheckSame(frame_, other, links_.previous.peer());
}

Status Group::GreetAll() {
  for (int round = 1; round < size_; ++round) {
    SLUICE_RETURN_IF_ERROR(Greet());
  }
  return {};
}

// Sends one piece ahead where it may, so that there is something on the way
// while a piece is added.
Status Group::MoveAround(const Flow& flow, int64_t sent) {
  const int64_t ahead = flow.lag > 1 ? 1 : 0;
  for (int64_t i = 0; i < flow.pieces; ++i) {
    std::array<Bytes, 2> out;
    size_t count = 0;
    while (sent < std::min(i + 1 + ahead, flow.pieces)) {
      out[count++] = flow.out(sent++);
    }
    SLUICE_RETURN_IF_ERROR(Move({out.data(), count}, flow.in(i)));
    if (flow.arrived) flow.arrived(i);
  }
  return {};
}

// Reduce-scatter, then all-gather. At each step a rank sends the chunk that it
// received in the step before: first its own, n-1 times what it has added its
// own to; the last of these is whole, and from then on it passes on what is
// whole. So the chunk c is added in the order of ranks c, c+1, ..., by those,
// and everyone gets the bits of the last.
Status Group::Reduce(DType dtype, std::byte* data, int64_t count, bool mean) {
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const auto elements = [&](MutableBytes piece) {
    return static_cast<int64_t>(piece.size()) / element_bytes;
  };
  if (mean && IsHalf(dtype)) DivideBy(dtype, data, count, size_);
  if (count == 0) return GreetAll();
  const Cut cut(data, count, element_bytes, size_);
  const int64_t adding = (size_ - 1) * cut.pieces();
  const int64_t last_step = adding - cut.pieces();
  const auto mine = [&](int64_t i) { return cut.Piece(rank_, i); };
  const auto theirs = [&](int64_t i) { return cut.Piece(rank_ - 1, i); };
  arriving_.resize(cut.Piece(0, 0).size());  // the largest

  Flow flow;
  flow.pieces = 2 * adding;
  flow.lag = cut.pieces();
  flow.out = mine;
  flow.in = [&](int64_t i) {
    return i < adding ? MutableBytes(arriving_).first(theirs(i).size())
                      : theirs(i);
  };
  flow.arrived = [&](int64_t i) {
    if (i >= adding) return;
    const MutableBytes sum = theirs(i);
    AddTo(dtype, sum.data(), arriving_.data(), elements(sum));
    if (i >= last_step && mean && !IsHalf(dtype)) {
      DivideBy(dtype, sum.data(), elements(sum), size_);
    }
  };
  const Bytes first = mine(0);
  const bool eager = static_cast<int64_t>(first.size()) <= kEagerBytes;
  SLUICE_RETURN_IF_ERROR(Greet(eager ? first : Bytes()));
  return MoveAround(flow, eager ? 1 : 0);
}

// The second half of the above.
Status Group::Gather(int64_t each, std::byte* all) {
  if (each == 0) return GreetAll();
  const Cut cut(all, each * size_, 1, size_);
  Flow flow;
  flow.pieces = (size_ - 1) * cut.pieces();
  flow.lag = cut.pieces();
  flow.out = [&](int64_t i) { return cut.Piece(rank_, i); };
  flow.in = [&](int64_t i) { return cut.Piece(rank_ - 1, i); };
  SLUICE_RETURN_IF_ERROR(Greet());
  return MoveAround(flow, 0);
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
