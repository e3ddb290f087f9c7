// Who measures with whom in sluice doctor --cluster, and what it calls slow.
#include "apps/sluice/pairs.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace sluice::tool {
namespace {

TEST_CASE("each two ranks are a pair once, and no rank is in two at a time") {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    CAPTURE(ranks);
    const auto rounds = Rounds(ranks);
    CHECK(static_cast<int>(rounds.size()) == ranks - 1 + ranks % 2);
    std::map<std::pair<int, int>, int> met;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK(0 <= a);
        CHECK(a < b);
        CHECK(b < ranks);
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        ++met[{a, b}];
      }
    }
    CHECK(static_cast<int>(met.size()) == ranks * (ranks - 1) / 2);
    for (const auto& [pair, times] : met) CHECK(times == 1);
  }
}

// All pairs of four ranks on two hosts, two and two.
std::vector<PairRow> Rows() {
  std::vector<PairRow> rows;
  for (const auto& round : Rounds(4)) {
    for (const Pair& pair : round) {
      const bool one_host = pair.a / 2 == pair.b / 2;
      const double rate = one_host ? 4e9 : 1e8;
      rows.push_back({pair, one_host, one_host ? 2e-6 : 60e-6, rate, rate});
    }
  }
  return rows;
}

std::vector<std::pair<int, int>> Named(const std::vector<PairRow>& rows) {
  std::vector<std::pair<int, int>> named;
  for (const PairRow& row : SlowPairs(rows)) {
    named.emplace_back(row.pair.a, row.pair.b);
  }
  return named;
}

TEST_CASE("a pair is slow beside others of its kind") {
  CHECK(Named(Rows()).empty());
  for (size_t i = 0; i < 6; ++i) {
    std::vector<PairRow> rows = Rows();
    // Of two within hosts there is no saying which is the usual one.
    const bool known = !rows[i].one_host;
    const std::vector<std::pair<int, int>> wanted = {
        {rows[i].pair.a, rows[i].pair.b}};
    for (const bool there : {true, false}) {
      (there ? rows[i].there : rows[i].back) /= 4;
      CHECK((Named(rows) == wanted) == known);
      (there ? rows[i].there : rows[i].back) *= 4;
    }
    CHECK(Named(rows).empty());
    rows[i].there /= 2;  // that is no more than a busy neighbour does
    CHECK(Named(rows).empty());
    rows[i].latency += 300e-6;
    CHECK((Named(rows) == wanted) == known);
  }
}

// Servers answer otherwise than ranks do.
TEST_CASE("a pair with a server is slow beside other such pairs") {
  std::vector<PairRow> rows = Rows();
  for (int rank = 0; rank < 4; ++rank) {
    rows.push_back({{rank, 4}, true, 80e-6, 2e8, 3e8, /*served=*/true});
  }
  CHECK(Named(rows).empty());
  rows[7].there /= 4;
  rows[9].latency += 300e-6;
  CHECK(Named(rows) == std::vector<std::pair<int, int>>{{1, 4}, {3, 4}});
}

}  // namespace
}  // namespace sluice::tool
