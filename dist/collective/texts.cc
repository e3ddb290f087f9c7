#include "dist/collective/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace sluice::dist {

Status CheckTextLength(std::string_view what, int rank, int64_t length,
                       int64_t most) {
  if (length >= 0 && length <= most) return {};
  return DataLoss(fmt::format("{} of rank {}: {} bytes, of at most {}", what,
                              rank, length, most));
}

Result<std::vector<std::string>> GatherTexts(Collective& group,
                                             std::string_view what,
                                             std::string_view mine,
                                             int64_t most, int64_t at_once) {
  const auto size = static_cast<size_t>(group.size());
  std::vector<int64_t> lengths(size);
  const auto length = static_cast<int64_t>(mine.size());
  SLUICE_RETURN_IF_ERROR(group.AllGather(fmt::format("length of {}", what),
                                         &length, sizeof(length),
                                         lengths.data()));
  for (size_t rank = 0; rank < size; ++rank) {
    SLUICE_RETURN_IF_ERROR(
        CheckTextLength(what, static_cast<int>(rank), lengths[rank], most));
  }
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> texts(size);
  std::string piece, pieces;
  for (int64_t begin = 0; begin < longest; begin += at_once) {
    const int64_t each = std::min(at_once, longest - begin);
    const auto bytes = static_cast<size_t>(each);
    piece.assign(bytes, '\0');
    if (begin < length) {
      mine.copy(piece.data(), bytes, static_cast<size_t>(begin));
    }
    pieces.resize(bytes * size);
    SLUICE_RETURN_IF_ERROR(
        group.AllGather(what, piece.data(), each, pieces.data()));
    for (size_t rank = 0; rank < size; ++rank) {
      const int64_t own = std::clamp(lengths[rank] - begin, int64_t{0}, each);
      texts[rank].append(pieces, rank * bytes, static_cast<size_t>(own));
    }
  }
  return texts;
}

}  // namespace sluice::dist
