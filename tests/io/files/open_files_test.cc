// Asking many files at a time.
#include "io/files/open_files.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST_CASE("the error is of the first that fails, for any number of threads") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t count = random() % 40;
    const int threads = 1 + static_cast<int>(random() % 5);
    std::vector<bool> fails(count);
    for (size_t i = 0; i < count; ++i) fails[i] = random() % 8 == 0;
    const auto first = static_cast<size_t>(
        std::find(fails.begin(), fails.end(), true) - fails.begin());
    std::vector<std::atomic<int>> asked(count);
    const Status status = ForEachFile(count, threads, [&](size_t i) -> Status {
      ++asked[i];
      return fails[i] ? NotFound(std::to_string(i)) : Status();
    });
    CHECK(status.ok() == (first == count));
    if (!status.ok()) CHECK(status.message() == std::to_string(first));
    for (size_t i = 0; i < count; ++i) {
      CHECK(asked[i] <= 1);
      if (i <= first) CHECK(asked[i] == 1);
      if (threads == 1 && i > first) CHECK(asked[i] == 0);
    }
  }
}

TEST_CASE("behind one that fails no more are asked for") {
  std::atomic<int> asked = 0;
  const Status status = ForEachFile(1000, 4, [&](size_t) -> Status {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Unavailable("a server that is away");
  });
  CHECK(status.code() == Code::kUnavailable);
  CHECK(asked <= 8);
}

}  // namespace
}  // namespace sluice
