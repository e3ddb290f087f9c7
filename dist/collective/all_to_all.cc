// What every rank has for every other, over connections that lead from a rank
// to the next.
//
// In hop h of n-1 a rank sends the blocks of the rank h-1 before it: those for
// the n-h ranks behind it, the next one's first. Of what comes it keeps the
// first and sends the others in the next hop. Blocks are cut into pieces, all
// hops of which are taken together, so that what is on its way needs little
// memory.

#include <array>
#include <cstring>
#include <memory>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"

namespace sluice::dist {

Status Group::Deal(const std::byte* mine, int64_t each, std::byte* all) {
  if (each == 0) return GreetAll();
  const int64_t pieces = PiecesOf(each * (size_ - 1));
  const int64_t most = Part(each, pieces, 0).count;
  // Into one comes what is sent from it in the next hop.
  std::array<std::unique_ptr<std::byte[]>, 2> buffers;
  for (auto& buffer : buffers) {
    buffer = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<size_t>(most * (size_ - 1)));
  }
  SLUICE_RETURN_IF_ERROR(Greet());
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const Range part = Part(each, pieces, piece);
    const auto bytes = static_cast<size_t>(part.count);
    // What moves is one part, as it is received.
    std::byte* own = buffers[0].get();
    for (int behind = 1; behind < size_; ++behind, own += bytes) {
      const int to = (rank_ + behind) % size_;
      std::memcpy(own, mine + to * each + part.begin, bytes);
    }
    Bytes out(buffers[0].get(), own);
    for (int hop = 1; hop < size_; ++hop) {
      const int from = (rank_ - hop + size_) % size_;
      std::byte* const place = all + from * each + part.begin;
      const int left = size_ - hop;  // blocks
      MutableBytes in(place, bytes);
      if (left > 1) {
        in = {buffers[static_cast<size_t>(hop) % 2].get(),
              bytes * static_cast<size_t>(left)};
      }
      SLUICE_RETURN_IF_ERROR(Move({&out, 1}, in));
      if (left == 1) break;
      std::memcpy(place, in.data(), bytes);
      out = in.subspan(bytes);
    }
  }
  return {};
}

}  // namespace sluice::dist
