// Dataset::Skip: all but the first elements.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Numbers;
using testing::Read;
using testing::Values;

// Read one by one, so that nothing downstream is done on row numbers.
Dataset Generic(int64_t n) {
  return Numbers(n).Map([](Example&) {});
}
// Whose size is not known, so that positions are marks.
Dataset Counted(int64_t n) {
  return datasets::FromGenerator(
      [n](uint64_t) { return std::make_unique<testing::CountUp>(0, n); },
      {.same_in_every_epoch = true});
}

// The examples in the batches.
Values Rows(const Dataset& batches) {
  Values rows;
  Iterator iterator = batches.MakeIterator();
  Example batch;
  while (iterator.Next(&batch).ValueOrThrow()) {
    const auto x = batch["x"].values<int64_t>();
    rows.insert(rows.end(), x.begin(), x.end());
  }
  return rows;
}

TEST_CASE("skip leaves out the first elements") {
  for (const Dataset& ten : {Numbers(10), Generic(10), Counted(10)}) {
    CHECK(Read(ten.Skip(7)) == Values{7, 8, 9});
    CHECK(Read(ten.Skip(0)) == Read(ten));
    CHECK(Read(ten.Skip(10)).empty());
    CHECK(Read(ten.Skip(int64_t{1} << 60)).empty());
    CHECK(Read(ten.Skip(8).Repeat(2)) == Values{8, 9, 8, 9});
    CHECK(Read(ten.Repeat(2).Skip(18)) == Values{8, 9});
    CHECK(Read(ten.Skip(3).Skip(4)) == Values{7, 8, 9});
    CHECK(Read(ten.Skip(4).Take(2)) == Values{4, 5});
    CHECK(Read(ten.Take(5).Skip(2)) == Values{2, 3, 4});
    CHECK(Read(ten.Skip(4).Shard(1, 3)) == Values{5, 8});
    CHECK(Read(ten.Shard(1, 3).Skip(1)) == Values{4, 7});
    CHECK(Read(ten.Repeat().Skip(25).Take(3)) == Values{5, 6, 7});
    CHECK(Rows(ten.Batch(4).Skip(1)) == Values{4, 5, 6, 7, 8, 9});
    CHECK(Rows(ten.Skip(1).Batch(4).Skip(1)) == Values{5, 6, 7, 8, 9});
    CHECK(Read(ten.Skip(20).Repeat()).empty());
  }
  // What training took, and what is left of it.
  const Dataset all = Numbers(10).Shuffle(10, 3);
  Values both = Read(all.Take(6));
  const Values rest = Read(all.Skip(6));
  both.insert(both.end(), rest.begin(), rest.end());
  CHECK(both == Read(all));
}

TEST_CASE("skipping far into what never ends") {
  // 10 elements, of which 2^60 leaves remainder 6.
  const Dataset far = Numbers(10).Repeat().Skip(int64_t{1} << 60);
  CHECK(Read(far.Take(3)) == Values{6, 7, 8});
  // No element has so large a number.
  constexpr int64_t kFarthest = INT64_MAX / 2;
  const Dataset beyond =
      Numbers(10).Repeat().Skip(kFarthest).Skip(kFarthest).Skip(kFarthest);
  CHECK(Read(beyond.Take(3)).empty());
  CHECK(Read(far.Shard(INT64_MAX - 2, INT64_MAX)).empty());
}

TEST_CASE("how many elements and examples skip leaves") {
  const Dataset d = Numbers(10);
  CHECK(d.Skip(4).cardinality() == 6);
  CHECK(d.Skip(4).examples_per_epoch() == 6);
  CHECK(d.Skip(40).cardinality() == 0);
  CHECK(d.Skip(40).examples_per_epoch() == 0);
  CHECK(d.Skip(4).Repeat().examples_per_epoch() == 6);
  CHECK(d.Batch(4).Skip(1).cardinality() == 2);
  CHECK(d.Batch(4).Skip(1).examples_per_epoch() == 6);
  CHECK(d.Batch(4).Skip(2).examples_per_epoch() == 2);
  CHECK(d.Batch(4).Skip(3).examples_per_epoch() == 0);
  CHECK(d.Batch(4).Skip(1).batch_size() == 4);
  // Of several passes a pass is as long as ever, if as much is left.
  CHECK(d.Repeat().Skip(4).cardinality() == kInfinite);
  CHECK(d.Repeat().Skip(4).examples_per_epoch() == 10);
  CHECK(d.Repeat(3).Skip(4).cardinality() == 26);
  CHECK(d.Repeat(3).Skip(4).examples_per_epoch() == 10);
  CHECK(d.Repeat(3).Skip(24).examples_per_epoch() == 6);
  CHECK(Counted(10).Skip(2).cardinality() == kUnknownCardinality);
  CHECK(Counted(10).Skip(2).examples_per_epoch() == kUnknownCardinality);
  CHECK(Counted(10).Repeat().Skip(2).cardinality() == kInfinite);
}

TEST_CASE("positions behind a skip") {
  for (const Dataset& dataset :
       {Numbers(20).Skip(5), Generic(20).Skip(5).Repeat(2).Shuffle(4, 1),
        Counted(20).Skip(5), Counted(9).Repeat(3).Skip(12),
        Numbers(20).Shuffle(20, 1).Skip(5).Repeat(2)}) {
    const Values whole = Read(dataset);
    REQUIRE(whole.size() >= 15);
    Iterator iterator = dataset.MakeIterator();
    for (size_t i = 0; i <= whole.size(); ++i) {
      const std::string position = iterator.SavePosition();
      Iterator resumed = dataset.MakeIterator();
      ThrowIfError(resumed.Restore(position));
      CHECK(resumed.SavePosition() == position);
      CHECK(Read(&resumed) ==
            Values(whole.begin() + static_cast<int64_t>(i), whole.end()));
      Example element;
      (void)iterator.Next(&element).ValueOrThrow();
    }
  }
  // None of another number.
  const std::string position = Numbers(9).Skip(2).MakeIterator().SavePosition();
  Iterator other = Numbers(9).Skip(3).MakeIterator();
  CHECK(other.Restore(position).code() == Code::kInvalidArgument);
  // Nothing skipped is nothing added.
  CHECK(Numbers(9).Skip(0).MakeIterator().SavePosition() ==
        Numbers(9).MakeIterator().SavePosition());
}

TEST_CASE("workers share what is behind a skip") {
  const Dataset batches = Numbers(23).Batch(6).Skip(1);
  Values got(17);
  for (int64_t rank = 0; rank < 3; ++rank) {
    for (const int64_t x : Rows(batches.Share(rank, 3))) ++got[x - 6];
  }
  CHECK(got == Values(17, 1));
}

TEST_CASE("what cannot be skipped") {
  CHECK(Contains(ErrorOf([] { Numbers(3).Skip(-1); }), "Skip: got -1"));
  CHECK(Contains(ErrorOf([] { Numbers(3).Skip(INT64_MAX); }), "2^62 - 1"));
  const auto bad = std::make_shared<BadExamples>(2);
  const Dataset reading = Numbers(9).Map([](Example&) {}, {.bad = bad});
  CHECK(Contains(ErrorOf([&] { reading.Skip(2); }), "bad example"));
}

}  // namespace
}  // namespace sluice
