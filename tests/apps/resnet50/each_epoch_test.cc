// What is found out once an epoch, by several threads that are not in step.
#include "apps/resnet50/each_epoch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::resnet50 {
namespace {

TEST_CASE("once an epoch, never older than the epoch") {
  constexpr size_t kExamples = 500;
  constexpr int kEpochs = 20, kThreads = 4;
  std::mt19937 random(3);
  std::vector<size_t> visits;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<size_t> order(kExamples);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    visits.insert(visits.end(), order.begin(), order.end());
  }
  std::atomic<int> made = 0;
  EachEpoch<int> epochs(kExamples, [&] { return ++made; });
  std::atomic<size_t> next = 0;
  std::atomic<int> older = 0;
  // Visits of one example come one after another, as a thread that stands
  // between the two lines below could otherwise be an epoch late.
  std::vector<std::atomic<int>> seen(kExamples);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < visits.size(); i = next++) {
        const int of = static_cast<int>(i / kExamples) + 1;
        while (seen[visits[i]] < of - 1) std::this_thread::yield();
        if (*epochs.For(visits[i]) < of) ++older;
        ++seen[visits[i]];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(made == kEpochs);
  CHECK(older == 0);
}

TEST_CASE("begun in the middle of one, and where it cannot be found out") {
  constexpr size_t kExamples = 10;
  int made = 0;
  bool fails = false;
  EachEpoch<int> epochs(kExamples, [&] {
    if (fails) throw std::runtime_error("no answer");
    return ++made;
  });
  for (size_t i = 7; i < kExamples; ++i) CHECK(*epochs.For(i) == 1);
  fails = true;
  CHECK_THROWS(epochs.For(7));
  CHECK_THROWS(epochs.For(8));
  fails = false;
  CHECK(*epochs.For(9) == 2);
  for (size_t i = 0; i < 7; ++i) CHECK(*epochs.For(i) == 2);
}

TEST_CASE("one of several processes, which has another part each epoch") {
  int made = 0;
  EachEpoch<int> epochs(
      4, [&] { return ++made; }, 2);
  int epoch = 0;
  for (const auto& [first, second] :
       std::vector<std::pair<size_t, size_t>>{{0, 1}, {2, 3}, {0, 2}}) {
    ++epoch;
    CHECK(*epochs.For(first) == epoch);
    CHECK(*epochs.For(second) == epoch);
  }
}

}  // namespace
}  // namespace sluice::resnet50
