#include "graph/near_misses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace sluice {
namespace {

constexpr size_t kSuggestions = 3;

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// Edits that turn a into b: Damerau's distance, in the restricted form that
// edits no letter twice.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, exchanged});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = last;
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearMisses(std::string_view mistyped,
                       const std::vector<std::string_view>& names) {
  struct Miss {
    size_t distance;
    std::string_view name;
  };
  const std::string wanted = Lower(mistyped);
  const size_t limit = 1 + wanted.size() / 4;
  std::vector<Miss> misses;
  for (std::string_view name : names) {
    const std::string candidate = Lower(name);
    const size_t longer = std::max(wanted.size(), candidate.size());
    const size_t shorter = std::min(wanted.size(), candidate.size());
    if (shorter == 0) continue;
    const bool part = candidate.find(wanted) != candidate.npos ||
                      wanted.find(candidate) != wanted.npos;
    // Whatever is part of the other comes after what is mistyped.
    if (longer - shorter <= limit) {
      const size_t distance = Distance(wanted, candidate);
      if (distance <= limit) {
        misses.push_back({distance, name});
        continue;
      }
    }
    if (part && shorter > 2) misses.push_back({limit + longer, name});
  }
  std::stable_sort(
      misses.begin(), misses.end(),
      [](const Miss& a, const Miss& b) { return a.distance < b.distance; });
  if (misses.empty()) return "";
  std::string text = "; did you mean ";
  const size_t count = std::min(misses.size(), kSuggestions);
  for (size_t i = 0; i < count; ++i) {
    text += fmt::format("{}'{}'",
                        i == 0           ? ""
                        : i + 1 == count ? " or "
                                         : ", ",
                        misses[i].name);
  }
  return text + "?";
}

}  // namespace sluice
