// Maps on several threads. That they give what one thread gives, shared out and
// resumed anywhere, is in share_test; with bad examples in bad_examples_test.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/counter_random.h"
#include "io/pipeline/dataset.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Numbers;

// Gives other threads the processor, for some numbers.
void Dawdle(int64_t number) {
  for (uint64_t i = HashKey(3, static_cast<uint64_t>(number)) % 4; i > 0; --i) {
    std::this_thread::yield();
  }
}

TEST_CASE("the first error by place comes out, behind what came before") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::set<int64_t> broken;
    for (int i = 0; i < 4; ++i) broken.insert(random() % 60);
    const int threads = 2 + static_cast<int>(random() % 4);
    const bool chosen = random() % 3 == 0;
    Dataset dataset = Numbers(60).Map(
        [broken](Example& example) {
          const int64_t x = example["x"].IntAt(0);
          Dawdle(x);
          if (broken.contains(x)) {
            throw Error(Code::kDataLoss, "number " + std::to_string(x));
          }
        },
        {.threads = chosen ? 0 : threads, .max_threads = threads});
    if (random() % 2 == 0) dataset = dataset.Prefetch(2);
    Iterator iterator = dataset.MakeIterator();
    Example example;
    for (int64_t x = 0; x < *broken.begin(); ++x) {
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      REQUIRE(example["x"].IntAt(0) == x);
    }
    CHECK(iterator.Next(&example).status().message() ==
          "number " + std::to_string(*broken.begin()));
    // From there on again, or behind it.
    const bool behind = random() % 2 == 0;
    const int64_t from = behind ? *broken.rbegin() + 1 : 0;
    Iterator at = Numbers(60).MakeIterator();
    for (int64_t x = 0; x < from; ++x) REQUIRE(*at.Next(&example));
    REQUIRE(iterator.Restore(at.SavePosition()).ok());
    if (from == 60 || broken.contains(from)) continue;
    REQUIRE(iterator.Next(&example).ValueOrThrow());
    CHECK(example["x"].IntAt(0) == from);
  }
}

// Counts who is inside.
class Inside {
 public:
  // Waits until n threads are inside at the same time; false when that takes
  // more than 20 seconds.
  bool Meet(int n) {
    MutexLock lock(mutex_);
    if (++inside_ == n) met_ = true;
    changed_.NotifyAll();
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!met_) {
      if (!changed_.WaitUntil(mutex_, limit)) break;
    }
    --inside_;
    return met_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int inside_ GUARDED_BY(mutex_) = 0;
  bool met_ GUARDED_BY(mutex_) = false;
};

TEST_CASE("as many examples are mapped at once as there are threads") {
  for (const int threads : {2, 5}) {
    Inside inside;
    std::atomic<int> alone = 0;
    const Dataset dataset = Numbers(20).Map(
        [&](Example&) {
          if (!inside.Meet(threads)) ++alone;
        },
        {.threads = threads});
    Iterator iterator = dataset.MakeIterator();
    Example example;
    int elements = 0;
    while (iterator.Next(&example).ValueOrThrow()) ++elements;
    CHECK(elements == 20);
    CHECK(alone == 0);
  }
}

TEST_CASE("what is mapped ahead is bounded") {
  for (const int threads : {3, 0}) {
    std::atomic<int64_t> begun = 0;
    const Dataset dataset = Numbers(1000).Repeat().Map(
        [&](Example&) { ++begun; }, {.threads = threads, .max_threads = 3});
    Iterator iterator = dataset.MakeIterator();
    CHECK(begun == 0);  // nothing before the first is asked for
    Example example;
    for (int64_t asked = 1; asked <= 200; ++asked) {
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      REQUIRE(begun >= asked);
      REQUIRE(begun <= asked + 2 * 3);
      if (asked % 16 == 0) std::this_thread::yield();
    }
  }
}

TEST_CASE("an error of the input comes behind what it gave") {
  const auto read = [](Example& example) {
    if (example["x"].IntAt(0) == 7) throw Error(Code::kDataLoss, "seven");
  };
  for (const int threads : {4, 0}) {
    const Dataset dataset = Numbers(20).Map(read).Map(
        [](Example& example) { Dawdle(example["x"].IntAt(0)); },
        {.threads = threads});
    Iterator iterator = dataset.MakeIterator();
    Example example;
    for (int i = 0; i < 7; ++i) REQUIRE(iterator.Next(&example).ValueOrThrow());
    for (int again = 0; again < 2; ++again) {
      CHECK(iterator.Next(&example).status().message() == "seven");
    }
  }
}

TEST_CASE("an iterator may be destroyed at any moment") {
  for (int64_t asked = 0; asked < 60; ++asked) {
    Iterator iterator =
        Numbers(30)
            .Repeat()
            .Map([](Example& example) { Dawdle(example["x"].IntAt(0)); },
                 {.threads = asked % 3 == 0 ? 0 : 4, .max_threads = 4})
            .Batch(3)
            .Prefetch(2)
            .MakeIterator();
    Example example;
    for (int64_t i = 0; i < asked % 20; ++i) REQUIRE(*iterator.Next(&example));
  }
}

TEST_CASE("a map needs threads") {
  const auto error = [](const MapOptions& options) {
    return ErrorOf([&] { Numbers(1).Map([](Example&) {}, options); });
  };
  CHECK(Contains(error({.threads = -1}), "Map: got -1, wanted a number of"));
  CHECK(Contains(error({.threads = 0, .max_threads = -2}), "got -2"));
}

}  // namespace
}  // namespace sluice
