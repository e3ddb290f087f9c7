#include "models/train/workers/device_threads.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::ErrorOf;

TEST_CASE("devices are worked on at the same time, each by its thread") {
  DeviceThreads devices({"/cpu:0", "/cpu:1", "/cpu:2"});
  std::vector<std::thread::id> threads(3);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> here{0};
    devices.Run([&](size_t device) {
      if (round == 0) threads[device] = std::this_thread::get_id();
      CHECK(threads[device] == std::this_thread::get_id());
      ++here;
      while (here < 3) std::this_thread::yield();
    });
    CHECK(here == 3);
  }
  CHECK(threads[0] != threads[1]);
  CHECK(threads[1] != threads[2]);
  CHECK(threads[0] != std::this_thread::get_id());
}

TEST_CASE("devices share the compute threads") {
  for (const int all : {1, 2, 5, 8}) {
    SetComputeThreads(all);
    std::vector<int> shares(3);
    {
      DeviceThreads devices({"a", "b", "c"});
      devices.Run([&](size_t device) {
        shares[device] = ComputeThreads().threads();
        std::atomic<int64_t> sum{0};
        ParallelFor(100, 3, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
        CHECK(sum == 4950);
      });
    }
    CHECK(ComputeThreads().threads() == all);
    CAPTURE(all);
    int together = 0;
    for (const int share : shares) {
      CHECK(share >= 1);
      CHECK(share <= (all + 2) / 3);
      together += share;
    }
    CHECK(together == std::max(all, 3));
  }
  SetComputeThreads(0);
}

TEST_CASE("one device has the caller's thread") {
  DeviceThreads one;
  CHECK(one.size() == 1);
  std::thread::id thread;
  one.Run([&](size_t device) {
    CHECK(device == 0);
    thread = std::this_thread::get_id();
  });
  CHECK(thread == std::this_thread::get_id());
  CHECK(ErrorOf([&] {
          one.Run([](size_t) { throw Error(Code::kNotFound, "gone"); });
        }) == "gone");
}

TEST_CASE("the first device's error is thrown when all have ended") {
  DeviceThreads devices({"/cpu:0", "/cpu:1", "/cpu:2"});
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    const std::string error = ErrorOf([&] {
      devices.Run([&](size_t device) {
        if (device == 2) {
          ++ended;
          throw Error(Code::kNotFound, "third");
        }
        while (ended == 0) std::this_thread::yield();
        ++ended;
        if (device == 1) throw std::runtime_error("second");
      });
    });
    CHECK(error == "/cpu:1: second");
    CHECK(ended == 3);
    devices.Run([](size_t) {});  // which has none
  }
}

}  // namespace
}  // namespace sluice
