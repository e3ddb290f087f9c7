// A job of several processes: the launcher, the group that they form, and what
// becomes of the others when one dies.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "dist/dist.h"
#include "dist/net/tls.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/program.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::Outcome;

// This program as the ranks of a job, which run the case of that name below.
Outcome RunRanks(int size, const std::string& test_case,
                 std::vector<std::string> options = {}) {
  const std::string folder = SLUICE_BIN_DIR;
  options.insert(options.end(),
                 {"-n", std::to_string(size), folder + "/apps_tests",
                  "--no-skip", "--minimal", "--test-case=" + test_case});
  return testing::RunProgram(folder + "/sluicerun", options);
}

TEST_CASE("rank: what all do" * doctest::skip()) {
  dist::Init();
  const int rank = dist::Rank(), size = dist::Size();
  CHECK(dist::LocalRank() == rank);
  Tensor mine(DType::kFloat32, {1000, 7});
  for (int64_t i = 0; i < mine.elements(); ++i) {
    mine.data<float>()[i] = static_cast<float>((rank + 1) * (i % 100));
  }
  const Tensor sum = dist::AllReduce("sum", mine, dist::Reduction::kSum);
  const float factor = static_cast<float>(size * (size + 1)) / 2;
  bool right = true;
  for (int64_t i = 0; i < sum.elements(); ++i) {
    right = right && sum.At(i) == factor * static_cast<float>(i % 100);
  }
  CHECK(right);
  const Tensor all = dist::AllGather("ranks", Tensor::Scalar(int64_t{rank}));
  REQUIRE(all.elements() == size);
  for (int i = 0; i < size; ++i) CHECK(all.IntAt(i) == i);
  const Tensor last =
      dist::Broadcast("last", Tensor::Scalar(int64_t{rank}), size - 1);
  CHECK(last.IntAt(0) == size - 1);
  dist::Barrier();
  std::printf("rank %d of %d is done\n", rank, size);
  dist::Shutdown();
}

TEST_CASE("processes reduce, gather and wait for each other") {
  for (const int size : {1, 2, 4}) {
    const bool encrypted = size == 4 && dist::HasTls();
    const Outcome outcome =
        RunRanks(size, "rank: what all do",
                 encrypted ? std::vector<std::string>{"--tls"}
                           : std::vector<std::string>{});
    CAPTURE(outcome.err);
    CAPTURE(outcome.out);
    CHECK(outcome.code == 0);
    for (int rank = 0; rank < size; ++rank) {
      CHECK(Contains(outcome.out,
                     fmt::format("[{0}] rank {0} of {1} is done", rank, size)));
    }
  }
}

TEST_CASE("rank: one dies" * doctest::skip()) {
  std::signal(SIGTERM, SIG_IGN);  // the launcher's: here the group shall tell
  dist::Init();
  const Tensor x = Tensor::Full(DType::kFloat32, {100'000}, 1);
  for (int i = 0;; ++i) {
    if (dist::Rank() == 1 && i == 5) std::raise(SIGKILL);
    try {
      (void)dist::AllReduce("x", x);
    } catch (const Error& error) {
      std::printf("rank %d: %s\n", dist::Rank(), error.what());
      // A dying process closes its sockets before its end is told: without a
      // pause the launcher may hear of this one's first.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::exit(3);
    }
  }
}

TEST_CASE("one that is killed is named, and the job ends") {
  const Outcome outcome = RunRanks(3, "rank: one dies");
  CAPTURE(outcome.err);
  CAPTURE(outcome.out);
  CHECK(outcome.code == 128 + SIGKILL);
  for (const int survivor : {0, 2}) {
    CHECK(Contains(outcome.out, fmt::format("[{0}] rank {0}: ", survivor)));
  }
  CHECK(Contains(outcome.out, "rank 1"));
  CHECK(Contains(outcome.err, "rank 1 ended by SIGKILL"));
}

}  // namespace
}  // namespace sluice
