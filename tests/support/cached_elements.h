// What the tests of caches on disk put into them, and look for there.
#ifndef SLUICE_TESTS_SUPPORT_CACHED_ELEMENTS_H_
#define SLUICE_TESTS_SUPPORT_CACHED_ELEMENTS_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "io/cache/disk_cache.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_example.h"

namespace sluice::testing {

using Cache = std::unique_ptr<ExampleCache>;

inline constexpr uint64_t kPlenty = uint64_t{1} << 40;

// What a pipeline of that key has as its n-th element.
inline Example Element(const std::string& key, int64_t number) {
  std::seed_seq seed = {static_cast<int64_t>(std::hash<std::string>()(key)),
                        number};
  std::mt19937 random(seed);
  return RandomExample(random);
}

inline void Add(ExampleCache& cache, const std::string& key, int64_t number) {
  cache.Add(number, Element(key, number));
}

enum class Answer { kNone, kRight, kWrong };
inline Answer Ask(ExampleCache& cache, const std::string& key, int64_t number) {
  auto found = cache.Find(number);
  if (!found) return Answer::kNone;
  const bool right = Same(*found, Element(key, number));
  Spoil(&*found);  // must not reach the cache
  return right ? Answer::kRight : Answer::kWrong;
}

// Which of the numbers from 0 to n - 1 are there; none may be wrong.
inline std::set<int64_t> Found(ExampleCache& cache, const std::string& key,
                               int64_t n) {
  std::set<int64_t> found;
  for (int64_t i = 0; i < n; ++i) {
    const Answer answer = Ask(cache, key, i);
    CHECK(answer != Answer::kWrong);
    if (answer == Answer::kRight) found.insert(i);
  }
  return found;
}

inline std::set<int64_t> UpTo(int64_t n) {
  std::set<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.insert(i);
  return all;
}

using Files = std::map<std::string, std::string>;  // bytes by name

inline Files FilesOf(FileSystem& files, const std::string& folder) {
  Files all;
  const auto names = files.List(folder);
  REQUIRE(names.ok());
  for (const std::string& name : *names) {
    const auto bytes = files.Read(JoinPath(folder, name));
    REQUIRE(bytes.ok());
    all[name] = *bytes;
  }
  return all;
}

inline constexpr int64_t kSome = 7;

// The files of a cache that has the first few elements, in their order.
inline Files SomeElements(const std::string& key) {
  FaultFileSystem files;
  const Cache cache = DiskCache("cache", key, kPlenty, files);
  for (int64_t i = 0; i < kSome; ++i) Add(*cache, key, i);
  REQUIRE(cache->Trouble().empty());
  return FilesOf(files, "cache");
}

// The hash of the only key in a folder.
inline std::string HashIn(const Files& files) {
  return files.begin()->first.substr(0, 16);
}

// A label of 8 bytes, so that all take the same room.
inline Example Small(int64_t number) {
  return {{"label", Tensor::Scalar<int64_t>(number)}};
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CACHED_ELEMENTS_H_
