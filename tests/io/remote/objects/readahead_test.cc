// What is fetched before it is asked for.
#include "io/remote/objects/readahead.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "tests/support/random_bytes.h"

namespace sluice::remote {
namespace {

using testing::Below;
using testing::Once;
using testing::RandomBytes;

constexpr size_t kBlock = 100;

// A file of 10,000 bytes, read as ObjectFile does it.
class Reader {
 public:
  explicit Reader(ReadSizes sizes = {.block = kBlock, .blocks_ahead = 4},
                  uint64_t begin = 0)
      : begin_(begin),
        ahead_(begin, bytes.size(), sizes, threads_,
               [this](uint64_t offset, uint64_t n) -> Result<std::string> {
                 const std::lock_guard lock(mutex_);
                 fetched_ += n;
                 least_ = std::min(least_, offset);
                 if (failures_ > 0) {
                   --failures_;
                   return Unavailable("no");
                 }
                 return bytes.substr(offset, n);
               }) {}

  // Whether all bytes of it had been read ahead.
  bool Read(uint64_t offset, size_t n) {
    std::string out(n, '?');
    const size_t have =
        offset < begin_
            ? bytes.copy(out.data(), std::min(n, begin_ - offset), offset)
            : 0;
    const auto done = ahead_.Read(offset, have, out.data(), n);
    REQUIRE(done.ok());
    REQUIRE(*done <= n);
    REQUIRE(*done >= have);
    REQUIRE(out.substr(0, *done) == bytes.substr(offset, *done));
    return *done == n;
  }
  Status Error(uint64_t offset, size_t n) {
    std::string out(n, '?');
    return ahead_.Read(offset, 0, out.data(), n).status();
  }
  void Fail(int times) {
    const std::lock_guard lock(mutex_);
    failures_ = times;
  }
  // Once nothing is under way.
  uint64_t fetched() {
    AwaitThreads();
    return fetched_;
  }
  uint64_t least() const { return least_; }

  std::string bytes = [] {
    std::mt19937 random(1);
    return RandomBytes(random, 10'000);
  }();

 private:
  void AwaitThreads() {
    // Tasks run in order: behind as many as there are threads all are begun.
    const auto left = std::make_shared<std::atomic<int>>(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads_.Start([left] {
        --*left;
        while (*left > 0) std::this_thread::yield();
      });
    }
    while (*left > 0) std::this_thread::yield();
    const std::lock_guard lock(mutex_);
  }

  static constexpr int kThreads = 3;
  const uint64_t begin_;
  std::mutex mutex_;
  uint64_t fetched_ = 0, least_ = UINT64_MAX;
  int failures_ = 0;
  FetchThreads threads_{kThreads};
  Readahead ahead_;
};

TEST_CASE("readahead: from the second read of a run on all is there") {
  Reader reader;
  CHECK(!reader.Read(0, 10));
  CHECK(reader.fetched() == 0);
  for (uint64_t at = 10; at < 9000; at += 30) CHECK(reader.Read(at, 30));
  CHECK(reader.fetched() <= 9000 + 4 * kBlock);
  CHECK(reader.least() == 10);
}

TEST_CASE("readahead: reads at random fetch nothing") {
  Reader reader;
  for (uint64_t at : {9000, 8000, 7000, 5000, 3000, 1000, 6000, 4000, 0}) {
    CHECK(!reader.Read(at, 50));
  }
  CHECK(reader.fetched() == 0);
}

// A shard of 25 blocks, as of the photographs in bench/remote: some of them
// follow one another closely by chance.
TEST_CASE("readahead: a shuffled shard costs little more than its bytes") {
  uint64_t fetched = 0, read = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Reader reader({.block = 400, .blocks_ahead = 8});
    std::mt19937 random(seed);
    std::vector<uint64_t> records(250);
    for (size_t i = 0; i < records.size(); ++i) records[i] = 40 * i;
    std::shuffle(records.begin(), records.end(), random);
    for (const uint64_t at : records) reader.Read(at, 40);
    fetched += reader.fetched();
    read += reader.bytes.size();
  }
  CHECK(static_cast<double>(fetched) < 0.5 * static_cast<double>(read));
}

TEST_CASE("readahead: gaps of less than a block do not end a run") {
  Reader reader;
  CHECK(!reader.Read(0, 10));
  CHECK(!reader.Read(105, 10));
  for (uint64_t at = 210; at < 9000; at += 105) CHECK(reader.Read(at, 10));
  // One that is larger does.
  Reader other;
  CHECK(!other.Read(0, 10));
  CHECK(other.Read(10, 10));
  CHECK(!other.Read(5000, 10));
}

TEST_CASE("readahead: several runs in turns") {
  Reader reader;
  for (uint64_t i = 0; i < 50; ++i) {
    for (const uint64_t begin : {0, 2500, 5000, 7500}) {
      CHECK(reader.Read(begin + i * 20, 20) == (i > 0));
    }
  }
}

TEST_CASE("readahead: the first bytes, which the caller has, are not fetched") {
  Reader reader({.block = kBlock, .blocks_ahead = 2}, 150);
  CHECK(reader.Read(0, 40));
  CHECK(reader.Read(40, 40));
  CHECK(reader.Read(80, 40));
  CHECK(reader.Read(120, 60));  // of both
  CHECK(reader.Read(180, 100));
  CHECK(reader.least() == 150);
}

TEST_CASE("readahead: reads larger than what is ahead get their beginning") {
  Reader reader({.block = kBlock, .blocks_ahead = 1});
  CHECK(!reader.Read(0, 10));
  CHECK(!reader.Read(10, 150));
  CHECK(reader.Read(20, 90));
}

TEST_CASE("readahead: at the end of the file nothing more is fetched") {
  Reader reader;
  const uint64_t size = reader.bytes.size();
  CHECK(!reader.Read(size - 60, 20));
  CHECK(reader.Read(size - 40, 20));
  CHECK(reader.Read(size - 20, 20));
  CHECK(reader.fetched() == 40);
}

TEST_CASE("readahead: no more than so many blocks in all") {
  Reader reader({.block = kBlock, .blocks_ahead = 8, .all_blocks = 2});
  CHECK(!reader.Read(0, 10));
  CHECK(reader.Read(10, 10));
  CHECK(reader.Read(20, 10));
  CHECK(reader.fetched() == 2 * kBlock);
}

TEST_CASE("readahead: an error is one read's, the next tries again") {
  Reader reader;
  CHECK(!reader.Read(0, 10));
  reader.Fail(1);
  CHECK(reader.Error(10, 10).code() == Code::kUnavailable);
  CHECK(reader.Read(10, 10));
  CHECK(reader.Read(20, 10));
}

TEST_CASE("readahead: what is read is right, however it is read") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Reader reader(
        {.block = 1 + Below(random, 300), .blocks_ahead = 1 + Below(random, 5)},
        Below(random, 300));
    uint64_t at = 0;
    for (int i = 0; i < 200; ++i) {
      if (Once(random, 8)) at = Below(random, 9000);
      const size_t n = 1 + Below(random, 900);
      if (at + n > reader.bytes.size()) at = 0;
      reader.Read(at, n);
      at += Once(random, 3) ? Below(random, 200) : n;
      if (at + 1000 > reader.bytes.size()) at = 0;
    }
  }
}

TEST_CASE("readahead: may be destroyed while it fetches") {
  FetchThreads threads(2);
  const auto kept = std::make_shared<std::string>(1000, 'x');
  for (int i = 0; i < 200; ++i) {
    Readahead ahead(0, 1000, {.block = 50, .blocks_ahead = 8}, threads,
                    [kept](uint64_t offset, uint64_t n) -> Result<std::string> {
                      return kept->substr(offset, n);
                    });
    char out[10];
    CHECK(ahead.Read(0, 0, out, 10).ok());
    CHECK(*ahead.Read(10, 0, out, 10) == 10);
    (void)ahead.Read(20, 0, out, 10);
  }
}

}  // namespace
}  // namespace sluice::remote
