// What neighbours send each other data through, and that it changes no bit.
#include "dist/collective/sharing.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/links.h"
#include "dist/collective/offer.h"
#include "dist/collective/places.h"
#include "engine/dtype.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

using testing::Groups;
using testing::InThreads;
using testing::JoinAll;
using testing::Launch;
using testing::OnAll;
using testing::Watchdog;
using testing::Wires;

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

std::vector<int> SharedLinks(const Groups& groups) {
  std::vector<int> links;
  for (const auto& group : groups) links.push_back(group->shared_links());
  return links;
}

// A soft limit while it lives.
class Limited {
 public:
  Limited(int resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &old_);
    rlimit limit = old_;
    limit.rlim_cur = most;
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &old_); }

 private:
  const int resource_;
  rlimit old_{};
};

TEST_CASE("neighbours on one system share memory, unless one may not") {
  const Watchdog watchdog;
  using Links = std::vector<int>;
  CHECK(SharedLinks(JoinAll(2)) == Links{2, 2});
  CHECK(SharedLinks(JoinAll(3, Wires::kShared)) == Links{2, 2, 2});
  CHECK(SharedLinks(JoinAll(3, Wires::kTcp)) == Links{0, 0, 0});
  CHECK(SharedLinks(JoinAll(2, Wires::kMixed)) == Links{0, 0});
  CHECK(SharedLinks(JoinAll(4, Wires::kMixed)) == Links{0, 1, 2, 1});
}

TEST_CASE("who insists on shared memory says why it cannot be") {
  for (int size = 2; size <= 4; ++size) {
    const Watchdog watchdog;
    const std::vector<LaunchInfo> infos = Launch(size);
    std::vector<Status> statuses(infos.size());
    InThreads(size, [&](int rank) {
      GroupOptions options;
      options.transport = rank == 1 ? Transport::kTcp : Transport::kShared;
      statuses[At(rank)] = Group::Join(infos[At(rank)], options).status();
    });
    for (const Status& status : statuses) {
      CAPTURE(status.ToString());
      CHECK(status.code() == Code::kFailedPrecondition);
      CHECK(status.message().find("is to share memory with rank 1 of") !=
            std::string::npos);
      CHECK(status.message().find("rank 1 of " + std::to_string(size) +
                                  " is to use TCP") != std::string::npos);
    }
  }
}

TEST_CASE("without memory to share it is TCP, and a line says why") {
  const Watchdog watchdog;
  std::mutex mutex;
  std::vector<std::string> notes;
  GroupOptions options;
  options.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.emplace_back(line);
  };
  {
    const Limited limited(RLIMIT_FSIZE, 4096);
    Groups groups = JoinAll(3, options);
    CHECK(SharedLinks(groups) == std::vector<int>{0, 0, 0});
    for (const Status& status :
         OnAll(groups, [](Group& group) { return group.Barrier("x"); })) {
      CHECK(status.ToString() == "ok");
    }
  }
  std::sort(notes.begin(), notes.end());
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].find("rank 0 of 3 sends to rank 1 of 3 by TCP: no shared "
                      "memory: ") == 0);
  CHECK(notes[2].find("rank 2 of 3 sends to rank 0 of 3 by TCP: ") == 0);
}

namespace {

// What all-reduces, gathers and broadcasts of random sizes leave on each rank.
std::vector<std::vector<float>> Results(int size, Wires wires, uint32_t seed) {
  Groups groups = JoinAll(size, wires);
  std::vector<std::vector<float>> results(At(size));
  const auto statuses = OnAll(groups, [&](Group& group) -> Status {
    std::mt19937 sizes(seed), values(seed + At(group.rank()) + 1);
    std::vector<float>& all = results[At(group.rank())];
    for (int run = 0; run < 5; ++run) {
      // Odd ones, and larger than all of a ring.
      const uint32_t most[] = {3, 1000, 70'000, 1'300'000};
      const size_t count = sizes() % most[run % 4] + (run == 4 ? 1 : 0);
      const auto bytes = static_cast<int64_t>(count * sizeof(float));
      std::vector<float> data(count * At(size));
      for (float& x : data) x = static_cast<float>(values()) * 0x1p-20F;
      SLUICE_RETURN_IF_ERROR(group.AllReduce("r", DType::kFloat32, data.data(),
                                             static_cast<int64_t>(count),
                                             Reduction::kMean));
      all.insert(all.end(), data.begin(), data.end());
      SLUICE_RETURN_IF_ERROR(group.Broadcast("b", data.data(), bytes,
                                             static_cast<int>(run) % size));
      std::vector<float> mine(
          data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count));
      SLUICE_RETURN_IF_ERROR(
          group.AllGather("g", mine.data(), bytes, data.data()));
      all.insert(all.end(), data.begin(), data.end());
    }
    return {};
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "ok");
  return results;
}

}  // namespace

TEST_CASE("the bits are the same whatever they go through") {
  for (int size = 2; size <= 5; ++size) {
    const Watchdog watchdog;
    const auto seed = static_cast<uint32_t>(size);
    const auto tcp = Results(size, Wires::kTcp, seed);
    CHECK((Results(size, Wires::kShared, seed) == tcp));
    CHECK((Results(size, Wires::kMixed, seed) == tcp));
  }
}

TEST_CASE("two groups at once in one process do not meet") {
  const Watchdog watchdog;
  std::vector<std::vector<float>> results[2];
  std::thread other([&] { results[1] = Results(3, Wires::kShared, 8); });
  results[0] = Results(2, Wires::kShared, 7);
  other.join();
  CHECK((results[0] == Results(2, Wires::kTcp, 7)));
  CHECK((results[1] == Results(3, Wires::kTcp, 8)));
}

TEST_CASE("ParseTransport: three words") {
  CHECK(ParseTransport("auto").ValueOrThrow() == Transport::kAuto);
  CHECK(ParseTransport("tcp").ValueOrThrow() == Transport::kTcp);
  CHECK(ParseTransport("shared").ValueOrThrow() == Transport::kShared);
  CHECK(ParseTransport("").status().code() == Code::kInvalidArgument);
  CHECK(ParseTransport("TCP").status().message() ==
        "transport 'TCP' is none of auto, tcp, shared");
}

TEST_CASE("memory that was not offered is not accepted") {
  const Watchdog watchdog;
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const Deadline soon = After(std::chrono::seconds(5));
  Wire wire;
  wire.data =
      Socket::Connect("127.0.0.1", listener.port(), soon).ValueOrThrow();
  wire.data.set_peer("rank 1 of 2");
  Socket other = listener.Accept(soon).ValueOrThrow();
  // Yes, it has connected.
  REQUIRE(SendText(FrameKind::kMemory, 1, "", 1, other, soon).ok());
  LaunchInfo info;
  info.size = 2;
  GroupOptions options;
  options.transport = Transport::kTcp;
  WirePair wires;
  wires.to = std::move(wire);
  const Status shared = ShareMemory(info, options, soon, &wires);
  CHECK(shared.code() == Code::kDataLoss);
  CHECK(shared.message() ==
        "rank 1 of 2 accepts memory that it was not offered");
}

TEST_CASE("an offer is three words") {
  const Offer offer = {"a", "b", "c"};
  CHECK(Offer::Parse(offer.Text()).ValueOrThrow().name == "b");
  for (const char* bad :
       {"", " ", "a", "a b", "a  c", " b c", "a b ", "a b c d"}) {
    CAPTURE(bad);
    CHECK(Offer::Parse(bad).status().code() == Code::kDataLoss);
  }
}

TEST_CASE("places are read back, or none") {
  const std::vector<Place> places = {{"127.0.0.1", 65535, 1}, {"b", 0, 0}};
  const std::vector<std::byte> bytes = Encoded(places);
  const auto read = PlacesOf(bytes).ValueOrThrow();
  REQUIRE(read.size() == 2);
  CHECK(read[0].address == "127.0.0.1");
  CHECK(read[0].port == 65535);
  CHECK(read[0].host == 1);
  for (const std::vector<Place>& bad : {std::vector<Place>{{"a", 65536, 0}},
                                        {{"a", 1, 65536}},
                                        {{"a", -1, 0}}}) {
    CHECK(PlacesOf(Encoded(bad)).status().code() == Code::kDataLoss);
  }
  CHECK_FALSE(PlacesOf(Bytes(bytes).first(bytes.size() - 1)).ok());
}

}  // namespace
}  // namespace sluice::dist
