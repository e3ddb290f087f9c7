#include "engine/runtime/step_threads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "engine/pause.h"
#include "engine/thread_annotations.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Counts what has ended, for who waits for all.
class Count {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  // False where it takes too long.
  bool Await(int wanted) {
    const auto late = Clock::now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (count_ < wanted) {
      if (!changed_.WaitUntil(mutex_, late) && count_ < wanted) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ GUARDED_BY(mutex_) = 0;
};

struct TestPart final : StepThreads::Part {
  std::function<bool(TestPart&)> resume;
  Count* count = nullptr;
  std::atomic<int> resumed{0}, ended{0};
  std::atomic<bool> busy{false};

  bool Resume() override {
    CHECK_FALSE(busy.exchange(true));  // one thread at a time
    ++resumed;
    const bool over = resume(*this);
    busy = false;
    return over;
  }
  void Ended() override {
    ++ended;
    count->Add();
  }
};

TEST_CASE("parts that hold their threads run side by side, each round once") {
  StepThreads threads;
  for (int round = 0; round < 300; ++round) {
    const int parts = 1 + round % 4;
    threads.Reserve(parts);
    Count count, arrived;
    std::deque<TestPart> all(static_cast<size_t>(parts));
    for (TestPart& part : all) {
      part.count = &count;
      // Each part waits for the others: serial execution would hang here.
      part.resume = [&](TestPart&) {
        arrived.Add();
        return arrived.Await(parts);
      };
      threads.Start(part);
    }
    REQUIRE(count.Await(parts));
    for (TestPart& part : all) {
      CHECK(part.resumed == 1);
      CHECK(part.ended == 1);
    }
  }
  CHECK(threads.size() == 4);
}

TEST_CASE("parts that wait hold no thread, and end in any order") {
  StepThreads threads;
  threads.Reserve(2);
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    constexpr int kParts = 64, kWaits = 3;
    Count count, parked;
    std::deque<TestPart> all(kParts);
    std::deque<std::atomic<int>> come(kParts);
    for (int i = 0; i < kParts; ++i) {
      all[i].count = &count;
      all[i].resume = [&, i, waits = 0](TestPart&) mutable {
        while (waits < come[i] && waits < kWaits) ++waits;
        if (waits == 0) parked.Add();
        return waits == kWaits;
      };
      threads.Start(all[i]);
    }
    REQUIRE(parked.Await(kParts));  // all are under way, on two threads
    std::vector<int> order;
    for (int i = 0; i < kParts * kWaits; ++i) order.push_back(i % kParts);
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      ++come[i];
      all[i].Wake();
    }
    REQUIRE(count.Await(kParts));
    for (TestPart& part : all) CHECK(part.ended == 1);
  }
  CHECK(threads.size() == 2);
}

TEST_CASE("a waker may come at any time, often, and from any thread") {
  StepThreads threads;
  threads.Reserve(2);
  for (int round = 0; round < 400; ++round) {
    Count count;
    std::atomic<bool> come{false};
    TestPart part;
    part.count = &count;
    part.resume = [&](TestPart&) {
      const bool there = come;
      // Between the look and the return the other thread may wake it.
      for (int i = 0; i < round % 50 * 20; ++i) Pause();
      return there;
    };
    threads.Start(part);
    std::thread other([&] {
      for (int i = 0; i < round % 7; ++i) part.Wake();  // nothing has come
      come = true;
      part.Wake();
      part.Wake();
    });
    REQUIRE(count.Await(1));
    other.join();
    CHECK(part.ended == 1);
    part.Wake();  // after its end
    CHECK(part.ended == 1);
  }
}

TEST_CASE("a part that nobody wakes is resumed at its deadline") {
  StepThreads threads;
  threads.Reserve(2);
  Count count;
  std::deque<TestPart> all(10);
  std::mt19937 random(5);
  const auto begin = Clock::now();
  for (TestPart& part : all) {
    const auto deadline = begin + milliseconds(5 + random() % 40);
    part.count = &count;
    part.resume = [=](TestPart&) { return Clock::now() >= deadline; };
    threads.Start(part, deadline);
  }
  REQUIRE(count.Await(10));
  CHECK(Clock::now() - begin < std::chrono::seconds(20));
  for (TestPart& part : all) CHECK(part.resumed <= 3);
}

}  // namespace
}  // namespace sluice
