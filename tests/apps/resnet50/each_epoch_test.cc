// What is found out once an epoch, by several threads that are not in step.
#include "apps/resnet50/each_epoch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
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

TEST_CASE("begun in the middle of one") {
  constexpr size_t kExamples = 10;
  int made = 0;
  EachEpoch<int> epochs(kExamples, [&] { return ++made; });
  for (size_t i = 7; i < kExamples; ++i) CHECK(*epochs.For(i) == 1);
  for (size_t i = 7; i < kExamples; ++i) CHECK(*epochs.For(i) == 2);
  for (size_t i = 0; i < 7; ++i) CHECK(*epochs.For(i) == 2);
}

TEST_CASE("one of several processes, which has another part each epoch") {
  int made = 0;
  EachEpoch<int> epochs(
      4, [&] { return ++made; }, 2);
  int epoch = 0;
  for (const auto& [first, second] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {2, 3}, {0, 2}, {3, 0}, {1, 0}}) {
    ++epoch;
    CHECK(*epochs.For(first) == epoch);
    CHECK(*epochs.For(second) == epoch);
  }
}

// Two threads, of which one comes with the last example of an epoch after the
// other has come with the first of the next.
TEST_CASE("one of several processes, whose threads are not in step") {
  int made = 0;
  EachEpoch<int> epochs(
      8, [&] { return ++made; }, 4);
  for (const size_t first : {0, 1, 2}) CHECK(*epochs.For(first) == 1);
  CHECK(*epochs.For(0) == 2);
  CHECK(*epochs.For(3) == 2);
  for (const size_t second : {4, 5, 6}) CHECK(*epochs.For(second) == 2);
  CHECK(*epochs.For(7) == 3);
}

// Of a Dataset::Sample, which may read ahead, before the first epoch.
TEST_CASE("what was looked at before an epoch is no part of it") {
  constexpr size_t kExamples = 10;
  int made = 0;
  EachEpoch<int> epochs(kExamples, [&] { return ++made; });
  for (const size_t sampled : {3, 7}) epochs.For(sampled);
  const int before = made;
  std::vector<size_t> order = {3, 7, 0, 1, 2, 4, 5, 6, 8, 9};
  for (int epoch = 1; epoch <= 5; ++epoch) {
    for (const size_t i : order) CHECK(*epochs.For(i) == before + epoch);
    std::rotate(order.begin(), order.begin() + 3, order.end());
  }
}

TEST_CASE("nor is it of one of several processes") {
  int made = 0;
  EachEpoch<int> epochs(
      4, [&] { return ++made; }, 2);
  CHECK(*epochs.For(0) == 1);
  int epoch = 1;
  for (const auto& [first, second] :
       std::vector<std::pair<size_t, size_t>>{{0, 1}, {2, 3}, {1, 2}, {3, 0}}) {
    ++epoch;
    CHECK(*epochs.For(first) == epoch);
    CHECK(*epochs.For(second) == epoch);
  }
}

// As where a training goes back to its last checkpoint.
TEST_CASE("an epoch that was left and begun anew counts once") {
  int made = 0;
  EachEpoch<int> epochs(10, [&] { return ++made; });
  for (const size_t i : {0, 1, 2, 3}) CHECK(*epochs.For(i) == 1);
  for (size_t i = 0; i < 10; ++i) CHECK(*epochs.For(i) == 2);
  for (size_t i = 10; i > 0; --i) CHECK(*epochs.For(i - 1) == 3);
}

}  // namespace
}  // namespace sluice::resnet50
