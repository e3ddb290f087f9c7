// Iterators that go from epoch to epoch: against a Repeat in their place.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Numbers;
using testing::Read;
using testing::Values;

TEST_CASE("epochs are the passes of a Repeat, also after a resume anywhere") {
  int64_t compared = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    testing::Generators generators(seed, /*random=*/true);
    const testing::Pipeline pipeline = generators.Make();
    CAPTURE(pipeline.text);
    const Values wanted = Read(pipeline.dataset.Repeat(3));
    Values got;
    std::vector<std::string> positions;  // before each, and at the end
    Iterator iterator = pipeline.dataset.MakeIterator();
    Example example;
    bool empty = false;
    for (int64_t epoch = 0; epoch < 3 && !empty; ++epoch) {
      CHECK(iterator.epoch() == epoch);
      for (;;) {
        positions.push_back(iterator.SavePosition());
        if (!iterator.Next(&example).ValueOrThrow()) break;
        got.push_back(testing::ValueOf(example));
      }
      positions.pop_back();
      const int64_t consumed = iterator.consumed();
      const Status status = iterator.NextEpoch();
      empty = consumed == 0;
      CHECK(status.ok() != empty);
    }
    if (empty) continue;
    REQUIRE(got == wanted);
    const auto at = static_cast<size_t>(
        generators.Draw(0, static_cast<int64_t>(positions.size()) - 1));
    CAPTURE(at);
    Iterator later = pipeline.dataset.MakeIterator();
    ThrowIfError(later.Restore(positions[at]));
    CHECK(later.SavePosition() == positions[at]);
    Values rest;
    while (later.epoch() < 3) {
      const Values epoch = Read(&later);
      rest.insert(rest.end(), epoch.begin(), epoch.end());
      ThrowIfError(later.NextEpoch());
    }
    CHECK(rest ==
          Values(wanted.begin() + static_cast<int64_t>(at), wanted.end()));
    ++compared;
  }
  CHECK(compared > 150);
}

TEST_CASE("the next epoch may be begun before this one ends") {
  const Dataset dataset = Numbers(9).Shuffle(9, 4);
  const Values passes = Read(dataset.Repeat(2));
  Iterator iterator = dataset.MakeIterator();
  Read(&iterator, 2);
  ThrowIfError(iterator.NextEpoch());
  CHECK(Read(&iterator) == Values(passes.begin() + 9, passes.end()));
}

TEST_CASE("an epoch of less than one batch has begun all the same") {
  const Dataset three = Numbers(3).Filter([](const Example&) { return true; });
  Iterator ones = three.Batch(1).MakeIterator();
  CHECK(Read(&ones) == Values{0, 1, 2});
  Iterator nines = three.Batch(9).MakeIterator();
  ThrowIfError(nines.Restore(ones.SavePosition()));
  CHECK(nines.consumed() > 0);
  CHECK(Read(&nines).empty());
  ThrowIfError(nines.NextEpoch());
  CHECK(nines.consumed() == 0);
  CHECK(Read(&nines) == Values{0});
  // Where it has not begun it is empty.
  Iterator none =
      Numbers(3).Filter([](const Example&) { return false; }).MakeIterator();
  CHECK(Read(&none).empty());
  ThrowIfError(none.Restore(none.SavePosition()));
  CHECK(none.NextEpoch().code() == Code::kDataLoss);
}

TEST_CASE("an epoch that cannot be begun is begun by who goes on") {
  for (const bool counted : {false, true}) {
    CAPTURE(counted);
    const auto fails = std::make_shared<std::atomic<bool>>(true);
    Dataset numbers = datasets::FromGenerator([fails](uint64_t epoch) {
      if (epoch == 1 && fails->exchange(false)) {
        throw Error(Code::kUnavailable, "no file");
      }
      const auto from = static_cast<int64_t>(10 * epoch);
      return std::make_unique<testing::CountUp>(from, from + 5);
    });
    if (!counted) {
      numbers = numbers.Filter(
          [](const Example& e) { return testing::ValueOf(e) % 5 != 1; });
    }
    numbers = numbers.Shuffle(3, 7);
    Iterator iterator = numbers.MakeIterator();
    Values got = Read(&iterator);
    for (int i = 0; i < 2; ++i) {
      CHECK(iterator.NextEpoch().message() == "no file");
    }
    Iterator later = numbers.MakeIterator();
    const Status restored = later.Restore(iterator.SavePosition());
    REQUIRE_MESSAGE(restored.ok(), restored.message());
    while (later.epoch() < 2) {
      const Values rest = Read(&later);
      got.insert(got.end(), rest.begin(), rest.end());
      ThrowIfError(later.NextEpoch());
    }
    CHECK(got == Read(numbers.Repeat(2)));
  }
}

TEST_CASE("an error stays, and positions without an epoch are of the first") {
  Iterator broken = Numbers(3)
                        .Map([](Example& e) {
                          if (testing::ValueOf(e) == 1) {
                            throw Error(Code::kDataLoss, "one");
                          }
                        })
                        .MakeIterator();
  Example example;
  REQUIRE(*broken.Next(&example));
  CHECK_FALSE(broken.Next(&example).ok());
  CHECK(broken.NextEpoch().message() == "one");

  Iterator numbers = Numbers(3).MakeIterator();
  REQUIRE(*numbers.Next(&example));
  const std::string first = numbers.SavePosition();
  CHECK(first.find("epoch") == std::string::npos);
  ThrowIfError(numbers.NextEpoch());
  CHECK(numbers.SavePosition().find("\"epoch\":1") != std::string::npos);
  ThrowIfError(numbers.Restore(first));
  CHECK(numbers.epoch() == 0);
  CHECK(Read(&numbers) == Values{1, 2});
  std::string negative = first;
  negative.insert(1, "\"epoch\":-1,");
  CHECK(numbers.Restore(negative).code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
