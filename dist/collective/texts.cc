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
                                             std::string_view mine) {
  const auto size = static_cast<size_t>(group.size());
  std::vector<int64_t> lengths(size);
  const auto length = static_cast<int64_t>(mine.size());
  SLUICE_RETURN_IF_ERROR(group.AllGather(fmt::format("length of {}", what),
                                         &length, sizeof(length),
                                         lengths.data()));
  for (size_t rank = 0; rank < size; ++rank) {
    SLUICE_RETURN_IF_ERROR(
        CheckTextLength(what, static_cast<int>(rank), lengths[rank]));
  }
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded(mine);
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest) * size, '\0');
  SLUICE_RETURN_IF_ERROR(
      group.AllGather(what, padded.data(), longest, all.data()));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < size; ++rank) {
    texts.push_back(all.substr(rank * static_cast<size_t>(longest),
                               static_cast<size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace sluice::dist
