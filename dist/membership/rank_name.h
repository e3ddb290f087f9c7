// The names of ranks and their groups in messages.
#ifndef SLUICE_DIST_MEMBERSHIP_RANK_NAME_H_
#define SLUICE_DIST_MEMBERSHIP_RANK_NAME_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

namespace sluice::dist {

// "rank 2 of 4": no name begins another's.
inline std::string RankName(int rank, int size) {
  return fmt::format("rank {} of {}", rank, size);
}

// "rank 2", "ranks 2, 3"
template <typename Int>
std::string RankNames(const std::vector<Int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

// The name of a part of a job of `size`: "group 'rows' of ranks 0, 1 of 4"
inline std::string SubgroupName(std::string_view name,
                                const std::vector<int>& ranks, int size) {
  return fmt::format("group '{}' of ranks {} of {}", name,
                     fmt::join(ranks, ", "), size);
}

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_RANK_NAME_H_
