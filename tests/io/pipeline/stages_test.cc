// Each step before Batch by itself: its order, what it promises and refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Add;
using testing::Contains;
using testing::CountUp;
using testing::ErrorOf;
using testing::Numbers;
using testing::Read;
using testing::ValueOf;
using testing::Values;

// The example of tf.data's documentation of Dataset.interleave.
TEST_CASE("Interleave has tf.data's order") {
  const Dataset dataset =
      Add(Numbers(5), 1)
          .Interleave(
              [](const Example& example) {
                return datasets::FromTensors(
                           {{"x", example["x"].Reshaped({1})}})
                    .Repeat(6);
              },
              2, 4);
  CHECK(Read(dataset) == Values{1, 1, 1, 1, 2, 2, 2, 2, 1, 1,  //
                                2, 2, 3, 3, 3, 3, 4, 4, 4, 4,  //
                                3, 3, 4, 4, 5, 5, 5, 5, 5, 5});
}

TEST_CASE("random steps differ among the datasets that Interleave opens") {
  const Dataset dataset = Numbers(2).FlatMap(
      [](const Example&) { return Numbers(30).Shuffle(30, 1); });
  const Values two = Read(dataset.Repeat(2));
  REQUIRE(two.size() == 120);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < i; ++k) {
      CHECK_FALSE(std::equal(two.begin() + i * 30, two.begin() + i * 30 + 30,
                             two.begin() + k * 30));
    }
  }
}

TEST_CASE("Choose takes all, each as often as it weighs") {
  const auto of = [](int64_t n, int64_t from) { return Add(Numbers(n), from); };
  const Dataset chosen = datasets::Choose(
      std::vector{of(6000, 0), of(3000, 10'000), of(30'000, 20'000)},
      std::vector{0.2, 0.1, 0.7}, 4);
  CHECK(chosen.cardinality() == 39'000);
  CHECK(chosen.examples_per_epoch() == 39'000);
  const Values once = [&] {
    Iterator iterator = chosen.MakeIterator();
    return Read(&iterator, INT64_MAX);
  }();
  REQUIRE(once.size() == 39'000);
  // Each input's examples come once and in order.
  Values sorted = once;
  std::stable_sort(sorted.begin(), sorted.end(), [](int64_t a, int64_t b) {
    return a / 10'000 < b / 10'000;
  });
  std::stable_sort(sorted.begin(), sorted.end(), [](int64_t a, int64_t b) {
    return std::min<int64_t>(a / 10'000, 2) < std::min<int64_t>(b / 10'000, 2);
  });
  CHECK(std::is_sorted(sorted.begin(), sorted.end()));
  // Of the first n, six standard deviations around n p.
  const double n = 20'000;
  const double p = 0.2;
  const auto firsts =
      static_cast<double>(std::count_if(once.begin(), once.begin() + 20'000,
                                        [](int64_t x) { return x < 10'000; }));
  CHECK(std::abs(firsts - n * p) < 6 * std::sqrt(n * p * (1 - p)));
  // Another epoch draws otherwise.
  const Values twice = [&] {
    Iterator iterator = chosen.Repeat(2).MakeIterator();
    return Read(&iterator, INT64_MAX);
  }();
  REQUIRE(twice.size() == 78'000);
  CHECK_FALSE(std::equal(once.begin(), once.end(), twice.begin() + 39'000));
}

TEST_CASE("what a shuffle holds is not mapped yet") {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const Dataset dataset =
      datasets::FromFunction(1000,
                             [calls](int64_t i) {
                               ++*calls;
                               return Example{{"x", Tensor::Scalar(i)}};
                             })
          .Map([](Example&) {})
          .Shuffle(1000, 1)
          .Repeat()
          .Take(1500)
          .Shard(1, 2);
  Iterator iterator = dataset.MakeIterator();
  CHECK(Read(&iterator, 20).size() == 20);
  CHECK(*calls == 20);
  CHECK(Read(dataset).size() == 750);
}

TEST_CASE("cardinality where it is not known") {
  const Dataset filtered =
      Numbers(9).Filter([](const Example& e) { return ValueOf(e) < 4; });
  CHECK(filtered.cardinality() == kUnknownCardinality);
  CHECK(filtered.examples_per_epoch() == kUnknownCardinality);
  CHECK(filtered.Batch(2).cardinality() == kUnknownCardinality);
  CHECK(filtered.Repeat().cardinality() == kInfinite);
  CHECK(filtered.Repeat(2).cardinality() == kUnknownCardinality);
  CHECK(filtered.Repeat(0).cardinality() == 0);
  CHECK(filtered.Take(2).cardinality() == kUnknownCardinality);
  CHECK(filtered.Repeat().Take(6).cardinality() == 6);
  CHECK(Read(filtered.Repeat().Take(6)) == Values{0, 1, 2, 3, 0, 1});
  CHECK(Numbers(0).Filter([](const Example&) { return true; }).cardinality() ==
        0);
  const Dataset expected = filtered.ExpectSize(4);
  CHECK(expected.cardinality() == 4);
  CHECK(expected.Batch(3).cardinality() == 2);
  CHECK(Read(expected.Repeat(2)).size() == 8);
  const Dataset endless =
      datasets::Concatenate(std::vector{Numbers(2), Numbers(3).Repeat()});
  CHECK(endless.cardinality() == kInfinite);
  const Dataset zipped = datasets::Zip(
      std::vector{Numbers(3).Repeat(), Numbers(4).Map([](Example& e) {
                    e = {{"y", e["x"]}};
                  })});
  CHECK(zipped.cardinality() == 4);
  // All that comes is one pass, whatever repeats in it.
  CHECK(zipped.examples_per_epoch() == 4);
  CHECK(datasets::Concatenate(std::vector{Numbers(2).Repeat(3), Numbers(4)})
            .examples_per_epoch() == 10);
  // Nothing passes: no pass has anything, so that it ends.
  CHECK(Read(Numbers(3).Filter([](const Example&) { return false; }).Repeat())
            .empty());
}

TEST_CASE("a size that is not true is an error") {
  const auto message = [](const Dataset& dataset) {
    return ErrorOf([&] { Read(dataset); });
  };
  const Dataset four =
      Numbers(9).Filter([](const Example& e) { return ValueOf(e) < 4; });
  CHECK(message(four.ExpectSize(5)) ==
        "the input has 4 elements, where 5 were expected");
  CHECK(message(four.ExpectSize(3)) ==
        "the input has more than the 3 elements that were expected");
  CHECK(message(four.ExpectSize(5).Shard(4, 5).Repeat(2)) ==
        "the input has 4 elements, where 5 were expected");
  const auto make = [](uint64_t) { return std::make_unique<CountUp>(0, 4); };
  CHECK(Contains(message(datasets::FromGenerator(make, {.size = 6})),
                 "has 4 elements, where 6"));
}

TEST_CASE("what the user's functions throw comes out of Next") {
  const auto five = [](const Example& example) {
    if (ValueOf(example) == 5) throw Error(Code::kDataLoss, "five");
    return true;
  };
  CHECK(ErrorOf([&] { Read(Numbers(9).Filter(five)); }) == "five");
  CHECK(ErrorOf([&] {
          Read(Numbers(9).FlatMap([&](const Example& example) {
            five(example);
            return Numbers(2);
          }));
        }) == "five");
  CHECK(ErrorOf([] {
          Read(datasets::FromFunction(3, [](int64_t i) -> Example {
            throw Error(Code::kNotFound, "number " + std::to_string(i));
          }));
        }) == "number 0");
  CHECK(ErrorOf([] {
          Read(datasets::FromGenerator(
              [](uint64_t) -> std::unique_ptr<Generator> {
                throw Error(Code::kNotFound, "no generator");
              }));
        }) == "no generator");
  CHECK(Contains(ErrorOf([] {
                   Read(datasets::Zip(std::vector{Numbers(3), Numbers(3)}));
                 }),
                 "two datasets have a tensor 'x'"));
}

TEST_CASE("a position fits no pipeline with other steps") {
  const Dataset even =
      Numbers(12).Filter([](const Example& e) { return ValueOf(e) % 2 == 0; });
  const auto add_key = [](Example&, uint64_t) {};
  const std::vector<Dataset> pipelines = {
      even, even.Cache(), even.MapRandom(1, add_key), even.ExpectSize(6),
      Numbers(12).MapRandom(1, add_key).Filter([](const Example&) {
        return true;
      })};
  for (size_t i = 0; i < pipelines.size(); ++i) {
    Iterator saved = pipelines[i].MakeIterator();
    REQUIRE(Read(&saved, 2).size() == 2);
    for (size_t k = 0; k < pipelines.size(); ++k) {
      CAPTURE(i);
      CAPTURE(k);
      Iterator other = pipelines[k].MakeIterator();
      CHECK(other.Restore(saved.SavePosition()).ok() == (i == k));
    }
  }
}

TEST_CASE("where batches are reordered, their size may not change") {
  const auto all = [](const Example&) { return true; };
  for (const bool counted : {false, true}) {
    const Dataset numbers = counted ? Numbers(10) : Numbers(10).Filter(all);
    for (const int step : {0, 1, 2, 3, 4}) {
      CAPTURE(step);
      const auto dataset = [&](int64_t n) {
        const Dataset batches = numbers.Batch(n);
        switch (step) {
          case 0:
            return batches.Shuffle(4, 1);
          case 1:
            return batches.Repeat(3);
          case 2:
            return batches.Take(3);
          case 3:
            return batches.Map([](Example&) {}).Shard(0, 2);
          default:
            return batches.Prefetch(1);
        }
      };
      Iterator saved = dataset(2).MakeIterator();
      Example batch;
      REQUIRE(saved.Next(&batch).ValueOrThrow());
      const std::string position = saved.SavePosition();
      CHECK(dataset(2).MakeIterator().Restore(position).ok());
      CHECK(dataset(5).MakeIterator().Restore(position).ok() == (step == 4));
    }
  }
}

TEST_CASE("behind an error a run goes on at what failed") {
  const auto fails = std::make_shared<std::atomic<bool>>(true);
  const auto check = [fails](const Example& example) {
    if (*fails && ValueOf(example) == 3)
      throw Error(Code::kUnavailable, "three");
    return true;
  };
  const auto map = [check](Example& example) { check(example); };
  const std::vector<Dataset> pipelines = {
      Numbers(6).Filter(check),
      Numbers(6).FlatMap([check](const Example& example) {
        check(example);
        return Add(Numbers(1), ValueOf(example));
      }),
      Numbers(6).Map(map),
      Numbers(6).Map(map, {.threads = 3}),
      Numbers(6).Filter(check).Prefetch(2),
      Numbers(6).Filter([](const Example&) { return true; }).Map(map),
      Numbers(6).Map(map).Cache()};
  for (const Dataset& dataset : pipelines) {
    *fails = true;
    Iterator iterator = dataset.MakeIterator();
    CHECK(Read(&iterator, 3) == Values{0, 1, 2});
    Example example;
    for (int i = 0; i < 2; ++i) {
      CHECK(iterator.Next(&example).status().message() == "three");
    }
    const std::string position = iterator.SavePosition();
    *fails = false;
    REQUIRE(iterator.Restore(position).ok());
    CHECK(Read(&iterator) == Values{3, 4, 5});
  }
}

// Has `size` examples, of which it skips what it likes.
class Sloppy : public CountUp {
 public:
  Sloppy(int64_t size, int64_t skips) : CountUp(0, size), skips_(skips) {}
  int64_t Skip(int64_t) override { return skips_; }

 private:
  const int64_t skips_;
};

TEST_CASE(
    "a generator that skips more than it was asked to, or less than none") {
  for (const int64_t skips : {-1, 4}) {
    const Dataset dataset = datasets::FromGenerator(
        [skips](uint64_t) { return std::make_unique<Sloppy>(9, skips); });
    CHECK(Contains(ErrorOf([&] { Read(dataset.Shard(3, 5)); }),
                   "a generator was to skip 3 examples, and says it has " +
                       std::to_string(skips)));
  }
}

TEST_CASE("a begin that fails is an error until one does not") {
  const auto fails = std::make_shared<std::atomic<bool>>(false);
  const Dataset dataset = datasets::FromGenerator([fails](uint64_t) {
    if (*fails) throw Error(Code::kUnavailable, "no file");
    return std::make_unique<CountUp>(0, 5);
  });
  Iterator iterator = dataset.MakeIterator();
  CHECK(Read(&iterator, 2) == Values{0, 1});
  const std::string position = iterator.SavePosition();
  CHECK(Read(&iterator, 1) == Values{2});
  *fails = true;
  CHECK(iterator.Restore(position).message() == "no file");
  Example example;
  CHECK(iterator.Next(&example).status().message() == "no file");
  *fails = false;
  CHECK(iterator.Next(&example).status().message() == "no file");
  REQUIRE(iterator.Restore(position).ok());
  CHECK(Read(&iterator) == Values{2, 3, 4});
}

TEST_CASE("a first pass that opens nothing is not the last") {
  const auto part = [](const Example&) {
    return datasets::FromGenerator([](uint64_t epoch) {
      return std::make_unique<CountUp>(0, epoch % 2 == 0 ? 1 : 0);
    });
  };
  Iterator iterator = Numbers(1).FlatMap(part).Repeat().MakeIterator();
  CHECK(Read(&iterator, 20) == Values(20, 0));
}

// Says that it has ended where it has, and then begins anew.
class Restless : public Generator {
 public:
  bool Next(Example* example) override {
    *example = {{"x", Tensor::Scalar(next_)}};
    next_ = (next_ + 1) % 4;
    return next_ != 0;
  }

 private:
  int64_t next_ = 0;
};

TEST_CASE("generators: none, one that ends, passes that are empty") {
  const Dataset restless = datasets::FromGenerator(
      [](uint64_t) { return std::make_unique<Restless>(); });
  Iterator batches = restless.Batch(2).MakeIterator();
  Example batch;
  for (const int64_t rows : {2, 1}) {
    REQUIRE(batches.Next(&batch).ValueOrThrow());
    CHECK(batch["x"].elements() == rows);
  }
  for (int i = 0; i < 3; ++i) CHECK(!batches.Next(&batch).ValueOrThrow());

  CHECK(Contains(
      ErrorOf([] {
        Read(datasets::FromGenerator(
            [](uint64_t) -> std::unique_ptr<Generator> { return nullptr; }));
      }),
      "there is no generator"));
  const auto three = [](uint64_t) { return std::make_unique<CountUp>(0, 3); };
  const Dataset endless = datasets::FromGenerator(three, {.size = kInfinite});
  CHECK(ErrorOf([&] { Read(endless.Repeat(2)); }) ==
        "the generator ended behind 3 examples, but was said not to");
  CHECK(endless.Take(2).examples_per_epoch() == 2);
  CHECK(Read(endless.Take(2)) == Values{0, 1});

  // Those of odd epochs are empty, and none is made that is not needed.
  const auto made = std::make_shared<std::atomic<int>>(0);
  const Dataset some = datasets::FromGenerator([made](uint64_t epoch) {
    ++*made;
    return std::make_unique<CountUp>(0, epoch % 2 == 0 ? 2 : 0);
  });
  CHECK(Read(some.Repeat(3)) == Values{0, 1, 0, 1});
  CHECK(*made == 3);
  Iterator for_ever = some.Repeat().MakeIterator();
  CHECK(Read(&for_ever, 7) == Values{0, 1, 0, 1, 0, 1, 0});
}

TEST_CASE("an iterator ends while nothing passes a filter for ever") {
  const Dataset numbers = Numbers(100).Repeat();
  const auto once = [](int64_t limit) {
    const auto left = std::make_shared<std::atomic<int64_t>>(limit);
    return [left](const Example&) { return (*left)-- > 0; };
  };
  const auto none = [](const Example&) { return Numbers(0); };
  for (const Dataset& dataset :
       {numbers.Filter(once(3)).Prefetch(4),
        numbers.Filter(once(3)).Map([](Example&) {}, {.threads = 2}),
        numbers.Filter(once(3)).Prefetch(2).Filter(once(3)).Prefetch(1),
        datasets::Concatenate(std::vector{Numbers(1), numbers.FlatMap(none)})
            .Prefetch(3)}) {
    Iterator iterator = dataset.MakeIterator();
    Example example;
    CHECK(iterator.Next(&example).ValueOrThrow());
  }
  CHECK(numbers.Filter(once(1)).cardinality() == kInfinite);
  CHECK(numbers.Filter(once(1)).Take(0).cardinality() == 0);
}

TEST_CASE("numbers that are too large for what they are multiplied with") {
  const Dataset most = Numbers(3).Repeat(INT64_MAX / 2);
  CHECK(most.cardinality() == INT64_MAX);
  CHECK(most.Batch(2).cardinality() == INT64_MAX / 2 + 1);
  Iterator iterator = most.Shard(1, 2).MakeIterator();
  CHECK(Read(&iterator, 3) == Values{1, 0, 2});
  const std::string position = iterator.SavePosition();
  CHECK(iterator.Restore(position).ok());
  CHECK(Read(&iterator, 3) == Values{1, 0, 2});
  CHECK(Contains(ErrorOf([] { Numbers(3).Batch(INT64_MAX); }),
                 "a size of 1 to 2^53"));
}

TEST_CASE("arguments of steps that can never work") {
  const Dataset batches = Numbers(9).Batch(3);
  const auto all = [](const Example&) { return true; };
  const auto two = [](const Example&) { return Numbers(2); };
  const auto refused = [](const std::function<void()>& fn) {
    return ErrorOf(fn);
  };
  CHECK(Contains(refused([&] { batches.Filter(all); }),
                 "Filter: it must come before Batch"));
  CHECK(Contains(refused([&] { batches.Interleave(two, 2); }),
                 "must come before Batch"));
  CHECK(Contains(refused([&] { batches.Cache(); }), "must come before Batch"));
  CHECK(Contains(refused([&] { datasets::Zip(std::vector{batches}); }),
                 "must come before Batch"));
  CHECK(Contains(refused([&] { Numbers(3).Interleave(two, 0); }),
                 "a cycle of 1 to"));
  CHECK(Contains(refused([&] { Numbers(3).Interleave(two, 1, 0); }),
                 "a positive block"));
  CHECK(Contains(refused([] { Numbers(3).ExpectSize(-1); }),
                 "a number of elements"));
  CHECK(Contains(refused([] { datasets::Concatenate({}); }),
                 "one dataset at least"));
  CHECK(Contains(
      refused([] {
        datasets::Choose(std::vector{Numbers(2)}, std::vector{1.0, 2.0}, 0);
      }),
      "1 weights, one for each"));
  for (const double weight : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    CHECK(Contains(refused([&] {
                     datasets::Choose(std::vector{Numbers(2)},
                                      std::vector{weight}, 0);
                   }),
                   "wanted positive ones"));
  }
  // Only when it is opened is it known what Interleave opens.
  CHECK(Contains(refused([&] {
                   Read(Numbers(2).FlatMap(
                       [&](const Example&) { return Numbers(9).Batch(3); }));
                 }),
                 "must come before Batch"));
  const Dataset passing = Numbers(3).Map(
      [](Example&) {}, {.bad = std::make_shared<BadExamples>(1)});
  CHECK(Contains(refused([&] { passing.Filter(all); }),
                 "a map that may pass over bad examples comes before Filter"));
  // Behind a Filter such a map may be.
  CHECK(Read(Numbers(3).Filter(all).Map(
            [](Example& example) {
              if (ValueOf(example) == 1) {
                throw Error(Code::kDataLoss, "bad");
              }
            },
            {.bad = std::make_shared<BadExamples>(1)})) == Values{0, 2});
}

}  // namespace
}  // namespace sluice
