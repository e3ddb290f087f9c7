// Ranks that end while a job meets. The limits are so long that who waited for
// one of them would be taken for one that hangs.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/group.h"
#include "dist/membership/rank_name.h"
#include "dist/net/tls.h"
#include "tests/dist/collective/by_hand.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double
using sluice::testing::Contains;

GroupOptions Patient() {
  GroupOptions options;
  options.join_timeout = options.peer_timeout = std::chrono::minutes(10);
  return options;
}

// A thread each for some ranks, until they have joined, or not.
class Joining {
 public:
  explicit Joining(const std::vector<LaunchInfo>& infos) : infos_(infos) {}
  ~Joining() { Join(); }

  void Start(int rank) {
    threads_.emplace_back([this, rank] {
      auto group = Group::Join(infos_[static_cast<size_t>(rank)], Patient());
      Status status = group.status();
      if (group.ok()) status = (*group)->Barrier("here");
      statuses_[static_cast<size_t>(rank)] = status;
    });
  }
  const std::vector<Status>& Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return statuses_;
  }

 private:
  const std::vector<LaunchInfo> infos_;
  std::vector<Status> statuses_ = std::vector<Status>(infos_.size());
  std::vector<std::thread> threads_;
};

std::vector<LaunchInfo> LaunchOf(int size, bool encrypted) {
  return encrypted ? LaunchEncrypted(size) : Launch(size);
}

TEST_CASE("one that dies behind its hello is named by all, at once") {
  for (const bool encrypted : {false, true}) {
    if (encrypted && !HasTls()) continue;
    for (const int size : {2, 3, 5}) {
      const Watchdog watchdog;
      CAPTURE(encrypted);
      CAPTURE(size);
      const std::vector<LaunchInfo> infos = LaunchOf(size, encrypted);
      const int lost = size - 1;
      ByHand hand(infos.back());
      Joining joining(infos);
      for (int rank = 0; rank < lost; ++rank) joining.Start(rank);
      hand.SayHello();
      hand.HearPlaces();
      hand.Close();
      const std::vector<Status>& statuses = joining.Join();
      for (int rank = 0; rank < lost; ++rank) {
        const Status& status = statuses[static_cast<size_t>(rank)];
        CAPTURE(rank);
        CHECK(status.code() == Code::kUnavailable);
        CHECK(Contains(status.message(), RankName(lost, size)));
      }
    }
  }
}

// Rank 0, to which that one has no connection, waits for others by then, which
// wait for that one.
TEST_CASE("one that dies when rank 0 is through is named by all, at once") {
  for (const bool encrypted : {false, true}) {
    if (encrypted && !HasTls()) continue;
    const Watchdog watchdog;
    CAPTURE(encrypted);
    constexpr int kSize = 8, kLost = 5;
    const std::vector<LaunchInfo> infos = LaunchOf(kSize, encrypted);
    ByHand hand(infos[kLost]);
    Joining joining(infos);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != kLost) joining.Start(rank);
    }
    hand.SayHello();
    hand.HearPlaces();
    hand.HearCoordinator();
    hand.Close();
    const std::vector<Status>& statuses = joining.Join();
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == kLost) continue;
      const Status& status = statuses[static_cast<size_t>(rank)];
      CAPTURE(rank);
      CHECK(status.code() == Code::kUnavailable);
      CHECK(Contains(status.message(), RankName(kLost, kSize)));
    }
  }
}

// As a pod of Kubernetes' is.
TEST_CASE("one that is started again while others are missing is let in") {
  for (const bool encrypted : {false, true}) {
    if (encrypted && !HasTls()) continue;
    const Watchdog watchdog;
    CAPTURE(encrypted);
    const std::vector<LaunchInfo> infos = LaunchOf(3, encrypted);
    Joining joining(infos);
    joining.Start(0);
    for (int times = 0; times < 2; ++times) {
      ByHand hand(infos[1]);
      hand.SayHello();
      hand.Close();
    }
    for (const int rank : {1, 2}) joining.Start(rank);
    for (const Status& status : joining.Join()) {
      CHECK_MESSAGE(status.ok(), status.message());
    }
  }
}

}  // namespace
}  // namespace sluice::dist
