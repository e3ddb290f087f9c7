#include "dist/membership/leases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "dist/membership/membership.h"
#include "dist/membership/rank_name.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLease(3000), kFirst(10'000), kTick(250);

Status Closed() {
  return Unavailable("closed");
}

// All but `silent` are heard, for so long.
void Live(Leases& leases, int size, milliseconds time, int silent = -1) {
  for (milliseconds t(0); t < time; t += kTick) {
    for (int rank = 0; rank < size; ++rank) {
      if (rank != silent) leases.Heard(rank);
    }
    leases.Pass(kTick);
  }
}

std::string Verdict(const Leases& leases) {
  return leases.verdict() ? leases.verdict()->ToString() : "none";
}

TEST_CASE("the lease of who waits for ever is long") {
  CHECK(LeaseOf(milliseconds(6000)) == milliseconds(5000));
  CHECK(LeaseOf(milliseconds::max()) > std::chrono::hours(24 * 365));
}

TEST_CASE("who is heard in time is never lost, who is silent is at its lease") {
  for (int silent = 0; silent < 3; ++silent) {
    Leases leases(3, kLease, kFirst);
    Live(leases, 3, std::chrono::minutes(30));
    CHECK(Verdict(leases) == "none");
    Live(leases, 3, kLease - 2 * kTick, silent);
    CHECK(Verdict(leases) == "none");
    Live(leases, 3, kTick, silent);
    CHECK(Verdict(leases) == "deadline exceeded: " + RankName(silent, 3) +
                                 " has shown no sign of life for 3000 ms");
    // It does not change.
    leases.Failed(1, DataLoss("late"));
    CHECK(leases.verdict()->code() == Code::kDeadlineExceeded);
  }
}

// As where a launcher has continued it, because another had given it up.
TEST_CASE("a coordinator that stood still is the reason of those that ended") {
  Leases leases(3, kLease, kFirst);
  leases.Ended(1, kLease);
  CHECK(
      Verdict(leases) ==
      "deadline exceeded: rank 0 of 3, which coordinates the job, stood still "
      "for 3000 ms, in which rank 1 of 3 has ended");
  // The last beat, from which the others count, was up to a twelfth of the
  // lease before it stood still.
  Leases just(3, kLease, kFirst);
  just.Ended(1, kLease * 11 / 12);
  CHECK(just.verdict()->code() == Code::kDeadlineExceeded);
  Leases busy(3, kLease, kFirst);
  busy.Ended(1, kLease / 2);
  CHECK(Verdict(busy) == "unavailable: rank 1 of 3 has ended");
}

TEST_CASE("who may still be joining has more time") {
  Leases leases(2, kLease, kFirst);
  Live(leases, 2, kFirst - kTick, 1);
  CHECK(Verdict(leases) == "none");
  Live(leases, 2, kTick, 1);
  CHECK(leases.verdict()->code() == Code::kDeadlineExceeded);
}

TEST_CASE("an end without a goodbye is a loss, one with is none") {
  Leases lost(3, kLease, kFirst);
  lost.Ended(2);
  CHECK(Verdict(lost) == "unavailable: rank 2 of 3 has ended");
  Leases left(3, kLease, kFirst);
  left.Left(2);
  left.Ended(2);
  Live(left, 3, std::chrono::minutes(1), 2);
  CHECK(Verdict(left) == "none");
  left.Suspects(1, 2, Closed());
  CHECK(Verdict(left) == "unavailable: rank 2 of 3 has left the job");
}

TEST_CASE("a goodbye that comes after the suspicion explains it") {
  Leases leases(3, kLease, kFirst);
  leases.Suspects(1, 2, Closed());
  CHECK(Verdict(leases) == "none");
  leases.Left(2);
  CHECK(Verdict(leases) == "unavailable: rank 2 of 3 has left the job");
}

TEST_CASE("a failure is everyone's, as it was said") {
  Leases leases(3, kLease, kFirst);
  leases.Suspects(0, 1, Closed());
  leases.Failed(1, DataLoss("rank 1 of 3 failed: no file"));
  CHECK(Verdict(leases) == "data loss: rank 1 of 3 failed: no file");
}

// A row of ranks each of which is stuck for the next, told in any order; the
// last one is killed, is stopped, or cannot be reached.
TEST_CASE("of a row of suspicions the last is to blame") {
  std::mt19937 random(1);
  for (int run = 0; run < 300; ++run) {
    const int size = 2 + static_cast<int>(random() % 7);
    const int lost = static_cast<int>(random() % static_cast<unsigned>(size));
    Leases leases(size, kLease, kFirst);
    Live(leases, size, kTick);
    std::vector<int> others;
    for (int k = 1; k < size; ++k) others.push_back((lost + k) % size);
    std::shuffle(others.begin(), others.end(), random);
    const unsigned kind = random() % 3;
    const milliseconds step(random() % 200 / others.size());
    for (const int rank : others) {
      leases.Suspects(rank, (rank + size - 1) % size, Closed());
      if (step.count() > 0) leases.Pass(step);
    }
    CHECK(Verdict(leases) == "none");
    if (kind == 0) leases.Ended(lost);
    Live(leases, size, kLease + kTick, kind == 1 ? lost : -1);
    const std::string name = RankName(lost, size);
    CAPTURE(size);
    CAPTURE(lost);
    if (kind == 0)
      CHECK(Verdict(leases) == "unavailable: " + name + " has ended");
    if (kind == 1) {
      CHECK(Verdict(leases).starts_with("deadline exceeded: " + name));
    }
    if (kind == 2) {
      CHECK(Verdict(leases) ==
            "unavailable: " + RankName((lost + 1) % size, size) +
                " cannot reach " + name + ", though both are alive: closed");
    }
  }
}

TEST_CASE("two that suspect each other are both named") {
  Leases leases(4, kLease, kFirst);
  Live(leases, 4, kTick);
  leases.Suspects(2, 1, DeadlineExceeded("nothing from it"));
  leases.Suspects(1, 2, DeadlineExceeded("it takes nothing"));
  Live(leases, 4, std::chrono::seconds(2));
  REQUIRE(leases.verdict());
  CHECK(leases.verdict()->code() == Code::kDeadlineExceeded);
  CHECK(Verdict(leases).find("rank 1 of 4") != std::string::npos);
  CHECK(Verdict(leases).find("rank 2 of 4") != std::string::npos);
}

}  // namespace
}  // namespace sluice::dist
