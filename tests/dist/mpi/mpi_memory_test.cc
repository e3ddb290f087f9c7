// Ranks of an MPI for which there is no memory.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dist/mpi/mpi_group.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/mpi/thread_mpi.h"
#include "tests/support/scarce_memory.h"

namespace sluice::dist {
namespace {

using sluice::testing::allocations_left;
using sluice::testing::scarce_bytes;
using testing::ThreadMpi;
using testing::Watchdog;

constexpr int64_t kCount = int64_t{1} << 20;  // 4 MiB

// It needs as much as the others have already.
TEST_CASE("a rank that has joined and has no memory is everyone's error") {
  const Watchdog watchdog;
  ThreadMpi(3, 3).Run([](int rank) {
    const auto group = MpiGroup::Join(ThreadMpi::Calls(), {}).ValueOrThrow();
    std::vector<float> data(rank == 1 ? 0 : kCount, 1.0F);
    const auto sum = [&] {
      return group->AllReduce("x", DType::kFloat32, data.data(), kCount,
                              Reduction::kSum);
    };
    Status status;
    if (rank == 1) {
      scarce_bytes = kCount * sizeof(float);
      allocations_left = 0;
      status = group->Follow().status();
      allocations_left = -1;
      CHECK(status.code() == Code::kResourceExhausted);
    } else {
      status = sum();
      CHECK(status.code() == Code::kUnavailable);
      CHECK(status.message() ==
            "rank 1 of 3 failed: it has joined and has no memory for the sum");
      CHECK(sum().message() == status.message());
    }
    CHECK(group->Check().message() == status.message());
  });
}

// For whom there is memory, whatever the rank has.
const MpiCalls& RoomyCalls() {
  static const MpiCalls calls = [] {
    MpiCalls roomy = ThreadMpi::Calls();
    roomy.all_gather = [](int communicator, const void* mine, int64_t each,
                          void* all) {
      const int64_t left = std::exchange(allocations_left, -1);
      const char* const said =
          ThreadMpi::Calls().all_gather(communicator, mine, each, all);
      allocations_left = left;
      return said;
    };
    return roomy;
  }();
  return calls;
}

// The others wait for what it is at.
TEST_CASE("ranks without memory tell each other what they are at") {
  const Watchdog watchdog;
  constexpr int kSize = 8;
  ThreadMpi(kSize, kSize).Run([](int rank) {
    const auto group = MpiGroup::Join(RoomyCalls(), {}).ValueOrThrow();
    float one = 1;
    scarce_bytes = 1024;  // less than what all are at
    allocations_left = 0;
    const Status status =
        rank % 2 == 0
            ? group->Follow().status()
            : group->AllReduce("x", DType::kFloat32, &one, 1, Reduction::kSum);
    const Status last = rank % 2 == 0 ? Status() : group->Follow().status();
    allocations_left = -1;
    CHECK(status.message() == "");
    CHECK(last.message() == "");
    if (rank % 2 == 1) CHECK(one == kSize / 2);
  });
}

}  // namespace
}  // namespace sluice::dist
