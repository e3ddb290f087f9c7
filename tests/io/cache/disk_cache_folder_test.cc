// Whose room it is in a folder of caches: the limit, and which keys go first.
#include "io/cache/disk_cache_folder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cached_elements.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/random_example.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Add;
using testing::Answer;
using testing::Ask;
using testing::Below;
using testing::Cache;
using testing::Contains;
using testing::FaultFileSystem;
using testing::FilesOf;
using testing::Found;
using testing::HashIn;
using testing::kPlenty;
using testing::Once;
using testing::Small;
using testing::SomeElements;
using testing::TemporaryFolder;

uint64_t SizeOfSegments(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path suffix = entry.path().extension();
    if (suffix == ".examples" || suffix == ".index") bytes += entry.file_size();
  }
  return bytes;
}

TEST_CASE("the limit holds, and what is in use stays") {
  int full = 0, removed = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    const uint64_t limit = 500 + Below(random, 30'000);
    struct Open {
      std::string key;
      Cache cache;
      std::set<int64_t> found;
    };
    std::vector<Open> open(3);
    const auto start = [&](Open& one) {
      one.cache.reset();
      one.key = fmt::format("key {}", Below(random, 6));
      one.cache = DiskCache(folder.path(), one.key, limit);
      one.found = Found(*one.cache, one.key, 30);
    };
    for (Open& one : open) start(one);
    int wrong = 0;
    for (int i = 0; i < 300; ++i) {
      Open& one = open[Below(random, open.size())];
      const auto number = static_cast<int64_t>(Below(random, 30));
      if (Once(random, 20)) {
        full += !one.cache->Trouble().empty();
        start(one);
      }
      const uint64_t before = SizeOfSegments(folder.path());
      if (Once(random, 2)) Add(*one.cache, one.key, number);
      removed += SizeOfSegments(folder.path()) < before;
      wrong += SizeOfSegments(folder.path()) > limit;
      const Answer answer = Ask(*one.cache, one.key, number);
      wrong += answer == Answer::kWrong;
      wrong += answer == Answer::kNone && one.found.contains(number);
      if (answer == Answer::kRight) one.found.insert(number);
    }
    CHECK(wrong == 0);
    for (Open& one : open) {
      const auto left = Found(*one.cache, one.key, 30);
      // More where it has looked for room, and so at what others added.
      CHECK(std::includes(left.begin(), left.end(), one.found.begin(),
                          one.found.end()));
      const Cache other = DiskCache(folder.path(), one.key, limit);
      CHECK(Found(*other, one.key, 30).size() >= left.size());
    }
  }
  CHECK(full > 10);
  CHECK(removed > 10);
}

// Which keys have files in a folder.
std::set<std::string> HashesIn(const std::string& folder) {
  std::set<std::string> hashes;
  for (const auto& [name, bytes] : FilesOf(FileSystem::Posix(), folder)) {
    if (name.ends_with(".index")) hashes.insert(name.substr(0, 16));
  }
  return hashes;
}

TEST_CASE("keys that were opened longest ago are removed first") {
  const TemporaryFolder folder;
  std::map<std::string, std::string> hash;
  uint64_t one = 0;
  const std::vector<std::string> keys = {"c", "a", "d", "b"};
  for (const std::string& key : keys) {
    hash[key] = HashIn(SomeElements(key));
    const Cache cache = DiskCache(folder.path(), key, kPlenty);
    for (int i = 0; i < 10; ++i) cache->Add(i, Small(i));
    if (one == 0) one = SizeOfSegments(folder.path());
  }
  const uint64_t all = SizeOfSegments(folder.path());
  REQUIRE(all == 4 * one);
  // What is not ours stays as well.
  const std::string foreign = folder / "0123456789abcdef.examples";
  std::ofstream(foreign) << "x";
  // Opening is using, not only adding: "a" is now the newest.
  { const Cache cache = DiskCache(folder.path(), "a", all); }
  const Cache in_use = DiskCache(folder.path(), "d", all);
  std::set<std::string> left = {hash["a"], hash["b"], hash["c"], hash["d"]};
  CHECK(HashesIn(folder.path()) == left);
  const Cache cache = DiskCache(folder.path(), "new", all);
  left.insert(HashIn(SomeElements("new")));
  int64_t added = 0;
  for (const std::string oldest : {"c", "b", "a"}) {
    CAPTURE(oldest);
    // Gone with the first that has no room, and no other with it.
    do {
      cache->Add(added, Small(added));
      ++added;
    } while (HashesIn(folder.path()).contains(hash[oldest]) && added < 100);
    left.erase(hash[oldest]);
    CHECK(HashesIn(folder.path()) == left);
  }
  CHECK(added > 20);
  CHECK(cache->Trouble().empty());
  for (int64_t i = 0; i < added; ++i) CHECK(cache->Find(i));
  for (int i = 0; i < 30; ++i) cache->Add(added + i, Small(0));
  CHECK(cache->Trouble() ==
        fmt::format("no more examples are kept in '{}': the limit of {} bytes "
                    "is reached, by what is in use",
                    folder.path(), all));
  CHECK(SizeOfSegments(folder.path()) <= all);
  CHECK(fs::exists(foreign));
  for (int i = 0; i < 10; ++i) CHECK(in_use->Find(i));
}

TEST_CASE("a key is in use as long as its process lives") {
  const TemporaryFolder folder;
  const uint64_t limit = 2000;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Cache cache = DiskCache(folder.path(), "child", limit);
    for (int i = 0; i < 5; ++i) cache->Add(i, Small(i));
    (void)!write(ready[1], "y", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  const auto fill = [&] {
    const Cache cache = DiskCache(folder.path(), "parent", limit);
    for (int i = 0; cache->Trouble().empty(); ++i) cache->Add(i, Small(i));
  };
  const auto children = [&] {
    const Cache cache = DiskCache(folder.path(), "child", limit);
    int found = 0;
    for (int i = 0; i < 5; ++i) found += cache->Find(i).has_value();
    return found;
  };
  fill();
  CHECK(children() == 5);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  fill();
  CHECK(children() == 0);
}

TEST_CASE("a limit that is lowered holds, and living caches keep their own") {
  constexpr uint64_t kLimit = 40'000, kLowered = kLimit / 4;
  constexpr int64_t kNumbers = 80;  // behind these are the living caches' own
  int lowered = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    const auto any_key = [&] {
      return fmt::format("key {}", Below(random, 3));
    };
    const std::string key = any_key();
    std::vector<std::pair<std::string, Cache>> living;
    for (int64_t i = 0; i < 3; ++i) {
      const std::string of = Once(random, 2) ? key : "lone";
      living.emplace_back(of, DiskCache(folder.path(), of, kLimit));
      living.back().second->Add(kNumbers + i, Small(i));
    }
    for (int i = 0; i < 6; ++i) {
      const std::string of = any_key();
      const Cache filling = DiskCache(folder.path(), of, kLimit);
      for (int k = 0; k < 60; ++k) {
        Add(*filling, of, static_cast<int64_t>(Below(random, kNumbers)));
      }
    }
    for (const auto& [of, one] : living) one->Refresh();
    lowered += SizeOfSegments(folder.path()) > kLowered;
    const Cache cache = DiskCache(folder.path(), key, kLowered);
    CHECK(SizeOfSegments(folder.path()) <= kLowered);
    for (int k = 0; k < 30; ++k) {
      Add(*cache, key, static_cast<int64_t>(Below(random, kNumbers)));
    }
    CHECK(SizeOfSegments(folder.path()) <= kLowered);
    Found(*cache, key, kNumbers);
    for (int64_t i = 0; i < 3; ++i) {
      auto& [of, one] = living[static_cast<size_t>(i)];
      Found(*one, of, kNumbers);
      const auto own = one->Find(kNumbers + i);
      REQUIRE(own);
      CHECK(testing::Same(*own, Small(i)));
    }
  }
  CHECK(lowered > 10);
}

TEST_CASE("what is there beyond a limit that nobody gave stays, and is known") {
  const TemporaryFolder folder;
  for (const char* key : {"other", "key", "key"}) {
    const Cache cache = DiskCache(folder.path(), key, kPlenty);
    for (int i = 0; i < 9; ++i) cache->Add(cache->size(), Small(i));
  }
  const uint64_t all = SizeOfSegments(folder.path());
  const auto open = [&](const char* key, uint64_t limit, bool keeps_more) {
    return DiskCache(folder.path(), key, limit, FileSystem::Default(),
                     keeps_more);
  };
  for (const char* key : {"key", "new"}) {
    CAPTURE(key);
    const Cache cache = open(key, all / 4, true);
    CHECK(cache->removed_bytes() == 0);
    // Most is not accepted: to write the rest anew there is no room.
    const int64_t found = cache->size();
    for (int i = 1; i < found; ++i) {
      cache->Find(i, [](const Example&) { return false; });
    }
    for (int i = 0; i < 3; ++i) cache->Add(100 + i, Small(i));
    CHECK(!cache->Find(100));
    CHECK(cache->Trouble() ==
          fmt::format("no more examples are kept in '{}': it holds {} bytes, "
                      "beyond the limit of {}",
                      folder.path(), all, all / 4));
    CHECK(SizeOfSegments(folder.path()) == all);
  }
  CHECK(open("key", all / 4, true)->size() == 18);
  {
    // As long as it does not hold more, others' room is taken all the same.
    const Cache cache = open("new", all + 1, true);
    for (int i = 0; i < 3; ++i) cache->Add(i, Small(i));
    CHECK(cache->Trouble().empty());
    CHECK(cache->size() == 3);
    CHECK(HashesIn(folder.path()).size() == 2);
  }
  const uint64_t before = SizeOfSegments(folder.path());
  const Cache cache = open("key", all / 4, false);
  CHECK(SizeOfSegments(folder.path()) <= all / 4);
  CHECK(cache->removed_bytes() == before - SizeOfSegments(folder.path()));
}

TEST_CASE("killed while the limit is lowered, the next opening does it") {
  const auto bytes_in = [](FaultFileSystem& files) {
    uint64_t sum = 0;
    for (const auto& [name, bytes] : FilesOf(files, "cache")) {
      const bool of_segment =
          name.ends_with(".examples") || name.ends_with(".index");
      if (of_segment) sum += bytes.size();
    }
    return sum;
  };
  bool killed = true;
  for (int operation = 1; killed; ++operation) {
    CAPTURE(operation);
    FaultFileSystem files;
    for (const char* key : {"other", "key", "key"}) {
      const Cache cache = DiskCache("cache", key, kPlenty, files);
      for (int i = 0; i < 9; ++i) cache->Add(cache->size(), Small(i));
    }
    const uint64_t limit = bytes_in(files) / 4;
    files.FailAt(files.operations() + operation, FaultFileSystem::Fault::kKill);
    { const Cache cache = DiskCache("cache", "key", limit, files); }
    killed = files.failed();
    files.Restart(FaultFileSystem::Loss::kNothing);
    const Cache cache = DiskCache("cache", "key", limit, files);
    CHECK(bytes_in(files) <= limit);
    CHECK(cache->Trouble().empty());
    CHECK((operation > 4 || killed));  // there is something to remove
  }
}

TEST_CASE("an example larger than the limit removes no others") {
  const TemporaryFolder folder;
  {
    const Cache cache = DiskCache(folder.path(), "old", 1000);
    cache->Add(1, Small(1));
  }
  const Cache cache = DiskCache(folder.path(), "new", 1000);
  cache->Add(1, {{"image", Tensor::Zeros(DType::kUInt8, {1000})}});
  CHECK(!cache->Find(1));
  CHECK(Contains(cache->Trouble(), "the limit of 1000 bytes is reached"));
  CHECK(DiskCache(folder.path(), "old", 1000)->Find(1));
}

}  // namespace
}  // namespace sluice
