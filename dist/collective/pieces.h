// Tensors are moved in pieces that fit a core's cache: while one is added, the
// system moves the next one.
#ifndef SLUICE_DIST_COLLECTIVE_PIECES_H_
#define SLUICE_DIST_COLLECTIVE_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/ceil_div.h"

namespace sluice::dist {

inline constexpr int64_t kPieceBytes = 256 << 10;

// The number of pieces that `bytes` are cut into, at least 1.
inline int64_t PiecesOf(int64_t bytes) {
  return std::max<int64_t>(CeilDiv(bytes, kPieceBytes), 1);
}

// Part `i` of `total` elements cut into `parts`: where it begins and how many
// it has. Where they do not divide evenly, the first parts have one more.
struct Range {
  int64_t begin, count;
};
inline Range Part(int64_t total, int64_t parts, int64_t i) {
  const int64_t each = total / parts, more = total % parts;
  return {each * i + std::min(i, more), each + (i < more ? 1 : 0)};
}

// Part `i` of bytes that are whole elements.
inline std::span<std::byte> PieceOf(std::span<std::byte> data,
                                    int64_t element_bytes, int64_t parts,
                                    int64_t i) {
  const Range part =
      Part(static_cast<int64_t>(data.size()) / element_bytes, parts, i);
  return data.subspan(static_cast<size_t>(part.begin * element_bytes),
                      static_cast<size_t>(part.count * element_bytes));
}

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_PIECES_H_
