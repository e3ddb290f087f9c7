#include "dist/collective/algorithms.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <set>
#include <utility>

namespace sluice::dist {
namespace {

constexpr std::array<std::string_view, 4> kNames = {
    "auto", "ring", "halving-doubling", "hierarchical"};

}  // namespace

std::string_view NameOf(Algorithm algorithm) {
  return kNames[static_cast<size_t>(algorithm)];
}

Plan::Plan(Algorithm algorithm, std::vector<int> hosts, int rank)
    : algorithm_(algorithm), hosts_(std::move(hosts)), rank_(rank) {
  std::set<int> seen;
  for (int other = 0; other < static_cast<int>(hosts_.size()); ++other) {
    const int host = hosts_[static_cast<size_t>(other)];
    if (host == hosts_[static_cast<size_t>(rank)]) here_.push_back(other);
    if (seen.insert(host).second) leaders_.push_back(other);
  }
}

// With one rank on each host, or all on one, it would be a ring or less.
bool Plan::UsesHosts() const {
  if (algorithm_ != Algorithm::kAuto) {
    return algorithm_ == Algorithm::kHierarchical;
  }
  return leaders_.size() > 1 && leaders_.size() < hosts_.size();
}

Way Plan::Of(int64_t bytes) const {
  if (algorithm_ == Algorithm::kRing) return Way::kRing;
  if (algorithm_ == Algorithm::kHierarchical) return Way::kHierarchical;
  if (bytes <= kDoublingBytes) return Way::kDoubling;
  if (algorithm_ == Algorithm::kHalvingDoubling) return Way::kHalving;
  if (leaders_.size() > 1 && hosts_.size() >= kHalvingRanks &&
      bytes <= kHalvingBytes) {
    return Way::kHalving;
  }
  return UsesHosts() ? Way::kHierarchical : Way::kRing;
}

std::vector<int> Plan::Partners() const {
  std::set<int> partners;
  if (algorithm_ == Algorithm::kAuto ||
      algorithm_ == Algorithm::kHalvingDoubling) {
    const Halves halves(rank_, static_cast<int>(hosts_.size()));
    for (const int other : halves.Partners()) partners.insert(other);
  }
  const auto add_beside = [&](const std::vector<int>& ranks, bool round) {
    const size_t n = ranks.size();
    const auto at = static_cast<size_t>(
        std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    if (at == n || n == 1) return;
    if (at > 0 || round) partners.insert(ranks[(at + n - 1) % n]);
    if (at + 1 < n || round) partners.insert(ranks[(at + 1) % n]);
  };
  if (UsesHosts()) {
    add_beside(here_, /*round=*/false);
    add_beside(leaders_, /*round=*/true);
  }
  return {partners.begin(), partners.end()};
}

Halves::Halves(int rank, int size)
    : rank_(rank),
      count_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
      extra_(size - count_),
      pair_(rank < 2 * extra_ ? rank ^ 1 : -1) {}

std::vector<int> Halves::Partners() const {
  std::vector<int> partners;
  if (pair_ >= 0) partners.push_back(pair_);
  if (folded()) return partners;
  for (int distance = 1; distance < count_; distance *= 2) {
    partners.push_back(RankAt(place() ^ distance));
  }
  return partners;
}

}  // namespace sluice::dist
