// Batches shared out among workers: random pipelines against the rows of the
// batches that there are without workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/pipeline/bad_examples.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Rounds;

constexpr size_t kMost = 25;  // elements read of a pipeline

// Examples {"x": i, "image": [i, i + 1, i + 2]}.
Dataset Numbers(int64_t n) {
  Tensor x(DType::kInt64, {n});
  Tensor image(DType::kUInt8, {n, 3});
  for (int64_t i = 0; i < n; ++i) {
    x.data<int64_t>()[i] = i;
    for (int64_t j = 0; j < 3; ++j) {
      image.data<uint8_t>()[3 * i + j] = static_cast<uint8_t>(i + j);
    }
  }
  return datasets::FromTensors({{"x", x}, {"image", image}}, "numbers");
}

// In place of an example, another one with its tensors.
void Renew(Example& example) {
  Example fresh;
  for (const auto& [name, tensor] : example) fresh.Set(name, tensor);
  example = std::move(fresh);
}

// To an example its key, mixed with those of such maps before.
void AddKey(Example& example, uint64_t key) {
  const uint64_t before =
      example.contains("key")
          ? static_cast<uint64_t>(example["key"].IntAt(0)) * 31
          : 0;
  Renew(example);
  example.Set("key", Tensor::Scalar(static_cast<int64_t>(before + key)));
}

// To each row of a batch the batch's key. Cannot be done to no rows.
void AddBatchKey(Example& batch, uint64_t key) {
  const int64_t rows = batch["x"].elements();
  if (rows == 0) throw Error(Code::kInternal, "an empty batch");
  Renew(batch);
  batch.Set("batch_key", Tensor::Full(DType::kInt64, {rows, 2},
                                      static_cast<int64_t>(key >> 16)));
}

struct Pipeline {
  Dataset dataset;
  Dataset threaded;  // the same, with maps on several threads
  int64_t batch;
  std::string text;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  Pipeline Make() {
    const int64_t n = Draw(0, 40);
    Pipeline out{Numbers(n), Numbers(n), Draw(1, 17), std::to_string(n)};
    scaled_ = false;
    if (Draw(0, 1) == 0) {
      const auto nothing = [](Example&) {};
      out.dataset = out.dataset.Map(nothing);
      out.threaded = out.threaded.Map(nothing, Threads());
      out.text += " one by one";
    }
    for (int64_t steps = Draw(0, 4); steps > 0; --steps) Add(&out, false);
    const bool drop = Draw(0, 3) == 0;
    out.dataset = out.dataset.Batch(out.batch, drop);
    out.threaded = out.threaded.Batch(out.batch, drop);
    out.text += " batch " + std::to_string(out.batch) + (drop ? " drop" : "");
    for (int64_t steps = Draw(0, 3); steps > 0; --steps) Add(&out, true);
    return out;
  }

 private:
  void Add(Pipeline* out, bool behind_batch) {
    const int64_t step = Draw(0, 9);
    const int64_t n = Draw(1, behind_batch ? 6 : 45);
    if (step == 5 && std::exchange(scaled_, true)) return;
    out->dataset = With(out->dataset, step, n, behind_batch, {});
    out->threaded = With(out->threaded, step, n, behind_batch, Threads());
    out->text += " " + std::to_string(step) + "," + std::to_string(n);
  }

  MapOptions Threads() {
    return {.threads = static_cast<int>(Draw(0, 4)),
            .max_threads = static_cast<int>(Draw(1, 4))};
  }

  static Dataset With(const Dataset& d, int64_t step, int64_t n,
                      bool behind_batch, const MapOptions& options) {
    const auto seed = static_cast<uint64_t>(n);
    switch (step) {
      case 0:
        return d.Shuffle(n, seed);
      case 1:
        return d.Repeat(n % 6 - 1);
      case 2:
        return d.Take(n);
      case 3:
        return d.Shard(n % 3, 3);
      case 4:
        return d.Prefetch(1 + n % 3);
      case 5:
        return d.Map(ScaleTo01("image"));
      case 6:
        return d.Map(Renew, options);
      case 7:
        return d.Skip(n % 5);
      default:
        return d.MapRandom(seed, behind_batch ? AddBatchKey : AddKey, options);
    }
  }

  std::mt19937 random_;
  bool scaled_ = false;
};

// The next elements, `most` at most.
std::vector<Example> Read(Iterator* iterator, size_t most = kMost) {
  std::vector<Example> elements;
  Example element;
  while (elements.size() < most && iterator->Next(&element).ValueOrThrow()) {
    elements.push_back(element);
  }
  return elements;
}

std::vector<Example> Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

int64_t RowsIn(const Example& batch) {
  return batch["x"].elements();
}

bool Equal(const Example& a, const Example& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.BitEqual(y.second);
                    });
}

// What worker `rank` of `size` is to get of a batch.
Example Cut(const Example& batch, int64_t n, int64_t rank, int64_t size) {
  const int64_t rows = RowsIn(batch);
  const int64_t begin = std::min(rows, n * rank / size);
  const int64_t end = std::min(rows, n * (rank + 1) / size);
  Example part;
  for (const auto& [name, tensor] : batch) {
    part.Set(name, tensor.Rows(begin, end));
  }
  return part;
}

// Whether `shares` are those of whole[from], whole[from + 1], ...
void CheckShares(const std::vector<Example>& shares,
                 const std::vector<Example>& whole, size_t from, int64_t n,
                 int64_t rank, int64_t size) {
  REQUIRE(shares.size() == whole.size() - from);
  for (size_t i = 0; i < shares.size(); ++i) {
    CAPTURE(i);
    const Example& batch = whole[from + i];
    REQUIRE(Equal(shares[i], Cut(batch, n, rank, size)));
    REQUIRE(shares[i].whole_rows() == (size == 1 ? 0 : RowsIn(batch)));
  }
}

TEST_CASE("shares are the rows of the batches that there are without them") {
  Generator generator(17);
  int64_t empty = 0;
  int64_t batches = 0;
  for (int round = 0; round < Rounds(1500); ++round) {
    const Pipeline pipeline = generator.Make();
    CAPTURE(pipeline.text);
    const std::vector<Example> whole = Read(pipeline.dataset);
    const int64_t n = pipeline.batch;
    const int64_t size = generator.Draw(1, std::min<int64_t>(n, 7));
    CAPTURE(size);
    const bool threads = generator.Draw(0, 1) == 1;
    CAPTURE(threads);
    std::vector<int64_t> rows(whole.size());
    for (int64_t rank = 0; rank < size; ++rank) {
      CAPTURE(rank);
      const Dataset dataset =
          (threads ? pipeline.threaded : pipeline.dataset).Share(rank, size);
      CHECK(dataset.cardinality() == pipeline.dataset.cardinality());
      CHECK(dataset.examples_per_epoch() ==
            pipeline.dataset.examples_per_epoch());
      CHECK(dataset.batch_size() == n);
      const std::vector<Example> shares = Read(dataset);
      CheckShares(shares, whole, 0, n, rank, size);
      for (size_t i = 0; i < shares.size(); ++i) {
        rows[i] += RowsIn(shares[i]);
        if (RowsIn(shares[i]) == 0) ++empty;
      }
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      CHECK(rows[i] == RowsIn(whole[i]));
    }
    batches += static_cast<int64_t>(whole.size());
  }
  // The generator makes something to see.
  CHECK(empty > Rounds(500));
  CHECK(batches > Rounds(5000));
}

TEST_CASE("a saved position goes on with any number of workers") {
  Generator generator(29);
  for (int round = 0; round < Rounds(1000); ++round) {
    const Pipeline pipeline = generator.Make();
    CAPTURE(pipeline.text);
    const std::vector<Example> whole = Read(pipeline.dataset);
    const int64_t n = pipeline.batch;
    const auto draw_share = [&](int64_t* rank, int64_t* size) {
      *size = generator.Draw(1, std::min<int64_t>(n, 7));
      *rank = generator.Draw(0, *size - 1);
      const bool threads = generator.Draw(0, 1) == 1;
      return (threads ? pipeline.threaded : pipeline.dataset)
          .Share(*rank, *size);
    };
    int64_t rank;
    int64_t size;
    Iterator saved = draw_share(&rank, &size).MakeIterator();
    const auto consumed = static_cast<size_t>(
        generator.Draw(0, static_cast<int64_t>(whole.size())));
    REQUIRE(Read(&saved, consumed).size() == consumed);
    const std::string position = saved.SavePosition();

    Iterator alone = pipeline.dataset.MakeIterator();
    CHECK(Read(&alone, consumed).size() == consumed);
    CHECK(alone.SavePosition() == position);

    Iterator resumed = draw_share(&rank, &size).MakeIterator();
    CAPTURE(consumed);
    CAPTURE(rank);
    CAPTURE(size);
    // Restoring must not depend on where the iterator was.
    Read(&resumed, static_cast<size_t>(generator.Draw(0, 3)));
    const Status status = resumed.Restore(position);
    REQUIRE_MESSAGE(status.ok(), status.message());
    CHECK(resumed.SavePosition() == position);
    CheckShares(Read(&resumed, whole.size() - consumed), whole, consumed, n,
                rank, size);
  }
}

TEST_CASE("shares go through the steps behind them") {
  const Dataset batches =
      Numbers(11).Shuffle(11, 1).MapRandom(3, AddKey).Batch(4);
  const auto wrap = [](const Dataset& dataset) {
    return dataset.MapRandom(5, AddBatchKey)
        .Map(ScaleTo01("image"))
        .Map(Renew)
        .Repeat(3)
        .Shuffle(4, 9)
        .Prefetch(2);
  };
  const std::vector<Example> whole = Read(wrap(batches));
  REQUIRE(whole.size() == 9);
  for (int64_t rank = 0; rank < 4; ++rank) {
    CheckShares(Read(wrap(batches.Share(rank, 4))), whole, 0, 4, rank, 4);
  }
}

TEST_CASE("a share of nothing has names, dtypes and further dimensions") {
  const Dataset batches = Numbers(9)
                              .MapRandom(3, AddKey)
                              .Batch(4)
                              .MapRandom(5, AddBatchKey)
                              .Map(ScaleTo01("image"));
  Iterator last = batches.Share(3, 4).MakeIterator();
  REQUIRE(Read(&last, 2).size() == 2);
  // Also in an iterator that has read none of its own yet.
  Iterator fresh = batches.Share(3, 4).MakeIterator();
  REQUIRE(fresh.Restore(last.SavePosition()).ok());
  for (Iterator* iterator : {&last, &fresh}) {
    Example share;
    REQUIRE(iterator->Next(&share).ValueOrThrow());
    CHECK(share.whole_rows() == 1);
    CHECK(share.size() == 4);
    CHECK(share["x"].shape() == Shape{0});
    CHECK(share["x"].dtype() == DType::kInt64);
    CHECK(share["image"].shape() == Shape{0, 3});
    CHECK(share["image"].dtype() == DType::kFloat32);
    CHECK(share["key"].shape() == Shape{0});
    CHECK(share["batch_key"].shape() == Shape{0, 2});
    CHECK_FALSE(iterator->Next(&share).ValueOrThrow());
  }
  const Dataset dropping = Numbers(9).Batch(4, true);
  for (int64_t rank = 0; rank < 4; ++rank) {
    CHECK(Read(dropping.Share(rank, 4)).size() == 2);
  }
}

TEST_CASE("a padded batch is cut by its own size") {
  // The rows of each worker of 4, by how many there are in the batch.
  const std::vector<std::vector<int64_t>> wanted = {
      {0, 0, 0, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 2}};
  const auto length = [](const Example&) { return int64_t{0}; };
  for (int64_t m = 1; m <= 5; ++m) {
    CAPTURE(m);
    for (const Dataset& padded :
         {Numbers(8 + m).PaddedBatch(8),
          Numbers(8 + m).BucketByLength(length, {1}, {8, 8})}) {
      int64_t next = 8;
      for (int64_t rank = 0; rank < 4; ++rank) {
        const std::vector<Example> shares = Read(padded.Share(rank, 4));
        REQUIRE(shares.size() == 2);
        CHECK(RowsIn(shares[0]) == 2);
        REQUIRE(RowsIn(shares[1]) == wanted[m - 1][rank]);
        for (const int64_t x : shares[1]["x"].values<int64_t>()) {
          CHECK(x == next++);
        }
      }
      CHECK(next == 8 + m);
    }
  }
}

TEST_CASE("a worker maps its own examples alone") {
  const auto calls = std::make_shared<std::atomic<int64_t>>(0);
  const auto count = [calls](Example&) { ++*calls; };
  const auto batch_and_share = [](const Dataset& dataset) {
    return dataset.Batch(5).Share(1, 3);  // rows 1 and 2
  };
  for (const Dataset& dataset :
       {batch_and_share(Numbers(23).Shuffle(7, 1).Repeat(2).Map(count)),
        batch_and_share(Numbers(69).Map(count).Shard(0, 3).Repeat(2)),
        batch_and_share(Numbers(23).Map(count).Repeat().Take(46))}) {
    *calls = 0;
    CHECK(Read(dataset).size() == 10);
    // The last batch has one row, another worker's; one example is read to
    // learn what a share of none looks like.
    CHECK(*calls == 9 * 2 + 1);
  }
  // On several threads, too.
  *calls = 0;
  const Dataset threaded = batch_and_share(
      Numbers(25).Shuffle(7, 1).Repeat(2).Map(count, {.threads = 3}));
  CHECK(Read(threaded).size() == 10);
  CHECK(*calls == 10 * 2);
}

TEST_CASE("one example to learn from, and the first share") {
  const Dataset batches =
      Numbers(10).Shuffle(10, 2).MapRandom(1, AddKey).Batch(4).Map(Renew);
  const Example first = batches.First();
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Dataset share = batches.Share(rank, 3);
    CHECK(Equal(share.Sample(), batches.Sample()));
    CHECK(share.Sample().whole_rows() == 0);
    CHECK(RowsIn(share.Sample()) == 1);
    CHECK(Equal(share.First(), Cut(first, 4, rank, 3)));
    CHECK(share.First().whole_rows() == 4);
  }
  CHECK(batches.First().whole_rows() == 0);
  CHECK_THROWS_AS(Numbers(0).Batch(4).Share(0, 2).First(), Error);
  CHECK_THROWS_AS(Numbers(0).Batch(4).Share(0, 2).Sample(), Error);
  // Its first batch has nothing for this one.
  CHECK(Numbers(1).Batch(4).Share(1, 2).First()["image"].shape() ==
        Shape{0, 3});
}

TEST_CASE("one worker has the whole, of any pipeline") {
  const Dataset plain = Numbers(5).Share(0, 1);
  CHECK(Read(plain).size() == 5);
  const Dataset batches = Numbers(5).Batch(2).Share(0, 1);
  CHECK(batches.First().whole_rows() == 0);
  CHECK(RowsIn(batches.Share(1, 2).First()) == 1);
  CHECK(Read(Numbers(5).Batch(2).Share(1, 2).Share(0, 1)).size() == 3);
}

TEST_CASE("an error of one's own examples comes out, others' do not") {
  const auto broken = [](Example& example) {
    if (example["x"].IntAt(0) == 5) throw Error(Code::kDataLoss, "five");
  };
  // Nothing is passed over with the limit 0.
  const Dataset batches =
      Numbers(8)
          .Map(broken, {.bad = std::make_shared<BadExamples>(0)})
          .Batch(4);
  CHECK(Read(batches.Share(1, 2)).size() == 2);
  CHECK(ErrorOf([&] { Read(batches.Share(0, 2)); }) == "five");
}

TEST_CASE("no passes of what never ends are nothing") {
  const Dataset none = Numbers(3).Repeat().Repeat(0).Batch(2);
  CHECK(none.cardinality() == 0);
  for (int64_t rank = 0; rank < 2; ++rank) {
    CHECK(Read(none.Share(rank, 2)).empty());
  }
}

TEST_CASE("a position behind every element is refused") {
  const Dataset one = Numbers(3).Shard(1, 3).Batch(1);
  Iterator iterator = one.MakeIterator();
  const std::string position = iterator.SavePosition();
  const size_t zero = position.find(":0");
  REQUIRE(zero != std::string::npos);
  for (const char* examples :
       {"2", "4611686018427387904", "9223372036854775807"}) {
    std::string far = position;
    far.replace(zero + 1, 1, examples);
    CAPTURE(far);
    CHECK(iterator.Restore(far).code() == Code::kOutOfRange);
  }
}

TEST_CASE("what cannot be shared out") {
  const Dataset numbers = Numbers(20);
  const Dataset batches = numbers.Batch(2);
  const auto error = [](const Dataset& dataset, int64_t rank, int64_t size) {
    try {
      dataset.Share(rank, size);
    } catch (const Error& thrown) {
      CHECK(thrown.code() == Code::kInvalidArgument);
      return std::string(thrown.what());
    }
    return std::string("(no error)");
  };
  CHECK(Contains(error(batches, 0, 0), "a positive number of workers"));
  CHECK(Contains(error(batches, 0, -1), "a positive number of workers"));
  CHECK(Contains(error(batches, -1, 2), "a rank below 2"));
  CHECK(Contains(error(batches, 2, 2), "a rank below 2"));
  CHECK(Contains(error(batches, 1, 1), "a rank below 1"));
  CHECK(Contains(error(numbers, 0, 2), "must end with Batch"));
  CHECK(Contains(error(batches.Batch(8), 0, 2), "batches of batches"));
  CHECK(Contains(error(batches.Batch(1), 0, 2), "batches of batches"));
  CHECK(Contains(error(batches, 0, 4),
                 "batches of 2 cannot be shared out among 4 workers"));
  CHECK(Contains(error(numbers.Batch(1), 0, 2),
                 "batches of 1 cannot be shared out among 2 workers"));
  CHECK(Contains(error(batches.Share(0, 2), 0, 2), "shared out already"));
  CHECK(Contains(error(batches.Share(0, 2).Prefetch(1), 0, 2),
                 "shared out already"));
  CHECK(Contains(ErrorOf([&] { batches.Share(0, 2).Batch(2); }),
                 "must come before Share"));

  const auto may = std::make_shared<BadExamples>(1);
  const auto map = [](Example&) {};
  const std::string why = "passing over bad examples is for one worker";
  CHECK(Contains(
      error(numbers.Map(map, {.bad = may}).Batch(2).Prefetch(2), 1, 2), why));
  CHECK(Contains(ErrorOf([&] { batches.Share(1, 2).Map(map, {.bad = may}); }),
                 why));
  batches.Share(1, 2).Map(map, {.bad = std::make_shared<BadExamples>(0)});
  numbers.Map(map, {.bad = may}).Batch(2).Share(0, 1);
}

}  // namespace
}  // namespace sluice
