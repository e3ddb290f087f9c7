// All-reduces in steps of which each is with another partner, twice as far away
// as the one before (Thakur, Rabenseifner and Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005).
//
// They take a power of two of ranks. Each of the ranks that are too many is one
// of a pair among the first (Halves of algorithms.h): what it has is added to
// the other's before, and it is given the result.
//
// Doubling: everybody gives all that it has to its partner, and both add.
// Halving and doubling: partners share out what both have so far, and each adds
// up its half; what is then whole comes back the same way.
//
// The greeting goes round the ring as with any collective (ring.cc), where who
// follows hears of it (join.cc); a partner gets a header, too, before what it
// is given is believed.

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "dist/collective/reduce.h"

namespace sluice::dist {

// What is sent fits the way there, so that it is gone before anything is waited
// for, and what comes is added where it was. The first leaves before the
// greeting is heard, which is thus no step of its own.
Status Group::ReduceByDoubling(DType dtype, std::byte* data, int64_t count,
                               int divisor) {
  const Halves halves(rank_, size_);
  const Circle around = ring();
  const MutableBytes whole(data, static_cast<size_t>(count) * SizeOf(dtype));
  std::array<std::byte, kFrameBytes> mine, theirs;
  Encode(frame_, mine);
  const Combine add = [&](MutableBytes sum, Bytes part) {
    AddToEither(dtype, sum.data(), part.data(),
                static_cast<int64_t>(sum.size() / SizeOf(dtype)));
  };
  const auto say = [&](int to) {
    const std::array<Bytes, 2> out = {Bytes(mine), whole};
    // Who is next has the header already.
    return Trade(to, std::span(out).subspan(to == around.next ? 1 : 0), to, {});
  };
  const auto hear = [&](int from) -> Status {
    if (from != around.previous) {
      SLUICE_RETURN_IF_ERROR(Trade(from, {}, from, theirs));
      SLUICE_RETURN_IF_ERROR(CheckHeader(theirs));
    }
    return Trade(from, {}, from, whole, add);
  };

  const bool gathers = halves.pair() >= 0 && !halves.folded();
  const int first = gathers           ? -1
                    : halves.folded() ? halves.pair()
                                      : halves.RankAt(halves.place() ^ 1);
  if (first >= 0 && first != around.next) SLUICE_RETURN_IF_ERROR(say(first));
  SLUICE_RETURN_IF_ERROR(Greet(first == around.next ? whole : Bytes()));
  if (halves.folded()) return Trade(first, {}, first, whole);
  if (gathers) SLUICE_RETURN_IF_ERROR(hear(halves.pair()));
  for (int distance = 1; distance < halves.count(); distance *= 2) {
    const int partner = halves.RankAt(halves.place() ^ distance);
    if (partner != first) SLUICE_RETURN_IF_ERROR(say(partner));
    SLUICE_RETURN_IF_ERROR(hear(partner));
  }
  if (divisor > 1) DivideBy(dtype, data, count, divisor);
  return gathers ? say(halves.pair()) : Status();
}

Status Group::Swap(int partner, MutableBytes out, MutableBytes in,
                   int64_t element_bytes, const Combine& combine) {
  // As many on both sides.
  const int64_t pieces = PiecesOf(static_cast<int64_t>(out.size() + in.size()));
  for (int64_t i = 0; i < pieces; ++i) {
    const Bytes piece = PieceOf(out, element_bytes, pieces, i);
    SLUICE_RETURN_IF_ERROR(Trade(partner, {&piece, 1}, partner,
                                 PieceOf(in, element_bytes, pieces, i),
                                 combine));
  }
  return {};
}

Status Group::ReduceByHalving(DType dtype, std::byte* data, int64_t count,
                              int divisor) {
  const Halves halves(rank_, size_);
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const auto elements = [&](MutableBytes part) {
    return static_cast<int64_t>(part.size()) / element_bytes;
  };
  const Combine add = [&](MutableBytes sum, Bytes part) {
    AddTo(dtype, sum.data(), part.data(), elements(sum));
  };
  const MutableBytes whole(data, static_cast<size_t>(count * element_bytes));
  const std::vector<int> partners = halves.Partners();
  SLUICE_RETURN_IF_ERROR(GreetThem(partners, partners));

  const int pair = halves.pair();
  if (pair >= 0) {
    const MutableBytes low = PieceOf(whole, element_bytes, 2, 0);
    const MutableBytes high = PieceOf(whole, element_bytes, 2, 1);
    if (halves.folded()) {
      SLUICE_RETURN_IF_ERROR(Swap(pair, low, high, element_bytes, add));
      SLUICE_RETURN_IF_ERROR(Swap(pair, high, {}, element_bytes));
      return Swap(pair, {}, whole, element_bytes);
    }
    SLUICE_RETURN_IF_ERROR(Swap(pair, high, low, element_bytes, add));
    SLUICE_RETURN_IF_ERROR(Swap(pair, {}, high, element_bytes));
  }

  // What this rank and its partners so far have together, before each step.
  std::vector<MutableBytes> shared = {whole};
  const auto half = [&](int distance, bool mine) {
    const bool high = (halves.place() & distance) != 0;
    return PieceOf(shared.back(), element_bytes, 2, high == mine ? 1 : 0);
  };
  for (int distance = 1; distance < halves.count(); distance *= 2) {
    const MutableBytes own = half(distance, true);
    SLUICE_RETURN_IF_ERROR(Swap(halves.RankAt(halves.place() ^ distance),
                                half(distance, false), own, element_bytes,
                                add));
    shared.push_back(own);
  }
  if (divisor > 1) {
    DivideBy(dtype, shared.back().data(), elements(shared.back()), divisor);
  }
  for (int distance = halves.count() / 2; distance >= 1; distance /= 2) {
    const MutableBytes own = shared.back();
    shared.pop_back();
    SLUICE_RETURN_IF_ERROR(Swap(halves.RankAt(halves.place() ^ distance), own,
                                half(distance, false), element_bytes));
  }
  return pair >= 0 ? Swap(pair, whole, {}, element_bytes) : Status();
}

}  // namespace sluice::dist
