// Room in a cache's folder that is taken by what nobody wants: it is used
// again, and the limit holds all the while.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/cache/disk_cache.h"
#include "tests/support/cached_elements.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Cache;
using testing::Contains;
using testing::FaultFileSystem;
using testing::Once;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;

// Of 100 bytes, about.
Example Of(int64_t number, int64_t version) {
  Tensor values(DType::kInt64, {10});
  for (int64_t& value : values.values<int64_t>()) value = number;
  values.data<int64_t>()[0] = version;
  return {{"x", std::move(values)}};
}

ExampleCache::Accepts Only(int64_t version) {
  return [version](const Example& e) { return e["x"].IntAt(0) == version; };
}

// Whether the number is there, with the version; nothing else may come.
bool Has(ExampleCache& cache, int64_t number, int64_t version) {
  const auto found = cache.Find(number, Only(version));
  if (found) CHECK((*found)["x"].BitEqual(Of(number, version)["x"]));
  return found.has_value();
}

int64_t Fill(ExampleCache& cache, int64_t n, int64_t version) {
  int64_t there = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!Has(cache, i, version)) cache.Add(i, Of(i, version));
    there += Has(cache, i, version) ? 1 : 0;
  }
  return there;
}

uint64_t BytesIn(FileSystem& files, const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& [name, text] : testing::FilesOf(files, folder)) {
    if (name.ends_with(".examples") || name.ends_with(".index")) {
      bytes += text.size();
    }
  }
  return bytes;
}

constexpr int64_t kCount = 100;

// What `kCount` of one version take.
uint64_t OneVersion() {
  FaultFileSystem files;
  const Cache cache = DiskCache("cache", "key", testing::kPlenty, files);
  Fill(*cache, kCount, 0);
  return BytesIn(files, "cache");
}

TEST_CASE("what is not accepted any more makes room for what is") {
  FaultFileSystem files;
  const uint64_t limit = OneVersion() * 5 / 4;
  for (int64_t version = 0; version < 6; ++version) {
    CAPTURE(version);
    const Cache cache = DiskCache("cache", "key", limit, files);
    CHECK(cache->size() >= (version == 0 ? 0 : kCount / 2));
    // A second time, now that it is known what nobody wants.
    int64_t there = 0;
    for (int pass = 0; pass < 2; ++pass) there = Fill(*cache, kCount, version);
    CHECK(there > kCount * 9 / 10);
    CHECK(BytesIn(files, "cache") <= limit);
  }
}

TEST_CASE("what stays is kept when the rest is thrown away") {
  FaultFileSystem files;
  const uint64_t limit = OneVersion() * 11 / 10;
  {
    const Cache cache = DiskCache("cache", "key", limit, files);
    REQUIRE(Fill(*cache, kCount, 0) == kCount);
  }
  const auto version_of = [](int64_t i) { return i % 3 == 0 ? 1 : 0; };
  const auto pass = [&](ExampleCache& cache) {
    int64_t there = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t version = version_of(i);
      if (!Has(cache, i, version)) cache.Add(i, Of(i, version));
      there += Has(cache, i, version) ? 1 : 0;
    }
    return there;
  };
  const Cache cache = DiskCache("cache", "key", limit, files);
  const Cache reader = DiskCache("cache", "key", limit, files);
  pass(*cache);
  CHECK(pass(*cache) == kCount);
  CHECK(Contains(cache->Trouble(), "the limit of"));
  CHECK(BytesIn(files, "cache") <= limit);
  // One that had the old files open still reads them, or finds nothing.
  for (int64_t i = 0; i < kCount; ++i) Has(*reader, i, version_of(i));
  reader->Refresh();
  for (int64_t i = 0; i < kCount; ++i) CHECK(Has(*reader, i, version_of(i)));
  const Cache later = DiskCache("cache", "key", limit, files);
  for (int64_t i = 0; i < kCount; ++i) CHECK(Has(*later, i, version_of(i)));
}

TEST_CASE("what several have added is kept once") {
  FaultFileSystem files;
  const uint64_t limit = OneVersion() * 5 / 2;
  {
    // None of them knows of the others.
    std::vector<Cache> caches;
    for (int i = 0; i < 2; ++i) {
      caches.push_back(DiskCache("cache", "key", limit, files));
    }
    for (const Cache& cache : caches) Fill(*cache, kCount, 0);
  }
  REQUIRE(BytesIn(files, "cache") > limit * 3 / 4);
  const Cache cache = DiskCache("cache", "key", limit, files);
  CHECK(cache->size() == kCount);
  for (int64_t i = 0; i < 2 * kCount; ++i) {
    if (!Has(*cache, i, 0)) cache->Add(i, Of(i, 0));
  }
  for (int64_t i = 0; i < 2 * kCount; ++i) CHECK(Has(*cache, i, 0));
  CHECK(cache->Trouble().empty());
  CHECK(BytesIn(files, "cache") <= limit);
}

TEST_CASE("what a living cache adds to is not written anew") {
  FaultFileSystem files;
  const uint64_t limit = OneVersion() * 5 / 4;
  const Cache alive = DiskCache("cache", "key", limit, files);
  REQUIRE(Fill(*alive, kCount, 0) == kCount);
  const Cache cache = DiskCache("cache", "key", limit, files);
  for (int pass = 0; pass < 2; ++pass) Fill(*cache, kCount, 1);
  CHECK(Contains(cache->Trouble(), "by what is in use"));
  for (int64_t i = 0; i < kCount; ++i) CHECK(Has(*alive, i, 0));
}

TEST_CASE("caches of any versions, opened, closed and filled at random") {
  uint64_t moved = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    FaultFileSystem files;
    const uint64_t limit = OneVersion() * (2 + Below(random, 8)) / 4;
    std::vector<Cache> open(3);
    for (Cache& cache : open) cache = DiskCache("cache", "key", limit, files);
    std::vector<int64_t> versions(kCount);
    uint64_t before = 0;
    for (int i = 0; i < 2000; ++i) {
      Cache& cache = open[Below(random, open.size())];
      const auto number = static_cast<int64_t>(Below(random, kCount));
      if (Once(random, 100)) {
        cache.reset();
        cache = DiskCache("cache", "key", limit, files);
      }
      if (Once(random, 5)) ++versions[static_cast<size_t>(number)];
      if (Once(random, 50)) cache->Refresh();
      const int64_t version = versions[static_cast<size_t>(number)];
      if (!Has(*cache, number, version)) {
        cache->Add(number, Of(number, version));
      }
      if (i % 10 != 0) continue;
      const uint64_t bytes = BytesIn(files, "cache");
      CHECK(bytes <= limit);
      moved += bytes < before ? 1 : 0;
      before = bytes;
    }
  }
  CHECK(moved > 20);
}

TEST_CASE("a disk that fills up, and a process that dies, while it is done") {
  int interrupted = 0;
  const uint64_t limit = OneVersion() * 5 / 4;
  // Two passes over a folder that is full of what nobody wants any more.
  const auto replace = [&](FaultFileSystem& files) {
    const Cache cache = DiskCache("cache", "key", limit, files);
    for (int pass = 0; pass < 2; ++pass) Fill(*cache, kCount, 1);
  };
  const auto fill = [&](FaultFileSystem& files) {
    const Cache cache = DiskCache("cache", "key", limit, files);
    REQUIRE(Fill(*cache, kCount, 0) == kCount);
  };
  FaultFileSystem whole;
  fill(whole);
  const int from = whole.operations();
  replace(whole);
  const int operations = whole.operations() - from;
  for (const Fault fault : {Fault::kDiskFull, Fault::kKill}) {
    for (int operation = 1; operation < operations; operation += 11) {
      CAPTURE(operation);
      FaultFileSystem files;
      fill(files);
      files.FailAt(files.operations() + operation, fault);
      replace(files);
      interrupted += files.failed() ? 1 : 0;
      files.Restart(Loss::kNothing);
      CHECK(BytesIn(files, "cache") <= limit);
      replace(files);
      CHECK(BytesIn(files, "cache") <= limit);
      const Cache again = DiskCache("cache", "key", limit, files);
      int64_t there = 0;
      for (int64_t i = 0; i < kCount; ++i) there += Has(*again, i, 1) ? 1 : 0;
      CHECK(there > kCount * 9 / 10);
    }
  }
  CHECK(interrupted > 20);
}

}  // namespace
}  // namespace sluice
