// What goes wrong within an all-reduce of each way: another size, a rank that
// dies, one that is long about something else.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/algorithms.h"
#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "tests/dist/collective/hosts.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::Rounds;
using namespace testing;  // NOLINT: of the job's test double

// Of all ways.
int64_t RandomCount(std::mt19937& random) {
  constexpr int64_t kMost[] = {9, 4000, 60'000, 200'000};
  return 1 + static_cast<int64_t>(random() % kMost[random() % 4]);
}

}  // namespace

// Also where that is of another way.
TEST_CASE("in any way, another size, dtype or name is everyone's error") {
  std::mt19937 random(41);
  for (int job = 0; job < Rounds(120); ++job) {
    const int size = 2 + job % 8;
    const Algorithm algorithm = kAllAlgorithms[random() % 4];
    const std::vector<int> hosts = RandomHosts(size, random);
    const int odd = static_cast<int>(random() % At(size));
    const size_t at = random() % 4, what = random() % 3;
    std::vector<int64_t> counts;
    for (int i = 0; i < 4; ++i) counts.push_back(RandomCount(random));
    const int64_t other =
        random() % 3 == 0 ? counts[at] + 1 : counts[at] + RandomCount(random);
    CAPTURE(std::string(NameOf(algorithm)));
    CAPTURE(fmt::format("{}", hosts));
    CAPTURE(odd);
    CAPTURE(at);
    CAPTURE(what);
    const Watchdog watchdog;
    Groups groups = JoinOn(hosts, algorithm, WiresOf(random()));
    CheckMismatch(groups, [&](Group& group) -> Status {
      std::vector<float> data(400'001, 1.F);
      for (size_t i = 0; i < 4; ++i) {
        const bool differs = group.rank() == odd && i == at;
        SLUICE_RETURN_IF_ERROR(group.AllReduce(
            differs && what == 0 ? "y" : "x",
            differs && what == 1 ? DType::kInt32 : DType::kFloat32, data.data(),
            differs && what == 2 ? other : counts[i], Reduction::kSum));
      }
      return group.Barrier("end");
    });
  }
}

// Not even before the error is known to all: each partner has its header.
TEST_CASE("in any way, nobody takes another collective's numbers for its own") {
  std::mt19937 random(44);
  for (int job = 0; job < Rounds(120); ++job) {
    const int size = 3 + job % 7;
    const Algorithm algorithm = kAllAlgorithms[random() % 4];
    const std::vector<int> hosts = RandomHosts(size, random);
    const int odd = static_cast<int>(random() % At(size));
    const int64_t count = RandomCount(random);
    CAPTURE(std::string(NameOf(algorithm)));
    CAPTURE(fmt::format("{}", hosts));
    CAPTURE(odd);
    CAPTURE(count);
    const Watchdog watchdog;
    Groups groups = JoinOn(hosts, algorithm, WiresOf(random()));
    const auto statuses = OnAll(groups, [&](Group& group) {
      std::vector<float> data(At(static_cast<int>(count)), 1.F);
      return group.AllReduce(group.rank() == odd ? "y" : "x", DType::kFloat32,
                             data.data(), count, Reduction::kSum);
    });
    for (const Status& status : statuses) {
      CHECK(status.code() == Code::kFailedPrecondition);
    }
  }
}

TEST_CASE("in any way, a rank that ends is named by all others") {
  std::mt19937 random(42);
  for (int job = 0; job < Rounds(120); ++job) {
    const int size = 2 + job % 8;
    const Algorithm algorithm = kAllAlgorithms[random() % 4];
    const std::vector<int> hosts = RandomHosts(size, random);
    const int dies = static_cast<int>(random() % At(size));
    const auto after = std::chrono::microseconds(random() % 3000);
    const int64_t count = RandomCount(random);
    CAPTURE(std::string(NameOf(algorithm)));
    CAPTURE(fmt::format("{}", hosts));
    CAPTURE(dies);
    CAPTURE(count);
    const Watchdog watchdog;
    Groups groups = JoinOn(hosts, algorithm, WiresOf(random()));
    const auto statuses = OnAll(groups, [&](Group& group) -> Status {
      const int rank = group.rank();
      std::vector<float> data(At(static_cast<int>(count)), 1.F);
      const auto begin = std::chrono::steady_clock::now();
      while (true) {
        if (rank == dies && std::chrono::steady_clock::now() - begin > after) {
          groups[At(rank)].reset();
          return {};
        }
        SLUICE_RETURN_IF_ERROR(group.AllReduce(
            "x", DType::kFloat32, data.data(), count, Reduction::kSum));
      }
    });
    CheckAllName(statuses, dies);
  }
}

TEST_CASE("in any way, who is long about something else is waited for") {
  std::mt19937 random(43);
  for (const Algorithm algorithm : kAllAlgorithms) {
    const Watchdog watchdog;
    GroupOptions options;
    options.peer_timeout = std::chrono::milliseconds(20);
    const int size = 5;
    Groups groups =
        JoinOn({0, 1, 0, 1, 1}, algorithm, WiresOf(random()), options);
    std::vector<std::vector<float>> sums(At(size),
                                         std::vector<float>(100'000, 1.F));
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      for (const int64_t count : {1, 20'000, 100'000}) {
        if (group.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(400));
        }
        SLUICE_RETURN_IF_ERROR(group.AllReduce("x", DType::kFloat32,
                                               sums[At(group.rank())].data(),
                                               count, Reduction::kMean));
      }
      return {};
    }));
    for (const auto& sum : sums) CHECK(sum[0] == 1.F);
  }
}

}  // namespace sluice::dist
