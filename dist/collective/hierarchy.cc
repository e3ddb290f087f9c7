// An all-reduce over hosts: a ring of one rank of each, its leader, between
// sums and copies on every host.
//
// On a host the ranks are in a row, the leader first. The sum goes along it
// from the last to the leader, each adding its own, and the result goes back,
// both piece by piece.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "dist/collective/reduce.h"

namespace sluice::dist {
namespace {

int PlaceIn(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) -
                          ranks.begin());
}

int At(const std::vector<int>& ranks, int place) {
  return ranks[static_cast<size_t>(place)];
}

}  // namespace

// A piece goes out while the next one comes in.
Status Group::PassOn(int from, int to, MutableBytes data, int64_t element_bytes,
                     const Combine& combine) {
  if (from < 0 && to < 0) return {};
  const int64_t pieces = PiecesOf(static_cast<int64_t>(data.size()));
  for (int64_t i = 0; i <= pieces; ++i) {
    Bytes out;
    MutableBytes in;
    if (to >= 0 && i > 0) out = PieceOf(data, element_bytes, pieces, i - 1);
    if (from >= 0 && i < pieces) in = PieceOf(data, element_bytes, pieces, i);
    SLUICE_RETURN_IF_ERROR(Trade(to < 0 ? from : to, {&out, 1},
                                 from < 0 ? to : from, in, combine));
  }
  return {};
}

Status Group::ReduceOverHosts(DType dtype, std::byte* data, int64_t count,
                              int divisor) {
  const std::vector<int>& here = links_.plan.here();
  const std::vector<int>& leaders = links_.plan.leaders();
  const auto hosts = static_cast<int>(leaders.size());
  const int place = PlaceIn(here, rank_);
  const int ahead = place > 0 ? At(here, place - 1) : -1;
  const int behind =
      place + 1 < static_cast<int>(here.size()) ? At(here, place + 1) : -1;
  Circle circle{0, 1, -1, -1};
  if (place == 0 && hosts > 1) {
    const int host = PlaceIn(leaders, rank_);
    circle = {host, hosts, At(leaders, (host + 1) % hosts),
              At(leaders, (host + hosts - 1) % hosts)};
  }

  std::array<int, 2> to{}, from{};
  size_t sends = 0, receives = 0;
  for (const int rank : {ahead, behind, circle.next}) {
    if (rank >= 0) to[sends++] = rank;
  }
  for (const int rank : {ahead, behind, circle.previous}) {
    if (rank >= 0) from[receives++] = rank;
  }
  SLUICE_RETURN_IF_ERROR(
      GreetThem({to.data(), sends}, {from.data(), receives}));

  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const MutableBytes whole(data, static_cast<size_t>(count * element_bytes));
  const Combine add = [&](MutableBytes sum, Bytes part) {
    AddTo(dtype, sum.data(), part.data(),
          static_cast<int64_t>(sum.size()) / element_bytes);
  };
  SLUICE_RETURN_IF_ERROR(PassOn(behind, ahead, whole, element_bytes, add));
  if (circle.size > 1) {
    SLUICE_RETURN_IF_ERROR(ReduceAround(circle, dtype, data, count, 1, divisor,
                                        /*scattered=*/false,
                                        /*greets=*/false));
  } else if (place == 0 && divisor > 1) {
    DivideBy(dtype, data, count, divisor);
  }
  return PassOn(ahead, behind, whole, element_bytes);
}

}  // namespace sluice::dist
