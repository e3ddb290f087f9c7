// What the launcher of an elastic job hears of its ranks, and from whom.
#include "dist/membership/roster_keeper.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::dist {
namespace {

// The keeper's end and the rank's.
std::pair<Descriptor, Descriptor> Ends() {
  int ends[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

size_t PolledOf(const RosterKeeper& keeper) {
  std::vector<pollfd> polled;
  keeper.AddPolled(&polled);
  return polled.size();
}

TEST_CASE("a rank that has closed its end is polled no more") {
  std::vector<std::string> said;
  RosterKeeper keeper(1, std::chrono::seconds(60),
                      [&](const std::string& line) { said.push_back(line); });
  std::vector<Descriptor> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    auto [mine, its] = Ends();
    keeper.Add(rank, std::move(mine));
    ranks.push_back(std::move(its));
  }
  constexpr std::string_view kBeat = "beat";
  const auto beat = [&](int rank) {
    return send(ranks[static_cast<size_t>(rank)].get(), kBeat.data(),
                kBeat.size(), 0) == static_cast<ssize_t>(kBeat.size());
  };
  for (int rank = 0; rank < 3; ++rank) CHECK(beat(rank));
  keeper.Keep();
  CHECK(PolledOf(keeper) == 3);
  // Behind its last word, too, and it may be alive for long after.
  CHECK(beat(1));
  ranks[1] = Descriptor();
  CHECK(PolledOf(keeper) == 3);
  keeper.Keep();
  CHECK(PolledOf(keeper) == 2);
  keeper.Keep();
  CHECK(beat(0));
  CHECK(beat(2));
  CHECK_FALSE(keeper.Ended(1, /*well=*/true, "rank 1 ended"));
  CHECK_FALSE(keeper.Ended(0, /*well=*/true, "rank 0 ended"));
  CHECK(PolledOf(keeper) == 1);
  for (const std::string& line : said) CAPTURE(line);
  CHECK(said.empty());
}

}  // namespace
}  // namespace sluice::dist
