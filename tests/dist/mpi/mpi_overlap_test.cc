// All-reduces through an MPI that are under way while their rank does something
// else: every order of starts, looks and waits, and one of them wrong.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dist/mpi/mpi_group.h"
#include "engine/runtime/waker.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/mpi/thread_mpi.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using testing::ThreadMpi;
using testing::Watchdog;

std::unique_ptr<MpiGroup> Joined(Overlap overlap) {
  return MpiGroup::Join(ThreadMpi::Calls(), {.overlap = overlap})
      .ValueOrThrow();
}

struct Bell final : Waker {
  void Wake() override { rung.store(true); }
  std::atomic<bool> rung{false};
};

// One all-reduce of a rank's.
struct Sum {
  std::string name;
  std::vector<float> data;

  Sum(std::string of, size_t count, int rank)
      : name(std::move(of)), data(count, static_cast<float>(rank + 1)) {}
  CollectiveCall Call() {
    return {.name = name,
            .data = data.data(),
            .count = static_cast<int64_t>(data.size())};
  }
  bool IsOf(int size) const {
    const auto whole = static_cast<float>(size * (size + 1) / 2);
    return data == std::vector<float>(data.size(), whole);
  }
};

// Around the bytes from which on there is a thread for it.
constexpr size_t kCounts[] = {1, 100, 16'383, 16'384, 50'000};

TEST_CASE(
    "what was started through an MPI ends in order, however it is awaited") {
  std::mt19937 random(5);
  for (int job = 0; job < 40; ++job) {
    const Watchdog watchdog;
    const int size = 1 + job % 4;
    const Overlap overlap = job % 3 == 0 ? Overlap::kOff : Overlap::kOn;
    // The same for all ranks, but when each looks or waits.
    std::vector<size_t> counts(1 + random() % 6);
    for (size_t& count : counts) count = kCounts[random() % 5];
    const auto seed = static_cast<uint32_t>(random());
    ThreadMpi(size, size).Run([&](int rank) {
      std::mt19937 own(seed + static_cast<uint32_t>(rank));
      const auto group = Joined(overlap);
      std::vector<Sum> sums;
      sums.reserve(counts.size());
      for (const size_t count : counts) {
        sums.emplace_back("s" + std::to_string(sums.size()), count, rank);
        REQUIRE(group->Start(sums.back().Call()).ok());
      }
      if (own() % 2 == 0) {  // by another thread of the step's
        std::thread waiter(
            [&] { CHECK(group->Wait(sums[0].data.data()).ok()); });
        waiter.join();
        CHECK(sums[0].IsOf(size));
      } else {
        Bell bell;
        while (!group->IsOver(sums[0].data.data(), bell)) {
          while (!bell.rung) std::this_thread::yield();
        }
        CHECK(sums[0].IsOf(size));
        CHECK(group->Wait(sums[0].data.data()).ok());
      }
      // Comes behind what was started.
      int64_t one = 1;
      REQUIRE(group
                  ->AllReduce("all at once", DType::kInt64, &one, 1,
                              Reduction::kSum)
                  .ok());
      CHECK(one == size);
      for (const Sum& sum : sums) CHECK(sum.IsOf(size));
      for (size_t i = sums.size(); --i > 0;) {
        CHECK(group->Wait(sums[i].data.data()).ok());
      }
      CHECK(group->Check().ok());
    });
  }
}

TEST_CASE("a rank that has started something else is named by all") {
  for (const bool beside : {false, true}) {
    CAPTURE(beside);
    for (int astray = 0; astray < 3; ++astray) {
      CAPTURE(astray);
      const Watchdog watchdog;
      ThreadMpi(3, 3).Run([&](int rank) {
        const auto group = Joined(beside ? Overlap::kOn : Overlap::kOff);
        Sum first("first", 50'000, rank);
        Sum second(rank == astray ? "third" : "second", 50'000, rank);
        REQUIRE(group->Start(first.Call()).ok());
        REQUIRE(group->Start(second.Call()).ok());
        const Status wrong = group->Wait(second.data.data());
        CHECK(wrong.code() == Code::kFailedPrecondition);
        CHECK(Contains(wrong.message(), "'second'"));
        CHECK(Contains(wrong.message(), "'third'"));
        CHECK(group->Wait(first.data.data()).ok());
        CHECK(first.IsOf(3));
        CHECK(group->Check().message() == wrong.message());
      });
    }
  }
}

// Of two ranks one leaves while the other waits for what it has started.
TEST_CASE("who waits for what a rank never starts has its reason") {
  for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
    const Watchdog watchdog;
    ThreadMpi(2, 2).Run([&](int rank) {
      const auto group = Joined(overlap);
      if (rank == 1) {
        group->Leave(Status(Code::kResourceExhausted, "no space"));
        return;
      }
      Sum sum("sum", 50'000, rank);
      REQUIRE(group->Start(sum.Call()).ok());
      const Status wrong = group->Wait(sum.data.data());
      CHECK(Contains(wrong.message(), "rank 1 of 2 failed: no space"));
    });
  }
}

// In a part one waits for a rank that has gone, which has to tell it before it
// does what both have started in the whole.
TEST_CASE("who leaves ends its parts before what it has started") {
  for (const bool leaves : {false, true}) {
    CAPTURE(leaves);
    const Watchdog watchdog;
    ThreadMpi(2, 2).Run([&](int rank) {
      auto group = Joined(Overlap::kOff);
      REQUIRE(group->Split("rows", 0).ok());
      Sum sum("sum", 100, rank);
      REQUIRE(group->Start(sum.Call()).ok());
      if (rank == 0) {
        if (leaves) group->Leave(Status(Code::kInternal, "no space"));
        group.reset();
        return;
      }
      MpiGroup& rows = *group->Subgroup("rows");
      CHECK(Contains(rows.Barrier("b").message(), "rank 0 of 2"));
      CHECK(group->Wait(sum.data.data()).ok());
      CHECK(sum.IsOf(2));
    });
  }
}

// What is beside a step's computation is nobody's wait.
TEST_CASE("only callers' time counts as waited") {
  const Watchdog watchdog;
  ThreadMpi(2, 2).Run([&](int rank) {
    const auto group = Joined(Overlap::kOn);
    Sum sum("sum", 50'000, rank);
    // Rank 1 comes late, when rank 0 has long been doing something else.
    const auto late = std::chrono::milliseconds(400);
    if (rank == 1) std::this_thread::sleep_for(late);
    REQUIRE(group->Start(sum.Call()).ok());
    Bell bell;
    if (rank == 0 && !group->IsOver(sum.data.data(), bell)) {
      while (!bell.rung) std::this_thread::sleep_for(late / 40);
    }
    CHECK(group->Wait(sum.data.data()).ok());
    if (rank == 0) CHECK(group->seconds() < 0.3);
  });
}

}  // namespace
}  // namespace sluice::dist
