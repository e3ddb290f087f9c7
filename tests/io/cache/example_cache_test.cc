// The cache in memory, against a map.
#include "io/cache/example_cache.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/random_example.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::Once;
using testing::RandomExample;
using testing::Same;
using testing::Spoil;

uint64_t SizeOfAll(const Example& example) {
  uint64_t bytes = 128;
  for (const auto& [name, tensor] : example) {
    uint64_t elements = 1;
    for (const int64_t d : tensor.shape()) elements *= d;
    bytes += 240 + name.size() + elements * SizeOf(tensor.dtype());
  }
  return bytes;
}

TEST_CASE("a cache in memory keeps what its limit allows, as it was") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint64_t limit = Once(random, 3) ? UINT64_MAX : Below(random, 40'000);
    const auto cache = MemoryCache(limit);
    std::map<int64_t, Example> model;
    uint64_t bytes = 0;
    bool full = false;
    int wrong = 0;
    for (int i = 0; i < 200; ++i) {
      const auto number = static_cast<int64_t>(Below(random, 60)) - 5;
      if (Once(random, 2)) {
        std::mt19937 again = random;
        Example example = RandomExample(random);
        const uint64_t size = SizeOfAll(example);
        cache->Add(number, example);
        Spoil(&example);  // must not reach the cache
        if (model.contains(number)) continue;
        if (size <= limit - bytes) {
          bytes += size;
          model[number] = RandomExample(again);
        } else {
          full = true;
        }
        continue;
      }
      auto found = cache->Find(number);
      wrong += found.has_value() != model.contains(number);
      if (!found) continue;
      wrong += !Same(*found, model[number]);
      Spoil(&*found);  // must not reach the cache
    }
    CHECK(wrong == 0);
    CHECK(cache->Trouble().empty() == !full);
    if (full) {
      CHECK(cache->Trouble() ==
            "no more examples are kept in memory: the limit of " +
                std::to_string(limit) + " bytes is reached");
    }
  }
}

TEST_CASE("eight threads share a cache in memory") {
  std::mt19937 random(7);
  std::vector<Example> examples(200);
  uint64_t bytes = 0;
  for (Example& example : examples) {
    example = RandomExample(random);
    bytes += SizeOfAll(example);
  }
  const auto cache = MemoryCache(bytes);  // so that none may count twice
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 mine(t);
      for (int i = 0; i < 1000; ++i) {
        const size_t n = Below(mine, examples.size());
        if (auto found = cache->Find(static_cast<int64_t>(n))) {
          wrong += !Same(*found, examples[n]);
          Spoil(&*found);
        } else {
          cache->Add(static_cast<int64_t>(n), examples[n]);
          wrong += !cache->Find(static_cast<int64_t>(n));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(cache->Trouble().empty());
}

}  // namespace
}  // namespace sluice
