// Dataset::Cache: what it keeps it must not make again, and never anything
// else may come out of it.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Numbers;
using testing::TemporaryFolder;

// i -> i * i for 0 to n - 1, and how many were made.
struct Squares {
  explicit Squares(int64_t n)
      : dataset(datasets::FromFunction(n, [calls = calls](int64_t i) {
          ++*calls;
          return Example{{"x", Tensor::Scalar(i * i)}};
        })) {}
  std::shared_ptr<std::atomic<int64_t>> calls =
      std::make_shared<std::atomic<int64_t>>(0);
  Dataset dataset;
};

std::vector<int64_t> Read(Iterator* iterator, size_t most = SIZE_MAX) {
  std::vector<int64_t> values;
  Example example;
  while (values.size() < most && iterator->Next(&example).ValueOrThrow()) {
    for (const int64_t x : example["x"].values<int64_t>()) values.push_back(x);
  }
  return values;
}

std::vector<int64_t> Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

TEST_CASE("each example is made once, in memory and in a folder") {
  const TemporaryFolder dir;
  for (const std::string& folder : {std::string(), dir.path()}) {
    CAPTURE(folder);
    const Squares squares(50);
    const CacheOptions options = {.folder = folder, .key = "squares"};
    const Dataset cached = squares.dataset.Cache(options);
    CHECK(cached.cardinality() == 50);
    const std::vector<int64_t> plain = Read(squares.dataset);
    *squares.calls = 0;
    for (int i = 0; i < 3; ++i) CHECK(Read(cached) == plain);
    CHECK(Read(cached.Repeat(2)).size() == 100);
    CHECK(Read(cached.Shuffle(50, 1).Repeat(2)).size() == 100);
    CHECK(*squares.calls == 50);
    // Another process of that folder, or the same later, finds them.
    const Squares again(50);
    CHECK(Read(again.dataset.Cache(options)) == plain);
    CHECK(*again.calls == (folder.empty() ? 50 : 0));
  }
}

TEST_CASE("other maps and other sources are not mixed up in a folder") {
  const TemporaryFolder dir;
  const auto read = [&](int64_t n, int64_t factor, const std::string& key) {
    return Read(Numbers(n)
                    .Map([factor](Example& e) {
                      e = {{"x", Tensor::Scalar(e["x"].IntAt(0) * factor)}};
                    })
                    .Cache({.folder = dir.path(), .key = key}));
  };
  CHECK(read(3, 2, "double") == std::vector<int64_t>{0, 2, 4});
  CHECK(read(3, 3, "triple") == std::vector<int64_t>{0, 3, 6});
  CHECK(read(4, 3, "triple") == std::vector<int64_t>{0, 3, 6, 9});
  CHECK(read(3, 2, "double") == std::vector<int64_t>{0, 2, 4});
}

TEST_CASE("a cache filled in any order by several iterators") {
  std::mt19937 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const int64_t n = draw(0, 40);
    const TemporaryFolder dir;
    const Squares squares(n);
    const std::vector<int64_t> plain = Read(squares.dataset);
    const bool filtered = draw(0, 1) == 1;
    const Dataset input =
        filtered ? squares.dataset.Filter([](const Example&) { return true; })
                 : squares.dataset;
    CacheOptions options;
    if (draw(0, 3) == 0) options = {.folder = dir.path(), .key = "squares"};
    // Sometimes there is no room for all.
    if (draw(0, 1) == 0) options.max_bytes = static_cast<uint64_t>(n * 4 + 1);
    const Dataset cached = input.Cache(options);
    for (int i = 0; i < 8; ++i) {
      const auto stop = static_cast<size_t>(draw(0, n));
      switch (draw(0, 3)) {
        case 0: {  // reads a part, another goes on
          Iterator part = cached.MakeIterator();
          CHECK(Read(&part, stop).size() == stop);
          Iterator rest = cached.MakeIterator();
          REQUIRE(rest.Restore(part.SavePosition()).ok());
          CHECK(Read(&rest) ==
                std::vector<int64_t>(plain.begin() + static_cast<int64_t>(stop),
                                     plain.end()));
          break;
        }
        case 1: {  // one worker's part
          const int64_t rank = draw(0, 2);
          CHECK(Read(cached.Batch(4).Share(rank, 3)) ==
                Read(squares.dataset.Batch(4).Share(rank, 3)));
          break;
        }
        case 2: {
          std::vector<int64_t> odd;
          for (size_t k = 1; k < plain.size(); k += 2) odd.push_back(plain[k]);
          CHECK(Read(cached.Shard(1, 2)) == odd);
          break;
        }
        default:
          CHECK(Read(cached) == plain);
      }
    }
  }
}

TEST_CASE("maps behind a cache may change its examples in place") {
  const Dataset cached = Numbers(5).Cache().Map(
      [](Example& example) { example["x"].data<int64_t>()[0] += 100; });
  const std::vector<int64_t> wanted = {100, 101, 102, 103, 104};
  for (int i = 0; i < 3; ++i) CHECK(Read(cached) == wanted);
}

TEST_CASE("what differs from epoch to epoch cannot be cached") {
  const auto refused = [](const Dataset& dataset) {
    return Contains(ErrorOf([&] { dataset.Cache(); }),
                    "Shuffle, MapRandom and Choose must come after");
  };
  CHECK(refused(Numbers(5).Shuffle(5, 1)));
  CHECK(refused(Numbers(5).MapRandom(1, [](Example&, uint64_t) {})));
  CHECK(refused(Numbers(5).MapRandom(1, [](Example&, uint64_t) {}).Take(3)));
  CHECK(refused(datasets::Choose(std::vector{Numbers(2), Numbers(2)},
                                 std::vector{1.0, 1.0}, 1)));
  CHECK(refused(datasets::Zip(std::vector{Numbers(2).Shuffle(2, 1)})));
  CHECK(refused(datasets::FromGenerator(
      [](uint64_t) -> std::unique_ptr<Generator> { return nullptr; })));
  Numbers(5).Cache().Shuffle(5, 1);
  // What Interleave opens is known when it does.
  const auto open = [](const Example&) {
    return Numbers(3).FlatMap(
        [](const Example&) { return Numbers(2).Shuffle(2, 1); });
  };
  CHECK(Read(Numbers(2).FlatMap(open)).size() == 12);
  CHECK(Contains(ErrorOf([&] { Read(Numbers(2).FlatMap(open).Cache()); }),
                 "Shuffle, MapRandom and Choose must come after"));
  CHECK(Contains(ErrorOf([] { Numbers(5).Cache({.folder = "somewhere"}); }),
                 "needs a key"));
  CHECK(Contains(ErrorOf([] { Numbers(5).Cache({.max_bytes = 0}); }),
                 "room for 0 bytes"));
}

TEST_CASE("how many there are is kept, too") {
  const TemporaryFolder dir;
  for (const bool again : {false, true}) {
    const Squares squares(40);
    const Dataset cached =
        squares.dataset
            .Filter([](const Example& e) { return e["x"].IntAt(0) % 2 == 0; })
            .Cache({.folder = dir.path(), .key = "even squares"});
    CHECK(Read(cached).size() == 20);
    CHECK(Read(cached.Batch(3).Share(1, 3)).size() == 7);
    CHECK(*squares.calls == (again ? 0 : 40));
  }
}

TEST_CASE("a cache does not hide that a size is not true") {
  const auto message = [](const Dataset& dataset) {
    return ErrorOf([&] { Read(dataset); });
  };
  CHECK(message(Numbers(10).ExpectSize(5).Cache()) ==
        "the input has more than the 5 elements that were expected");
  CHECK(message(Numbers(4).ExpectSize(5).Cache()) ==
        "the input has 4 elements, where 5 were expected");
}

// Which its contract forbids, but which must not pass without a word.
TEST_CASE("an input that has more the second time is an error") {
  const auto most = std::make_shared<std::atomic<int64_t>>(4);
  const Dataset cached = Numbers(10)
                             .Filter([most](const Example& example) {
                               return example["x"].IntAt(0) < *most;
                             })
                             .Cache({.max_bytes = 1});
  CHECK(Read(cached).size() == 4);
  *most = 6;
  CHECK(ErrorOf([&] { Read(cached); }) ==
        "Cache: its input has more than the 4 elements of before");
}

TEST_CASE("what is known to be empty is not read again") {
  const Squares squares(10);
  const Dataset nothing =
      squares.dataset.Filter([](const Example&) { return false; }).Cache();
  for (int i = 0; i < 3; ++i) CHECK(Read(nothing).empty());
  CHECK(*squares.calls == 10);
}

TEST_CASE("why not all is kept can be asked") {
  const Dataset small = Numbers(50).Cache({.max_bytes = 2000}).Batch(5);
  CHECK(small.CacheTrouble().empty());
  CHECK(Read(small).size() == 50);
  CHECK(!small.CacheTrouble().empty());
  const Dataset zipped =
      datasets::Zip(std::vector{Numbers(50).Cache({.max_bytes = 9})});
  CHECK(Read(zipped).size() == 50);
  CHECK(!zipped.CacheTrouble().empty());
}

TEST_CASE("an error is not kept") {
  const auto broken = std::make_shared<std::atomic<bool>>(true);
  const Dataset cached = Numbers(4)
                             .Map([broken](Example& example) {
                               if (*broken && example["x"].IntAt(0) == 2) {
                                 throw Error(Code::kUnavailable, "two");
                               }
                             })
                             .Cache();
  CHECK(ErrorOf([&] { Read(cached); }) == "two");
  *broken = false;
  CHECK(Read(cached) == std::vector<int64_t>{0, 1, 2, 3});
}

}  // namespace
}  // namespace sluice
