// Collectives for which a process has no memory: an error of all, and nothing
// thrown.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "engine/runtime/subtrees.h"
#include "engine/threads.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/scarce_memory.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double
using sluice::testing::allocations_left;

constexpr int kRanks = 3;
constexpr int64_t kEach = 30'000;  // bytes, and elements
constexpr auto kF32 = DType::kFloat32;

struct Verb {
  const char* name;
  std::function<Status(Group&, std::vector<float>& data,
                       std::vector<float>& other)>
      call;
};

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb> verbs = {
      {"all-reduce",
       [](Group& g, auto& data, auto&) {
         return g.AllReduce("a rather long name", kF32, data.data(), kEach,
                            Reduction::kMean);
       }},
      {"all-reduce in two halves",
       [](Group& g, auto& data, auto&) -> Status {
         SLUICE_RETURN_IF_ERROR(g.Start({.name = "a rather long name",
                                         .data = data.data(),
                                         .count = kEach}));
         return g.Wait(data.data());
       }},
      {"reduce-scatter",
       [](Group& g, auto& data, auto&) {
         return g.ReduceScatter("a rather long name", kF32, data.data(), kEach,
                                3, Reduction::kSum);
       }},
      {"broadcast",
       [](Group& g, auto& data, auto&) {
         return g.Broadcast("a rather long name", data.data(), kEach, 1);
       }},
      {"all-gather",
       [](Group& g, auto& data, auto& other) {
         return g.AllGather("a rather long name", data.data(), kEach,
                            other.data());
       }},
      {"all-to-all",
       [](Group& g, auto& data, auto& other) {
         return g.AllToAll("a rather long name", data.data(), kEach,
                           other.data());
       }},
      {"sum",
       [](Group& g, auto& data, auto&) {
         const int64_t later = std::exchange(allocations_left, -1);
         const auto own = SubtreesOf(LeavesOf(4, g.rank(), g.size()));
         const std::vector<const void*> sums(own.size(), data.data());
         allocations_left = later;
         return g.SumTree("a rather long name", kF32, 4, sums, data.data(),
                          kEach / 4);
       }},
      {"barrier",
       [](Group& g, auto&, auto&) { return g.Barrier("a rather long name"); }}};
  return verbs;
}

}  // namespace

// At each allocation of the call in turn, with the first call of a group and
// with one that finds its buffers.
TEST_CASE("no memory is an error of all processes, which nothing throws") {
  // A static variable that is made by then: where making one throws, the thread
  // sanitizer's runtime (g++ 12) leaves those asleep who wait for it.
  (void)ComputeThreads();
  for (const Verb& verb : Verbs()) {
    CAPTURE(std::string(verb.name));
    bool reached = true;
    int failed = 0;
    for (int64_t nth = 0; reached; ++nth) {
      CAPTURE(nth);
      REQUIRE(nth < 1000);
      const Watchdog watchdog;
      Groups groups = JoinAll(kRanks, WiresOf(static_cast<size_t>(nth)));
      const auto statuses = OnAll(groups, [&](Group& group) {
        std::vector<float> data(kEach, 1.F), other(kEach, 0.F);
        const bool odd = group.rank() == 1;
        if (odd) allocations_left = nth;
        Status status;
        try {
          status = verb.call(group, data, other);
        } catch (...) {
          status = Internal("it has thrown");
          group.Leave(status);
        }
        if (odd) reached = allocations_left < 0;
        allocations_left = -1;
        // Who was done before the other failed learns of it in the next one.
        Status next = group.Barrier("next");
        CHECK((status.ok() || next.message() == status.message()));
        return next;
      });
      CHECK(statuses[1].ok() == !reached);
      failed += reached;
      for (const Status& status : statuses) {
        CAPTURE(status.ToString());
        CHECK(status.ok() == statuses[1].ok());
        if (status.ok()) continue;
        CHECK(status.code() == Code::kResourceExhausted);
        CHECK(status.message().find("rank 1 of 3") != std::string::npos);
      }
    }
    CHECK(failed > 0);
  }
}

}  // namespace sluice::dist
