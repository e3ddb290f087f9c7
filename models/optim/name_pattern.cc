#include "models/optim/name_pattern.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// "'a', 'b'", or of many the first and the last few: what is to be chosen is
// often at the end of a network.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kEach = 4;
  std::string some;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names.size() > 2 * kEach && i == kEach) {
      some += ", ...";
      i = names.size() - kEach;
    }
    some += fmt::format("{}'{}'", some.empty() ? "" : ", ", names[i]);
  }
  return some;
}

}  // namespace

bool MatchesPattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0;
  // The last star, and the first character that it does not stand for. Earlier
  // stars need not be tried again: what follows them has been found as far to
  // the left as it can be.
  size_t star = std::string_view::npos, after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() &&
               (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool MatchesAny(std::string_view name, std::string_view patterns) {
  while (!patterns.empty()) {
    const size_t end = std::min(patterns.find(','), patterns.size());
    if (MatchesPattern(name, patterns.substr(0, end))) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

Result<std::vector<std::string>> SelectNames(
    std::string_view patterns, const std::vector<std::string>& names) {
  std::vector<bool> selected(names.size());
  for (size_t begin = 0; !patterns.empty() && begin <= patterns.size();) {
    const size_t end = std::min(patterns.find(',', begin), patterns.size());
    const std::string_view pattern = patterns.substr(begin, end - begin);
    begin = end + 1;
    if (pattern.empty()) {
      return InvalidArgument(fmt::format(
          "'{}' has an empty pattern at character {}", patterns, end + 1));
    }
    bool found = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!MatchesPattern(names[i], pattern)) continue;
      selected[i] = true;
      found = true;
    }
    if (!found) {
      return InvalidArgument(fmt::format("'{}' matches none of the {} names {}",
                                         pattern, names.size(), Some(names)));
    }
  }
  std::vector<std::string> chosen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (selected[i]) chosen.push_back(names[i]);
  }
  return chosen;
}

}  // namespace sluice
