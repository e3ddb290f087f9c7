// The cache on disk, against a map: several on one folder, killed at any
// moment, damaged files, full disks.
#include "io/cache/disk_cache.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/files/record.h"
#include "tests/support/cached_elements.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
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
using testing::Files;
using testing::Found;
using testing::HashIn;
using testing::kPlenty;
using testing::kSome;
using testing::Once;
using testing::Same;
using testing::Small;
using testing::SomeElements;
using testing::TemporaryFolder;
using testing::UpTo;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;

TEST_CASE("several caches on one folder, opened and closed at random") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    const std::string path = folder / "a/b";  // is made
    const std::vector<std::string> keys = {"digits", "digits map", ""};
    std::map<std::string, std::set<int64_t>> model;  // what has been added
    struct Open {
      std::string key;
      Cache cache;
      std::set<int64_t> must;  // what it must find
    };
    std::vector<Open> open;
    const auto start = [&] {
      const std::string& key = keys[Below(random, keys.size())];
      return Open{key, DiskCache(path, key, kPlenty), model[key]};
    };
    for (int i = 0; i < 4; ++i) open.push_back(start());
    int wrong = 0;
    for (int i = 0; i < 400; ++i) {
      Open& one = open[Below(random, open.size())];
      const auto number = static_cast<int64_t>(Below(random, 80)) - 20;
      switch (Below(random, 16)) {
        case 0:
          one = start();
          break;
        case 1:
          one.cache->Refresh();
          one.must = model[one.key];
          break;
        case 2:
        case 3:
        case 4:
        case 5:
          Add(*one.cache, one.key, number);
          model[one.key].insert(number);
          one.must.insert(number);
          [[fallthrough]];
        default: {
          const Answer answer = Ask(*one.cache, one.key, number);
          const bool must = one.must.contains(number);
          const bool may = model[one.key].contains(number);
          wrong += answer == Answer::kWrong;
          wrong += answer == Answer::kNone && must;
          wrong += answer == Answer::kRight && !may;
        }
      }
    }
    CHECK(wrong == 0);
    for (const Open& one : open) CHECK(one.cache->Trouble().empty());
  }
}

// Adds elements from 0 on until it is killed, and tells each once it is kept.
[[noreturn]] void AddForever(const std::string& folder, const std::string& key,
                             int64_t first, int told) {
  const Cache cache = DiskCache(folder, key, kPlenty);
  for (int64_t number = first;; ++number) {
    Add(*cache, key, number);
    if (write(told, &number, sizeof(number)) < 0) _exit(1);
  }
}

TEST_CASE("a process killed while it adds loses nothing that it had added") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  std::set<int64_t> added;
  for (int run = 0; run < 50; ++run) {
    CAPTURE(run);
    int told[2];
    REQUIRE(pipe(told) == 0);
    const auto first = static_cast<int64_t>(Below(random, 200));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) AddForever(folder.path(), "key", first, told[1]);
    close(told[1]);
    int64_t number = first;
    const auto read_one = [&] {
      if (read(told[0], &number, sizeof(number)) <= 0) return false;
      added.insert(number);
      return true;
    };
    for (size_t n = Below(random, 40); n > 0; --n) REQUIRE(read_one());
    // It is somewhere within an example, or still opens.
    volatile size_t spin = Below(random, 200'000);
    while (spin > 0) spin = spin - 1;
    REQUIRE(kill(child, SIGKILL) == 0);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    while (read_one()) {
    }
    close(told[0]);
    const Cache cache = DiskCache(folder.path(), "key", kPlenty);
    const auto found = Found(*cache, "key", number + 10);
    CHECK(std::includes(found.begin(), found.end(), added.begin(),
                        added.upper_bound(number)));
    CHECK(cache->Trouble().empty());
  }
  CHECK(added.size() > 100);
  // Of 50 processes no lock is left.
  { const Cache cache = DiskCache(folder.path(), "key", kPlenty); }
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const fs::path name = entry.path().filename();
    CHECK((name == "lock" || name.extension() != ".lock"));
  }
}

void Put(FaultFileSystem& to, const Files& all) {
  REQUIRE(to.MakeDirectories("cache").ok());
  for (const auto& [name, bytes] : all) {
    const auto file = to.Create("cache/" + name);
    REQUIRE((file.ok() && (*file)->Append(bytes).ok()));
  }
}

std::string& Ending(Files& files, const std::string& suffix) {
  for (auto& [name, bytes] : files) {
    if (name.ends_with(suffix)) return bytes;
  }
  throw std::runtime_error("no file ends with " + suffix);
}

// Where the records of a file end.
std::vector<size_t> Ends(const std::string& file) {
  std::vector<size_t> ends;
  RecordReader reader(file);
  std::string_view payload;
  while (*reader.Next(&payload)) {
    ends.push_back(payload.data() + payload.size() + 4 - file.data());
  }
  return ends;
}

// What is found of damaged files; then adds what is missing.
std::set<int64_t> FoundIn(const Files& damaged) {
  FaultFileSystem files;
  Put(files, damaged);
  std::set<int64_t> found;
  {
    const Cache cache = DiskCache("cache", "key", kPlenty, files);
    found = Found(*cache, "key", kSome + 2);
    for (int64_t i = 0; i < kSome; ++i) Add(*cache, "key", i);
    CHECK(Found(*cache, "key", kSome + 2) == UpTo(kSome));
    CHECK(cache->Trouble().empty());
  }
  const Cache again = DiskCache("cache", "key", kPlenty, files);
  CHECK(Found(*again, "key", kSome + 2) == UpTo(kSome));
  return found;
}

TEST_CASE("files cut at every byte have what is whole") {
  const Files whole = SomeElements("key");
  Files files = whole;
  for (const std::string suffix : {".examples", ".index"}) {
    CAPTURE(suffix);
    const std::string& bytes = Ending(files, suffix);
    std::vector<size_t> ends = Ends(bytes);
    if (suffix == ".index") ends.erase(ends.begin());  // the key
    REQUIRE(ends.size() == kSome);
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      Files damaged = whole;
      Ending(damaged, suffix).resize(cut);
      const auto left = std::upper_bound(ends.begin(), ends.end(), cut);
      CHECK(FoundIn(damaged) == UpTo(left - ends.begin()));
    }
  }
}

TEST_CASE("of files with a flipped bit all is found that it is not in") {
  const Files whole = SomeElements("key");
  Files files = whole;
  std::mt19937 random(4);
  for (const std::string suffix : {".examples", ".index"}) {
    CAPTURE(suffix);
    const std::string& bytes = Ending(files, suffix);
    const bool index = suffix == ".index";
    std::vector<size_t> ends = Ends(bytes);
    for (size_t at = 0; at < bytes.size(); ++at) {
      Files damaged = whole;
      Ending(damaged, suffix)[at] ^= static_cast<char>(1 << Below(random, 8));
      const auto in = std::upper_bound(ends.begin(), ends.end(), at);
      const auto record = in - ends.begin() - (index ? 1 : 0);
      std::set<int64_t> rest = UpTo(record < 0 ? 0 : kSome);
      rest.erase(record);
      CHECK(FoundIn(damaged) == rest);
    }
  }
}

// An index of our making, whole, of which nothing is true.
TEST_CASE("an index that lies is not believed") {
  const Files whole = SomeElements("key");
  Files files = whole;
  const std::string head =
      Ending(files, ".index").substr(0, Ends(Ending(files, ".index"))[0]);
  const uint64_t size = Ending(files, ".examples").size();
  const std::vector<uint64_t> numbers = {0,
                                         1,
                                         15,
                                         16,
                                         23,
                                         24,
                                         100,
                                         size - 24,
                                         size - 1,
                                         size,
                                         size + 1,
                                         INT64_MAX,
                                         UINT64_MAX - 15,
                                         UINT64_MAX};
  std::string& index = Ending(files, ".index");
  index = head;
  for (const uint64_t offset : numbers) {
    for (const uint64_t bytes : numbers) {
      for (uint64_t number = 0; number < kSome; ++number) {
        const uint64_t entry[] = {number, offset, bytes};
        AppendRecord({reinterpret_cast<const char*>(entry), sizeof(entry)},
                     &index);
      }
    }
  }
  CHECK(FoundIn(files).empty());
  // The place of one element is not that of another.
  index = head;
  const size_t first = Ends(Ending(files, ".examples"))[0];
  for (uint64_t number = 0; number < kSome; ++number) {
    const uint64_t entry[] = {number, 0, first};
    AppendRecord({reinterpret_cast<const char*>(entry), sizeof(entry)}, &index);
  }
  CHECK(FoundIn(files) == UpTo(1));
}

TEST_CASE("keys of the same hash do not see each other's examples") {
  const std::string ours = HashIn(SomeElements("key"));
  Files files;
  for (const auto& [name, bytes] : SomeElements("other")) {
    REQUIRE(HashIn({{name, bytes}}) != ours);
    files[ours + name.substr(16)] = bytes;
  }
  CHECK(FoundIn(files).empty());
  FaultFileSystem both;
  Put(both, files);
  const Cache cache = DiskCache("cache", "key", kPlenty, both);
  cache->Refresh();
  CHECK(Found(*cache, "key", kSome).empty());
  for (int64_t i = 3; i < kSome; ++i) Add(*cache, "key", i);
  CHECK(Found(*cache, "key", kSome).size() == kSome - 3);
}

TEST_CASE("a disk that fills up, and a process that dies, at every operation") {
  int stopped = 0, kept = 0;
  for (const Fault fault : {Fault::kDiskFull, Fault::kKill}) {
    for (int operation = 1; operation < 24; ++operation) {
      for (const Loss loss :
           {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
        CAPTURE(operation);
        FaultFileSystem files;
        files.FailAt(operation, fault);
        std::set<int64_t> found;
        {
          const Cache cache = DiskCache("cache", "key", kPlenty, files);
          for (int64_t i = 0; i < kSome; ++i) Add(*cache, "key", i);
          found = Found(*cache, "key", kSome + 2);
          CHECK((cache->Trouble().empty()) == (found == UpTo(kSome)));
          if (fault == Fault::kDiskFull && !cache->Trouble().empty()) {
            CHECK(Contains(cache->Trouble(),
                           "no more examples are kept in 'cache': disk is "
                           "full: cannot"));
          }
          stopped += !cache->Trouble().empty();
          const std::string trouble = cache->Trouble();
          Add(*cache, "key", kSome + 1);
          if (!trouble.empty()) CHECK(cache->Trouble() == trouble);
        }
        files.Restart(loss);
        const Cache again = DiskCache("cache", "key", kPlenty, files);
        const auto left = Found(*again, "key", kSome);
        CHECK(std::includes(found.begin(), found.end(), left.begin(),
                            left.end()));
        if (loss == Loss::kNothing) CHECK(left == found);
        kept += !left.empty();
        for (int64_t i = 0; i < kSome; ++i) Add(*again, "key", i);
        CHECK(again->Trouble().empty());
        again->Refresh();
        CHECK(Found(*again, "key", kSome) == UpTo(kSome));
      }
    }
  }
  CHECK(stopped > 50);
  CHECK(kept > 20);
}

TEST_CASE("folders that cannot be written, or are none") {
  FaultFileSystem files;
  Put(files, SomeElements("key"));
  files.SetReadOnly(true);
  const Cache cache = DiskCache("cache", "key", kPlenty, files);
  CHECK(Contains(cache->Trouble(),
                 "no more examples are kept in 'cache': cannot create"));
  CHECK(Contains(cache->Trouble(), "read-only file system"));
  Add(*cache, "key", kSome);
  CHECK(Found(*cache, "key", kSome + 1) == UpTo(kSome));
  const Cache absent = DiskCache("absent", "key", kPlenty, files);
  CHECK(!absent->Trouble().empty());
  CHECK(Found(*absent, "key", kSome).empty());

  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  for (const std::string& path :
       {folder / "file", folder / "file/below", std::string("/proc/no/such")}) {
    CAPTURE(path);
    const Cache none = DiskCache(path, "key", kPlenty);
    CHECK(Contains(none->Trouble(), path));
    Add(*none, "key", 1);
    none->Refresh();
    CHECK(!none->Find(1));
  }
}

TEST_CASE("eight threads share a cache, and two caches a folder") {
  const TemporaryFolder folder;
  constexpr size_t kElements = 120;
  const Cache caches[] = {DiskCache(folder.path(), "key", kPlenty),
                          DiskCache(folder.path(), "key", kPlenty)};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      ExampleCache& cache = *caches[t % 2];
      for (int i = 0; i < 150; ++i) {
        const auto number = static_cast<int64_t>(Below(random, kElements));
        if (Once(random, 20)) cache.Refresh();
        const Answer before = Ask(cache, "key", number);
        wrong += before == Answer::kWrong;
        if (before != Answer::kNone) continue;
        Add(cache, "key", number);
        wrong += Ask(cache, "key", number) != Answer::kRight;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  for (const Cache& cache : caches) CHECK(cache->Trouble().empty());
  CHECK(Found(*DiskCache(folder.path(), "key", kPlenty), "key", kElements)
            .size() > kElements / 2);
}

TEST_CASE("of 100 segments at most 64 are open, all are read") {
  const TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) {
    DiskCache(folder.path(), "key", kPlenty)->Add(i, Small(i));
  }
  const auto open = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open();
  const Cache cache = DiskCache(folder.path(), "key", kPlenty);
  for (int i = 0; i < 100; ++i) {
    const auto found = cache->Find(i);
    REQUIRE(found);
    CHECK(Same(*found, Small(i)));
  }
  CHECK(open() == before + 64 + 1);  // and the lock
}

}  // namespace
}  // namespace sluice
