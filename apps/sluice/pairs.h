// Pairs of ranks, and of ranks with parameter servers: who measures with whom
// when, and which of them are slow.
#ifndef SLUICE_APPS_SLUICE_PAIRS_H_
#define SLUICE_APPS_SLUICE_PAIRS_H_

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "apps/sluice/median.h"

namespace sluice::tool {

// a < b.
struct Pair {
  int a = 0, b = 0;
};

// Rounds in which each rank is in one pair at most, and each two are in one
// pair of one round: the circle of a tournament, in which one rank stays where
// it is and the others go round. With an odd number one rests in each round.
inline std::vector<std::vector<Pair>> Rounds(int ranks) {
  const int seats = ranks + ranks % 2;
  std::vector<std::vector<Pair>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    const auto at = [&](int seat) {
      return seat == 0 ? seats - 1 : (round + seat) % (seats - 1);
    };
    std::vector<Pair> pairs;
    for (int seat = 0; seat < seats / 2; ++seat) {
      const auto [a, b] = std::minmax({at(seat), at(seats - 1 - seat)});
      if (b < ranks) pairs.push_back({a, b});
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

// The results that a pair has measured. Servers have numbers behind those of
// the ranks.
struct PairRow {
  Pair pair;
  bool one_host = false;
  double latency = 0;          // seconds, one way
  double there = 0, back = 0;  // bytes per second from a to b, and from b to a
  bool served = false;         // b is a server, which is reached otherwise

  double slower() const { return std::min(there, back); }
};

// The pairs that are much slower than others of their kind, within a host or
// between hosts, of two ranks or with a server: less than a third of the median
// rate, or more than three times the median latency and 50 us. Of fewer than
// three of a kind none is.
inline std::vector<PairRow> SlowPairs(const std::vector<PairRow>& rows) {
  constexpr double kTimes = 3, kBeyond = 50e-6;
  std::map<std::pair<bool, bool>, std::vector<PairRow>> kinds;
  for (const PairRow& row : rows) {
    kinds[{row.served, !row.one_host}].push_back(row);
  }
  std::vector<PairRow> slow;
  for (const auto& [which, kind] : kinds) {
    if (kind.size() < 3) continue;
    std::vector<double> rates, latencies;
    for (const PairRow& row : kind) {
      rates.push_back(row.slower());
      latencies.push_back(row.latency);
    }
    const double rate = Median(std::move(rates));
    const double latency = Median(std::move(latencies));
    std::copy_if(kind.begin(), kind.end(), std::back_inserter(slow),
                 [&](const PairRow& row) {
                   return row.slower() * kTimes < rate ||
                          row.latency > latency * kTimes + kBeyond;
                 });
  }
  return slow;
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_PAIRS_H_
