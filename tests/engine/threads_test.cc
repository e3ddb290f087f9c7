#include "engine/threads.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using Chunk = std::pair<int64_t, int64_t>;

// The chunks of a loop, ordered by where they begin.
std::vector<Chunk> ChunksOf(ThreadPool& pool, int64_t n, int64_t grain) {
  std::vector<Chunk> by_index(n > 0 ? (n - 1) / grain + 1 : 0, Chunk{-1, -1});
  pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    by_index[begin / grain] = {begin, end};
  });
  return by_index;
}

TEST_CASE("chunks depend on size and grain, not on the number of threads") {
  ThreadPool one(1), two(2), five(5);
  for (int64_t n : {0, 1, 2, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64, 2000}) {
      std::vector<Chunk> expected;
      for (int64_t i = 0; i < n; i += grain) {
        expected.push_back({i, std::min(n, i + grain)});
      }
      CHECK(ChunksOf(one, n, grain) == expected);
      CHECK(ChunksOf(two, n, grain) == expected);
      CHECK(ChunksOf(five, n, grain) == expected);
    }
  }
}

TEST_CASE("every index is visited once, over many regions") {
  ThreadPool pool(3);
  std::vector<int> visits(257, 0);
  for (int round = 0; round < 3000; ++round) {
    pool.ParallelFor(257, 1 + round % 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    if (round % 1000 == 0) {  // let the workers fall asleep
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  for (int count : visits) CHECK(count == 3000);
}

TEST_CASE("the workers take part") {
  ThreadPool pool(2);
  // Each chunk waits for the other, so one thread alone would never finish.
  std::atomic<int> inside{0};
  pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  CHECK(inside == 2);
}

TEST_CASE("nested loops run in the thread that meets them, in order") {
  ThreadPool pool(2);
  std::vector<std::vector<int64_t>> order(8);
  std::atomic<bool> moved{false};
  pool.ParallelFor(8, 1, [&](int64_t outer, int64_t) {
    const auto self = std::this_thread::get_id();
    pool.ParallelFor(10, 3, [&](int64_t begin, int64_t) {
      if (std::this_thread::get_id() != self) moved = true;
      order[outer].push_back(begin);
    });
  });
  CHECK_FALSE(moved);
  for (const auto& o : order) CHECK(o == std::vector<int64_t>{0, 3, 6, 9});
}

TEST_CASE("loops of several threads at once are all complete") {
  ThreadPool pool(3);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::vector<int64_t> values(100, 0);
        pool.ParallelFor(100, 7, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) values[i] = i;
        });
        total += std::accumulate(values.begin(), values.end(), int64_t{0});
      }
    });
  }
  for (std::thread& t : callers) t.join();
  CHECK(total == 4 * 500 * 4950);
}

TEST_CASE("resizing an idle pool") {
  ThreadPool pool(1);
  for (int threads : {4, 1, 2, 2, 3}) {
    pool.Resize(threads);
    CHECK(pool.threads() == threads);
    CHECK(ChunksOf(pool, 20, 6).size() == 4);
  }
  SetComputeThreads(2);
  CHECK(ComputeThreads().threads() == 2);
  SetComputeThreads(0);
  CHECK(ComputeThreads().threads() >= 1);
}

// Each of several threads then has all of its own at the same time.
TEST_CASE("a thread may have compute threads of its own") {
  ThreadPool& all = ComputeThreads();
  std::atomic<int> inside{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&] {
      ThreadPool pool(2);
      const ScopedComputeThreads own(pool);
      CHECK(&ComputeThreads() == &pool);
      // Ends only where six threads are in chunks at a time.
      ParallelFor(2, 1, [&](int64_t, int64_t) {
        ++inside;
        while (inside < 6) std::this_thread::yield();
      });
      {
        ThreadPool other(1);
        const ScopedComputeThreads within(other);
        CHECK(&ComputeThreads() == &other);
      }
      CHECK(&ComputeThreads() == &pool);
    });
  }
  for (std::thread& t : callers) t.join();
  CHECK(&ComputeThreads() == &all);
}

// As by taskset, sluicerun --pin, or a launcher that binds processes.
TEST_CASE("there are as many cores as a thread is bound to") {
  int cores = 0, threads = 0;
  std::thread([&] {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) return;
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &all)) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) return;
    cores = AvailableCores();
    threads = ThreadPool(0).threads();
  }).join();
  CHECK(cores == 1);
  CHECK(threads == 1);
}

#if defined(__x86_64__) || defined(__aarch64__)
TEST_CASE("subnormal numbers are flushed in every chunk and only there") {
  ThreadPool pool(2);
  volatile float tiny = FLT_MIN;
  volatile float half = 0.5f;
  CHECK(tiny * half != 0.0f);
  std::vector<float> products(64, 1.0f);
  pool.ParallelFor(64, 1,
                   [&](int64_t i, int64_t) { products[i] = tiny * half; });
  for (float p : products) CHECK(p == 0.0f);
  CHECK(tiny * half != 0.0f);
  {
    ScopedFlushDenormals flush;
    CHECK(tiny * half == 0.0f);
    {
      ScopedKeepDenormals keep;
      CHECK(tiny * half != 0.0f);
    }
    CHECK(tiny * half == 0.0f);
  }
  {
    ScopedKeepDenormals keep;
    CHECK(tiny * half != 0.0f);
  }
  CHECK(tiny * half != 0.0f);
}
#endif

}  // namespace
}  // namespace sluice
