// Elements ahead of what was asked for stay within a number of bytes, and are
// the same as without.
#include "io/pipeline/ahead_bytes.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Generators;
using testing::Numbers;
using testing::Pipeline;
using testing::ValueOf;
using testing::Values;

// Bytes of elements that were made and are still somewhere.
class Live {
 public:
  // x and so many bytes, of which it knows until they are freed.
  Example Make(int64_t x, int64_t bytes) {
    held_ += bytes;
    int64_t peak = peak_;
    while (held_ > peak && !peak_.compare_exchange_weak(peak, held_)) {
    }
    char* const memory = new char[static_cast<size_t>(bytes)];
    std::shared_ptr<void> owner(memory, [this, bytes](void* p) {
      held_ -= bytes;
      delete[] static_cast<char*>(p);
    });
    return {{"x", Tensor::Scalar(x)},
            {"load", Tensor(DType::kUInt8, {bytes}, std::move(owner), memory)}};
  }

  int64_t peak() const { return peak_; }

 private:
  std::atomic<int64_t> held_ = 0, peak_ = 0;
};

constexpr int64_t kSize = 1 << 20;
constexpr int64_t kStages = 3;

// 60 elements of that size, of six datasets, through all that reads ahead.
Dataset Large(Live* live, int threads) {
  const auto open = [live](const Example& example) {
    const int64_t x = 10 * ValueOf(example);
    return datasets::FromFunction(
        10, [=](int64_t i) { return live->Make(x + i, kSize); });
  };
  return Numbers(6)
      .Interleave(open, 3, 1, threads, 4)
      .MapRandom(1,
                 [](Example& example, uint64_t) {
                   for (int i = 0; i < 3; ++i) std::this_thread::yield();
                   example.Set("x", Tensor::Scalar(ValueOf(example) + 1));
                 },
                 {.threads = threads, .max_threads = 4})
      .Prefetch(20);
}

Values ReadSlowly(Iterator iterator) {
  Values values;
  Example example;
  while (iterator.Next(&example).ValueOrThrow()) {
    values.push_back(ValueOf(example));
    example = {};
    // Time for the threads to go as far as they may.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return values;
}

TEST_CASE("large elements stay within the limit") {
  for (const int threads : {0, 4}) {
    CAPTURE(threads);
    Live free, bounded, tight;
    const Values want = ReadSlowly(Large(&free, threads).MakeIterator());
    REQUIRE(want.size() == 60);
    CHECK(free.peak() > 20 * kSize);  // else there is nothing to limit
    // Where the number is given, as many begin before a size is known.
    const int64_t first = threads * kSize;
    CHECK(ReadSlowly(
              Large(&bounded, threads).MakeIterator(nullptr, 9 * kSize / 2)) ==
          want);
    CHECK(bounded.peak() <= 9 * kSize / 2 + kStages * kSize + first);
    // Less than one: each stage has one at a time.
    CHECK(ReadSlowly(Large(&tight, threads).MakeIterator(nullptr, 1)) == want);
    CHECK(tight.peak() <= (kStages + 1) * kSize);
  }
}

TEST_CASE("iterators that are made together share the limit") {
  Live live;
  constexpr int kMany = 5;
  const std::vector<Dataset> datasets(kMany, Large(&live, 0));
  const Values want = ReadSlowly(datasets[0].MakeIterator(nullptr, 1));
  std::vector<Iterator> iterators =
      Dataset::MakeIterators(datasets, nullptr, 9 * kSize / 2);
  REQUIRE(iterators.size() == kMany);
  for (size_t i = 0; i < want.size(); ++i) {
    for (Iterator& iterator : iterators) {
      Example example;
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      CHECK(ValueOf(example) == want[i]);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  // Each stage of each may have one beyond it, and there is the one in hand.
  CHECK(live.peak() <= 9 * kSize / 2 + (kMany * kStages + 1) * kSize);
}

TEST_CASE("random pipelines give the same within any limit") {
  for (const bool random : {false, true}) {
    Generators generators(random ? 23 : 29, random);
    for (int round = 0; round < 1000; ++round) {
      const Pipeline pipeline = generators.Make();
      CAPTURE(pipeline.text);
      const Dataset& dataset = pipeline.dataset;
      Iterator limited = dataset.MakeIterator(
          nullptr, static_cast<size_t>(generators.Draw(1, 100)));
      REQUIRE(testing::Read(&limited) == testing::Read(dataset));
    }
  }
}

TEST_CASE("one stage's bytes are given back") {
  const auto budget = std::make_shared<AheadBudget>(1000);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    AheadBytes one(budget), other(budget);
    size_t held[6] = {};
    for (int i = 0; i < 30; ++i) {
      AheadBytes& stage = random() % 2 == 0 ? one : other;
      size_t& at = held[(&stage == &one ? 0 : 3) + random() % 3];
      if (at > 0) {
        stage.Drop(&at);
      } else if (stage.Begin(random() % 8 == 0, &at)) {
        stage.Made(1 + random() % 400, &at);
      }
      size_t all = 0;
      for (const size_t bytes : held) all += bytes;
      // All but that is free.
      REQUIRE(budget->TryAdd(0) == (all <= 1000));
      if (all <= 1000) {
        REQUIRE(budget->TryAdd(1000 - all));
        REQUIRE_FALSE(budget->TryAdd(1));
        budget->Remove(1000 - all);
      }
    }
  }
  CHECK(budget->TryAdd(1000));
}

TEST_CASE("a large element is forgotten") {
  AheadBytes bytes(std::make_shared<AheadBudget>(1 << 20));
  size_t held = 0;
  const auto make = [&](size_t n) {
    REQUIRE(bytes.Begin(true, &held));
    bytes.Made(n, &held);
    bytes.Drop(&held);
  };
  make(1 << 19);
  CHECK(bytes.Fit() == 2);
  for (int i = 0; i < 1000; ++i) make(1 << 10);
  CHECK(bytes.Fit() > 500);
  make(1 << 22);
  CHECK(bytes.Fit() == 1);
}

}  // namespace
}  // namespace sluice
