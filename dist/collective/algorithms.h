// Which way an all-reduce takes, and who is a neighbour in it.
//
// Of n ranks that each have S bytes, with p the largest power of two up to n:
//
//   way           steps             bytes that a rank sends
//   doubling      log2 p            log2(p) S
//   halving       2 log2 p          2 (p - 1) / p S
//   ring          2 (n - 1)         2 (n - 1) / n S
//   hierarchical  2 (h - 1) and     one of a host's, of h hosts, to another
//                 those on a host   host: 2 (h - 1) / h S
//
// (where n is p; else the first two have two or three steps more). Few bytes
// take as long as their steps do, many as the bytes. A ring over hosts of
// several ranks each sends 2 (n - 1) / n S from a host to the next.
//
// Rank 0 chooses when the ring is formed (forming.h), and all know the same.
#ifndef SLUICE_DIST_COLLECTIVE_ALGORITHMS_H_
#define SLUICE_DIST_COLLECTIVE_ALGORITHMS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "dist/collective/options.h"

namespace sluice::dist {

std::string_view NameOf(Algorithm algorithm);  // as ParseAlgorithm has it

enum class Way : uint8_t { kDoubling, kHalving, kRing, kHierarchical };

// Up to so many bytes an all-reduce sends all of its data in each step
// (kDoubling): a connection's buffers take so many though nobody reads yet.
inline constexpr int64_t kDoublingBytes = 16 << 10;
// Up to so many bytes, kAuto chooses kHalving for at least kHalvingRanks ranks
// on several hosts. On one host, where each step is only a copy, a ring is as
// fast.
inline constexpr int64_t kHalvingBytes = 64 << 10;
inline constexpr int kHalvingRanks = 8;

// What rank `rank` is to do, of a group whose ranks are on `hosts`, any
// numbers, by rank. The lowest rank of a host leads it.
class Plan {
 public:
  Plan() = default;
  Plan(Algorithm algorithm, std::vector<int> hosts, int rank);

  const std::vector<int>& hosts() const { return hosts_; }
  // The way of an all-reduce of `bytes`, at least 1, among two ranks or more.
  Way Of(int64_t bytes) const;
  // The ranks of this host, and those that lead one; in order.
  const std::vector<int>& here() const { return here_; }
  const std::vector<int>& leaders() const { return leaders_; }
  // The ranks, in order, that this rank both sends to and receives from; in the
  // ring it only sends to one neighbour and receives from the other. Partners
  // are mutual.
  std::vector<int> Partners() const;

 private:
  bool UsesHosts() const;

  Algorithm algorithm_ = Algorithm::kAuto;
  std::vector<int> hosts_, here_, leaders_;
  int rank_ = 0;
};

// The ranks in halving and doubling: p of them, the largest power of two. The
// others are the odd ranks below 2 (n - p), for each of which the rank before
// takes part with the data of both.
class Halves {
 public:
  Halves(int rank, int size);

  int count() const { return count_; }
  // The rank that this rank, if below 2 (n - p), is a pair with, else -1; and
  // whether it is the one of the two that the other takes part for.
  int pair() const { return pair_; }
  bool folded() const { return pair_ >= 0 && rank_ % 2 == 1; }
  // Places count the ranks that take part, from 0: this rank's place, and the
  // rank at a place.
  int place() const { return rank_ < 2 * extra_ ? rank_ / 2 : rank_ - extra_; }
  int RankAt(int place) const {
    return place < extra_ ? 2 * place : place + extra_;
  }
  // The ranks that this rank exchanges data with.
  std::vector<int> Partners() const;

 private:
  int rank_, count_, extra_, pair_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_ALGORITHMS_H_
