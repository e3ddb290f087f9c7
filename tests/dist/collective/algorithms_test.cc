// The ways of an all-reduce: what each gives and sends, and that all ranks take
// the same.
#include "dist/collective/algorithms.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/places.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/hosts.h"
#include "tests/dist/collective/processes.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/net_hosts.h"
#include "tests/support/required.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::NetHosts;
using sluice::testing::Rounds;
using namespace testing;  // NOLINT: of the job's test double

constexpr DType kDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                             DType::kBFloat16, DType::kInt32,   DType::kInt64};

// Of a group of so many: none, one, about as many, odd ones, and of all ways.
int64_t RandomCount(int size, std::mt19937& random) {
  const int64_t special[] = {0, 1, size - 1, size, size + 1, 1023};
  switch (random() % 4) {
    case 0:
      return special[random() % 6];
    case 1:
      return static_cast<int64_t>(random() % 4000);
    case 2:
      return static_cast<int64_t>(random() % 40'000);
    default:
      return static_cast<int64_t>(random() % 300'000);
  }
}

struct Sum {
  std::vector<Tensor> inputs, results;
  Reduction how;
};

Sum RandomSum(int size, std::mt19937& random) {
  const DType dtype = kDTypes[random() % 6];
  Sum sum;
  sum.how = IsFloating(dtype) && random() % 2 == 0 ? Reduction::kMean
                                                   : Reduction::kSum;
  sum.inputs = RandomTensors(dtype, RandomCount(size, random), size, random);
  for (const Tensor& input : sum.inputs) sum.results.push_back(input.Clone());
  return sum;
}

void Check(const Sum& sum) {
  CAPTURE(NameOf(sum.inputs[0].dtype()));
  CAPTURE(sum.inputs[0].elements());
  CHECK(Wrong(sum.results[0], sum.inputs, sum.how) == 0);
  for (const Tensor& result : sum.results) {
    CHECK(result.BitEqual(sum.results[0]));
  }
}

int64_t Log2(int n) {
  return std::bit_width(static_cast<unsigned>(n)) - 1;
}

}  // namespace

TEST_CASE("each way is the sum or mean, the same bits on every rank") {
  std::mt19937 random(31);
  for (int job = 0; job < Rounds(72); ++job) {
    const int size = 1 + job % 9;
    const Algorithm algorithm = kAllAlgorithms[random() % 4];
    const std::vector<int> hosts = RandomHosts(size, random);
    CAPTURE(std::string(NameOf(algorithm)));
    CAPTURE(fmt::format("{}", hosts));
    const Watchdog watchdog;
    GroupOptions options;
    options.overlap = job % 2 == 0 ? Overlap::kOn : Overlap::kOff;
    Groups groups = JoinOn(hosts, algorithm, WiresOf(random()), options);
    const std::set<int> different(hosts.begin(), hosts.end());
    for (const auto& group : groups) {
      CHECK(group->hosts() == static_cast<int>(different.size()));
    }
    // One after another, and in two parts of any ranks at the same time.
    std::vector<Sum> sums, in_part;
    for (int i = 0; i < 8; ++i) sums.push_back(RandomSum(size, random));
    std::vector<int> colors;
    for (int i = 0; i < size; ++i) {
      colors.push_back(static_cast<int>(random() % 2));
    }
    const auto count = [&](int color) {
      return static_cast<int>(std::count(colors.begin(), colors.end(), color));
    };
    for (int color = 0; color < 2; ++color) {
      in_part.push_back(RandomSum(std::max(1, count(color)), random));
    }
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      const size_t rank = At(group.rank());
      for (Sum& sum : sums) {
        Tensor& tensor = sum.results[rank];
        SLUICE_RETURN_IF_ERROR(group.Start({.name = "x",
                                            .dtype = tensor.dtype(),
                                            .data = tensor.raw(),
                                            .count = tensor.elements(),
                                            .how = sum.how}));
        if (&sum - sums.data() < 4) {
          SLUICE_RETURN_IF_ERROR(group.Wait(tensor.raw()));
        }
      }
      for (size_t i = 4; i < sums.size(); ++i) {
        SLUICE_RETURN_IF_ERROR(group.Wait(sums[i].results[rank].raw()));
      }
      SLUICE_RETURN_IF_ERROR(group.Split("part", colors[rank]));
      Group* const part = group.Subgroup("part");
      Sum& sum = in_part[At(colors[rank])];
      return part->AllReduce("y", &sum.results[At(part->rank())], sum.how);
    }));
    for (const Sum& sum : sums) Check(sum);
    for (int color = 0; color < 2; ++color) {
      if (count(color) > 0) Check(in_part[At(color)]);
    }
  }
}

TEST_CASE("doubling: two that are no numbers make one, on every rank") {
  constexpr uint32_t kNone[] = {0x7fc00000, 0xffc00000, 0x7fc01234, 0xffffffff};
  for (const int size : {2, 3, 4, 7}) {
    const Watchdog watchdog;
    Groups groups =
        JoinOn(std::vector<int>(At(size), 0), Algorithm::kAuto, Wires::kTcp);
    std::vector<std::vector<uint32_t>> bits(At(size));
    CheckOk(OnAll(groups, [&](Group& group) {
      std::vector<uint32_t>& mine = bits[At(group.rank())];
      for (size_t i = 0; i < 37; ++i) {
        mine.push_back(kNone[(i + At(group.rank())) % 4]);
      }
      return group.AllReduce("x", DType::kFloat32, mine.data(), 37,
                             Reduction::kSum);
    }));
    for (const auto& of_rank : bits) CHECK(of_rank == bits[0]);
  }
}

TEST_CASE("halves: a power of two of ranks takes part, each for two at most") {
  for (int size = 1; size <= 70; ++size) {
    std::vector<int> stands_for(At(size));
    int taking_part = 0;
    for (int rank = 0; rank < size; ++rank) {
      const Halves halves(rank, size);
      CHECK(std::has_single_bit(static_cast<unsigned>(halves.count())));
      CHECK(halves.count() <= size);
      CHECK(2 * halves.count() > size);
      if (halves.pair() >= 0) CHECK(Halves(halves.pair(), size).pair() == rank);
      if (halves.folded()) {
        CHECK(halves.pair() == rank - 1);
        continue;
      }
      ++taking_part;
      CHECK(halves.place() < halves.count());
      CHECK(halves.RankAt(halves.place()) == rank);
      ++stands_for[At(halves.place())];
    }
    CHECK(taking_part == Halves(0, size).count());
    for (int place = 0; place < taking_part; ++place) {
      CHECK(stands_for[At(place)] == 1);
    }
  }
}

TEST_CASE("plans: partners are each other's; auto goes by size and hosts") {
  std::mt19937 random(32);
  for (int run = 0; run < 300; ++run) {
    const int size = 2 + static_cast<int>(random() % 20);
    const std::vector<int> hosts = RandomHosts(size, random);
    const Algorithm algorithm = kAllAlgorithms[random() % 4];
    std::vector<std::vector<int>> partners;
    for (int rank = 0; rank < size; ++rank) {
      partners.push_back(Plan(algorithm, hosts, rank).Partners());
      if (algorithm == Algorithm::kRing) CHECK(partners.back().empty());
    }
    for (int rank = 0; rank < size; ++rank) {
      for (const int other : partners[At(rank)]) {
        const auto& theirs = partners[At(other)];
        CHECK(other != rank);
        CHECK(std::count(theirs.begin(), theirs.end(), rank) == 1);
      }
    }
  }
  const auto way = [](std::vector<int> hosts, int64_t bytes) {
    return Plan(Algorithm::kAuto, std::move(hosts), 0).Of(bytes);
  };
  CHECK(way({0, 0}, kDoublingBytes) == Way::kDoubling);
  CHECK(way({0, 0}, kDoublingBytes + 1) == Way::kRing);
  CHECK(way({0, 1, 0}, kDoublingBytes) == Way::kDoubling);
  CHECK(way({0, 1, 0}, kDoublingBytes + 1) == Way::kHierarchical);
  CHECK(way({0, 1, 2}, kDoublingBytes + 1) == Way::kRing);
  CHECK(way({0, 0, 0, 0, 0, 0, 0, 0}, kHalvingBytes) == Way::kRing);
  CHECK(way({0, 0, 0, 0, 1, 1, 1, 1}, kHalvingBytes) == Way::kHalving);
  CHECK(way({0, 0, 0, 0, 1, 1, 1, 1}, kHalvingBytes + 1) == Way::kHierarchical);
  CHECK(way({0, 1, 2, 3, 4, 5, 6, 7}, kHalvingBytes + 1) == Way::kRing);
}

// Headers are of the greeting round the ring and, of other partners, each.
TEST_CASE("doubling sends log2 n times the data, halving 2 (n-1) / n") {
  for (const int size : {2, 4, 8}) {
    for (const int64_t count : {1, 7, 1024, 4096, 5000, 65'536}) {
      const Watchdog watchdog;
      Groups groups = JoinOn(std::vector<int>(At(size), 0),
                             Algorithm::kHalvingDoubling, WiresOf(At(size)));
      std::vector<std::vector<float>> data(
          At(size), std::vector<float>(At(static_cast<int>(count)), 1.F));
      CheckOk(OnAll(groups, [&](Group& group) {
        return group.AllReduce("x", DType::kFloat32,
                               data[At(group.rank())].data(), count,
                               Reduction::kSum);
      }));
      const int64_t bytes = 4 * count;
      int64_t sent = 0, headers = 0;
      for (int rank = 0; rank < size; ++rank) {
        sent += groups[At(rank)]->bytes_sent();
        for (const int other : Halves(rank, size).Partners()) {
          headers += other == (rank + 1) % size ? 0 : 48;
        }
        headers += 48;
        if (bytes <= kDoublingBytes) continue;
        CHECK(std::abs(groups[At(rank)]->bytes_sent() -
                       2 * (size - 1) * bytes / size) <=
              8 * size + 48 * (1 + Log2(size)));
      }
      CAPTURE(size);
      CAPTURE(count);
      CHECK(sent - headers == (bytes <= kDoublingBytes
                                   ? size * Log2(size) * bytes
                                   : 2 * (size - 1) * bytes));
    }
  }
}

TEST_CASE("over hosts a host sends another 2 (h-1) / h of the data") {
  const std::vector<std::vector<int>> jobs = {
      {0, 0, 1, 1},    {0, 1, 0, 1},          {0, 0, 0, 1},
      {0, 0, 1, 1, 2}, {2, 0, 0, 1, 2, 1, 1}, {0, 0, 0, 1, 1, 2, 2, 2, 3}};
  for (const std::vector<int>& hosts : jobs) {
    const auto size = static_cast<int>(hosts.size());
    const int64_t h = 1 + *std::max_element(hosts.begin(), hosts.end());
    CAPTURE(fmt::format("{}", hosts));
    const Watchdog watchdog;
    Groups groups = JoinOn(hosts, Algorithm::kAuto, Wires::kTcp);
    constexpr int64_t kCount = 120'000;  // a multiple of the numbers of hosts
    std::vector<std::vector<float>> data(At(size),
                                         std::vector<float>(kCount, 1.F));
    // What a rank sends to other hosts.
    const auto sent = [&](int rank) {
      int64_t bytes = 0;
      for (int other = 0; other < size; ++other) {
        if (hosts[At(other)] == hosts[At(rank)]) continue;
        bytes += groups[At(rank)]->bytes_sent_to(other);
      }
      return bytes;
    };
    std::vector<int64_t> before;
    for (int rank = 0; rank < size; ++rank) before.push_back(sent(rank));
    CheckOk(OnAll(groups, [&](Group& group) {
      return group.AllReduce("x", DType::kFloat32,
                             data[At(group.rank())].data(), kCount,
                             Reduction::kSum);
    }));
    CHECK(data[0][7] == static_cast<float>(size));
    const std::vector<int> leaders = Plan(Algorithm::kAuto, hosts, 0).leaders();
    for (int rank = 0; rank < size; ++rank) {
      const int next = (rank + 1) % size;
      int64_t wanted = hosts[At(rank)] == hosts[At(next)] ? 0 : 48;
      const auto leader = std::find(leaders.begin(), leaders.end(), rank);
      if (leader != leaders.end()) {
        const auto place = static_cast<size_t>(leader - leaders.begin());
        const int to = leaders[(place + 1) % leaders.size()];
        wanted += 2 * (h - 1) * kCount * 4 / h + (to == next ? 0 : 48);
      }
      CAPTURE(rank);
      CHECK(sent(rank) - before[At(rank)] == wanted);
    }
  }
}

// Two and one, of which one is rank 0's, by nothing but where they come from.
TEST_CASE("hosts are known by the addresses of their ranks") {
  constexpr int kNet = 215;
  constexpr int kHosts[] = {0, 1, 0};
  constexpr int64_t kCount = 120'000;
  const NetHosts hosts(kNet, 2);
  if (!hosts.made()) {
    sluice::testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  // Not while another run has the hosts.
  const Watchdog watchdog(std::chrono::minutes(2));
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    LaunchInfo info;
    info.rank = rank;
    info.size = 3;
    info.host = hosts.AddressOf(0);
    info.port = 4000;
    info.token = Token();
    processes.push_back(std::make_unique<Process>([&](const Process::Say& say) {
      if (!hosts.Enter(kHosts[rank])) return;
      GroupOptions options;
      options.allow_plaintext = true;
      auto group = Group::Join(info, options);
      Status status = group.status();
      std::vector<float> data(kCount, 1.F);
      if (group.ok()) {
        status = (*group)->AllReduce("x", DType::kFloat32, data.data(), kCount,
                                     Reduction::kSum);
      }
      if (!status.ok()) return say(status.ToString());
      std::string sent;
      for (int other = 0; other < 3; ++other) {
        sent += fmt::format(" {}", (*group)->bytes_sent_to(other));
      }
      say(fmt::format("{}{}", data[7], sent));
    }));
  }
  // Beside the data: the headers of joining and of the sum; to who is no
  // neighbour only that of the sum.
  constexpr int64_t kBytes = 4 * kCount;
  const auto line = [&](int rank) { return processes[At(rank)]->Line(); };
  CHECK(line(0) == fmt::format("3 0 {} {}", kBytes + 3 * 48, kBytes + 48));
  CHECK(line(1) == fmt::format("3 {} 0 {}", kBytes + 48, 3 * 48));
  CHECK(line(2) == fmt::format("3 {} 0 0", kBytes + 3 * 48));
}

TEST_CASE("ranks that are to reduce in different ways do not join") {
  for (int odd = 0; odd < 3; ++odd) {
    const Watchdog watchdog;
    const std::vector<LaunchInfo> infos = Launch(3);
    std::vector<Status> statuses(3);
    InThreads(3, [&](int rank) {
      GroupOptions options;
      options.all_reduce =
          rank == odd ? Algorithm::kHierarchical : Algorithm::kRing;
      statuses[At(rank)] = Group::Join(infos[At(rank)], options).status();
    });
    const std::string message =
        odd == 0 ? "rank 1 of 3 is to all-reduce by ring, rank 0 of 3 by "
                   "hierarchical (--all-reduce)"
                 : fmt::format(
                       "rank {} of 3 is to all-reduce by hierarchical, "
                       "rank 0 of 3 by ring (--all-reduce)",
                       odd);
    for (const Status& status : statuses) {
      CHECK(status.code() == Code::kFailedPrecondition);
      CHECK(status.message() == message);
    }
  }
}

TEST_CASE("ParseAlgorithm: four words") {
  for (const Algorithm algorithm : kAllAlgorithms) {
    CHECK(ParseAlgorithm(NameOf(algorithm)).ValueOrThrow() == algorithm);
  }
  CHECK(ParseAlgorithm("").status().code() == Code::kInvalidArgument);
  CHECK(ParseAlgorithm("tree").status().message() ==
        "all-reduce 'tree' is none of auto, ring, halving-doubling, "
        "hierarchical");
}

TEST_CASE("hosts are numbered by their names, or by addresses") {
  Hosts named("a");
  CHECK(named.NumberOf("b", "1.1.1.1", "1.1.1.1") == 1);
  CHECK(named.NumberOf("a", "1.1.1.2", "1.1.1.1") == 0);
  CHECK(named.NumberOf("b", "", "") == 1);
  Hosts hosts("");
  CHECK(hosts.NumberOf("", "10.0.0.1", "10.0.0.1") == 0);
  CHECK(hosts.NumberOf("", "127.0.0.1", "127.0.0.1") == 0);
  CHECK(hosts.NumberOf("", "10.0.0.2", "10.0.0.1") == 1);
  CHECK(hosts.NumberOf("", "10.0.0.3", "10.0.0.1") == 2);
  CHECK(hosts.NumberOf("", "10.0.0.2", "10.0.0.1") == 1);
  std::vector<Place> places = {{"10.0.0.1", 4000, 0},
                               {std::string(64, 'x'), 65535, 7}};
  places = PlacesOf(Encoded(places)).ValueOrThrow();
  CHECK(places[0].address == "10.0.0.1");
  CHECK(places[1].address == std::string(64, 'x'));
  CHECK(places[1].port == 65535);
  CHECK(places[1].host == 7);
}

}  // namespace sluice::dist
