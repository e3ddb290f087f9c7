// Ranks of an MPI for which there is no memory.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
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

}  // namespace
}  // namespace sluice::dist
