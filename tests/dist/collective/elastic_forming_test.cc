// A process of an elastic job that dies while its next group forms: the others
// do not wait for it, but meet again. The limits are so long that who waited
// for one of them would be taken for one that hangs.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/membership/roster_keeper.h"
#include "dist/net/authority.h"
#include "dist/net/descriptor.h"
#include "dist/net/tls.h"
#include "tests/dist/collective/by_hand.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/free_ports.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

constexpr int kHand = 2;  // the seat that the test plays

// Three of a job, of which two are threads; its launcher is the test, too.
class HandedJob {
 public:
  explicit HandedJob(bool encrypted) {
    std::optional<Authority> authority;
    if (encrypted) authority.emplace(Authority::Create("test").ValueOrThrow());
    for (int seat = 0; seat <= kHand; ++seat) {
      auto [rank, to_rank] = Pair();
      auto [to_keeper, keeper] = Pair();
      keeper_.Add(seat, std::move(keeper));
      ways_.push_back({std::move(to_rank), std::move(to_keeper)});
      LaunchInfo info;
      info.rank = info.local_rank = seat;
      info.size = info.local_size = kHand + 1;
      info.token = Token();
      if (authority) {
        info.credentials =
            authority->Issue("worker", seat, std::chrono::hours(1))
                .ValueOrThrow();
      }
      if (seat == kHand) {
        hand_ = std::move(rank);
        info_ = info;
        continue;
      }
      info.roster_fd = rank.Release();
      threads_.emplace_back([this, info] { Live(info); });
    }
  }
  ~HandedJob() {
    for (std::thread& thread : threads_) thread.join();
  }

  // It comes to meet, and all three are told of a group: what this rank would
  // be told by a launcher of no elastic job.
  LaunchInfo Meet(int port, int64_t done) {
    Meeting meeting;
    meeting.port = port;
    meeting.done = done;
    meeting.patience = meeting.silence = std::chrono::minutes(10);
    meeting.build = "any";
    const std::string said = Encoded(meeting);
    REQUIRE(send(hand_.get(), said.data(), said.size(), 0) ==
            static_cast<ssize_t>(said.size()));
    while (true) {
      Step();
      std::array<char, 1000> packet;
      const ssize_t n =
          recv(hand_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n <= 0) continue;
      const Assembly group =
          ParseAssembly({packet.data(), static_cast<size_t>(n)}).ValueOrThrow();
      REQUIRE(group.seats.size() == 3);
      LaunchInfo info = info_;
      info.epoch = group.epoch;
      info.host = group.address;
      info.port = group.port;
      info.rank = static_cast<int>(
          std::find(group.seats.begin(), group.seats.end(), kHand) -
          group.seats.begin());
      return info;
    }
  }
  // The launcher learns that it has died.
  void End() { (void)keeper_.Ended(kHand, /*well=*/false, "it is dead"); }
  // Until the two have come to meet once more, without being told that.
  void AwaitOthers() {
    while (ways_[0].meetings < 2 || ways_[1].meetings < 2) Step();
  }
  // And until they are a group.
  void CheckGoesOn() {
    while (done_ < kHand) Step();
    for (int seat = 0; seat < kHand; ++seat) {
      const auto i = static_cast<size_t>(seat);
      CAPTURE(seat);
      CHECK_MESSAGE(statuses_[i].ok(), statuses_[i].message());
      CHECK(sizes_[i] == kHand);
    }
  }

 private:
  // Between a rank and the keeper, so that what passes is seen.
  struct Way {
    Descriptor to_rank, to_keeper;
    int meetings = 0;
  };

  static std::pair<Descriptor, Descriptor> Pair() {
    std::array<int, 2> ends = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
                       ends.data()) == 0);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }

  // All that has come; how many of it came to meet.
  static int Pass(const Descriptor& from, const Descriptor& to) {
    std::vector<char> packet(kRosterBytes);
    int meetings = 0;
    while (true) {
      const ssize_t n =
          recv(from.get(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n <= 0) return meetings;
      const auto bytes = static_cast<size_t>(n);
      if (ParseMeeting({packet.data(), bytes}).ok()) ++meetings;
      (void)send(to.get(), packet.data(), bytes, MSG_NOSIGNAL);
    }
  }

  void Step() {
    for (Way& way : ways_) way.meetings += Pass(way.to_rank, way.to_keeper);
    keeper_.Keep();
    for (Way& way : ways_) Pass(way.to_keeper, way.to_rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void Live(const LaunchInfo& info) {
    const auto i = static_cast<size_t>(info.rank);
    GroupOptions options;
    options.join_timeout = options.peer_timeout = std::chrono::minutes(10);
    auto group = Group::Join(info, options);
    statuses_[i] = group.status();
    if (group.ok()) {
      sizes_[i] = (*group)->size();
      statuses_[i] = (*group)->Barrier("together");
    }
    ++done_;
  }

  RosterKeeper keeper_{1, std::chrono::minutes(10), [](const std::string&) {}};
  std::vector<Way> ways_;  // by seat
  Descriptor hand_;
  LaunchInfo info_;
  std::array<Status, kHand> statuses_;
  std::array<int, kHand> sizes_{};
  std::atomic<int> done_ = 0;
  std::vector<std::thread> threads_;
};

template <typename Body>
void PlainAndEncrypted(Body body) {
  for (const bool encrypted : {false, true}) {
    if (encrypted && !HasTls()) continue;
    CAPTURE(encrypted);
    const Watchdog watchdog;
    HandedJob job(encrypted);
    body(job);
  }
}

TEST_CASE("one dies before its hello: rank 0 is told, and the others hear it") {
  PlainAndEncrypted([](HandedJob& job) {
    job.Meet(/*port=*/1, /*done=*/-1);
    job.End();
    job.CheckGoesOn();
  });
}

TEST_CASE("one dies behind its hello: the others notice it themselves") {
  PlainAndEncrypted([](HandedJob& job) {
    ByHand hand(job.Meet(/*port=*/1, /*done=*/-1));
    hand.SayHello();
    hand.HearPlaces();
    hand.Close();
    job.AwaitOthers();
    job.End();
    job.CheckGoesOn();
  });
}

TEST_CASE("rank 0 dies: the others find nobody there") {
  PlainAndEncrypted([](HandedJob& job) {
    // It is further than the others, and listens no more.
    const int port = sluice::testing::FreePorts(1)[0];
    REQUIRE(job.Meet(port, /*done=*/7).rank == 0);
    job.AwaitOthers();
    job.End();
    job.CheckGoesOn();
  });
}

}  // namespace
}  // namespace sluice::dist
