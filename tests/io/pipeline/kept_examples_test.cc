// Examples kept under names: nothing of another version may come, whatever
// several do with them.
#include "io/pipeline/kept_examples.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/files/schemes.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/numbers.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::Numbers;
using testing::Once;
using testing::TemporaryFolder;

Example Of(const std::string& name, int64_t version) {
  const auto seed = static_cast<int64_t>(std::hash<std::string>()(name));
  return {{"x", Tensor::Array<int64_t>({2}, {seed, version})}};
}

// Whether it is there; nothing else may be.
bool Has(KeptExamples& kept, const std::string& name, int64_t version) {
  const auto found = kept.Find(name, std::to_string(version));
  if (!found) return false;
  CHECK(found->size() == 1);
  CHECK((*found)["x"].BitEqual(Of(name, version)["x"]));
  return true;
}

void Add(KeptExamples& kept, const std::string& name, int64_t version) {
  kept.Add(name, std::to_string(version), Of(name, version));
}

TEST_CASE("several with one folder, opened and closed, as versions change") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    const bool memory = seed % 3 == 0;
    CacheOptions options = {
        .max_bytes = Once(random, 2) ? uint64_t{1} << 30 : 20'000,
        .folder = memory ? "" : folder.path(),
        .key = "key"};
    std::vector<std::unique_ptr<KeptExamples>> open(2);
    const auto start = [&](auto& one) {
      one = std::make_unique<KeptExamples>(options);
    };
    for (auto& one : open) start(one);
    std::map<std::string, int64_t> versions;
    int64_t found = 0;
    for (int i = 0; i < 400; ++i) {
      auto& one = open[Below(random, open.size())];
      if (Once(random, 50)) start(one);
      const std::string name = fmt::format("n{}", Below(random, 40));
      if (Once(random, 6)) ++versions[name];
      if (Has(*one, name, versions[name])) {
        ++found;
        continue;
      }
      Add(*one, name, versions[name]);
      CHECK((Has(*one, name, versions[name]) || !one->Trouble().empty()));
      CHECK(one->size() <= 40);
    }
    CHECK(found > 50);
  }
}

TEST_CASE("it does not share memory with what comes and goes") {
  KeptExamples kept(CacheOptions{});
  Example example = Of("a", 1);
  kept.Add("a", "1", example);
  example["x"].data<int64_t>()[0] = -1;
  auto found = kept.Find("a", "1");
  REQUIRE(found);
  (*found)["x"].data<int64_t>()[0] = -2;
  CHECK(Has(kept, "a", 1));
}

TEST_CASE("names and versions are not mixed up") {
  KeptExamples kept(CacheOptions{});
  kept.Add("a", "bc", Of("a", 1));
  CHECK(!kept.Find("ab", "c"));
  CHECK(!kept.Find("a", "b"));
  CHECK(!kept.Find("a", "bc"));  // another version was asked for
  kept.Add("", "", Of("", 0));
  CHECK(kept.Find("", ""));
}

TEST_CASE("what one adds another finds, later and soon") {
  const TemporaryFolder folder;
  const CacheOptions options = {.folder = folder.path(), .key = "key"};
  KeptExamples first(options), second(options);
  CHECK(first.size() == 0);
  Add(first, "a", 1);
  KeptExamples later(options);
  CHECK(later.size() == 1);
  CHECK(Has(later, "a", 1));
  KeptExamples other({.folder = folder.path(), .key = "other"});
  CHECK(!Has(other, "a", 1));
  CHECK(ErrorOf([&] { KeptExamples none({.folder = folder.path()}); }) ==
        fmt::format("KeptExamples: a cache in a folder, '{}', needs a key",
                    folder.path()));
}

TEST_CASE("a map keeps what it makes, on threads and through epochs") {
  const TemporaryFolder folder;
  for (const std::string& where : {std::string(), folder.path()}) {
    const auto kept = std::make_shared<KeptExamples>(
        CacheOptions{.folder = where, .key = "squares"});
    const auto made = std::make_shared<std::atomic<int>>(0);
    // One number may end an epoch and begin the next, on two threads at a time.
    const auto one_each = std::make_shared<std::array<std::mutex, 30>>();
    const auto fn = [=](Example& e, uint64_t) {
      const std::lock_guard alone(
          (*one_each)[static_cast<size_t>(e["x"].IntAt(0))]);
      const std::string name = std::to_string(e["x"].IntAt(0));
      auto found = kept->Find(name, "");
      if (!found) {
        ++*made;
        const int64_t x = e["x"].IntAt(0);
        found = Example{{"x", Tensor::Scalar(x * x)}};
        kept->Add(name, "", *found);
      }
      e = *found;
    };
    const Dataset squares = Numbers(30).Shuffle(30, 1).Repeat(3).MapRandom(
        1, fn, {.threads = 4, .kept = kept});
    Iterator iterator = squares.MakeIterator();
    Iterator plain = Numbers(30).Shuffle(30, 1).Repeat(3).MakeIterator();
    Example example, number;
    while (plain.Next(&number).ValueOrThrow()) {
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      const int64_t x = number["x"].IntAt(0);
      CHECK(example["x"].IntAt(0) == x * x);
    }
    CHECK(*made == 30);
    CHECK(squares.CacheTrouble().empty());
  }
}

TEST_CASE("a full disk and a killed process lose nothing but room") {
  static FaultFileSystem files;
  RegisterScheme("keptfault", files);
  using Fault = FaultFileSystem::Fault;
  int interrupted = 0;
  for (const Fault fault : {Fault::kDiskFull, Fault::kKill}) {
    for (int operation = 1; operation < 60; operation += 4) {
      CAPTURE(operation);
      const CacheOptions options = {
          .folder = fmt::format("keptfault://{}/{}", operation,
                                static_cast<int>(fault)),
          .key = "key"};
      std::optional<Dataset> dataset;
      {
        files.FailAt(files.operations() + operation, fault);
        const auto kept = std::make_shared<KeptExamples>(options);
        dataset = Numbers(1).Map([](Example&) {}, {.kept = kept});
        for (int i = 0; i < 30; ++i) {
          Add(*kept, std::to_string(i), 0);
          CHECK((Has(*kept, std::to_string(i), 0) || files.failed()));
        }
        interrupted += files.failed() ? 1 : 0;
        CHECK(dataset->CacheTrouble().empty() == !files.failed());
        dataset.reset();
      }
      files.Restart(FaultFileSystem::Loss::kNothing);
      KeptExamples again(options);
      for (int i = 0; i < 30; ++i) {
        const std::string name = std::to_string(i);
        if (!Has(again, name, 0)) Add(again, name, 0);
        CHECK(Has(again, name, 0));
        CHECK(!Has(again, name, 1));
      }
      CHECK(again.Trouble().empty());
    }
  }
  CHECK(interrupted > 20);
}

}  // namespace
}  // namespace sluice
