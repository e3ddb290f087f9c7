// Padded batches and buckets, against loops over single numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Numbers;

// Sequences whose lengths and values depend on their number: "tokens" int64
// [length], "frames" float32 [height, width, 2] and "id" int64 [].
int64_t LengthOf(int64_t id) {
  return id * 7919 % 13;
}

int64_t HeightOf(int64_t id) {
  return id % 4;
}

int64_t WidthOf(int64_t id) {
  return id * 31 % 5;
}

Example Sequence(int64_t id) {
  Example example = {
      {"id", Tensor::Scalar(id)},
      {"tokens", Tensor(DType::kInt64, {LengthOf(id)})},
      {"frames", Tensor(DType::kFloat32, {HeightOf(id), WidthOf(id), 2})}};
  int64_t next = 1000 * id;
  for (int64_t& token : example["tokens"].values<int64_t>()) token = ++next;
  for (float& value : example["frames"].values<float>()) {
    value = static_cast<float>(++next);
  }
  return example;
}

Dataset Sequences(int64_t n) {
  return datasets::FromFunction(n, Sequence, "sequences");
}

// The element of a tensor at a place, or `padding` where it is not within it.
double ElementOr(const Tensor& tensor, const std::vector<int64_t>& at,
                 double padding) {
  int64_t flat = 0;
  for (int d = 0; d < tensor.shape().rank(); ++d) {
    if (at[static_cast<size_t>(d)] >= tensor.shape()[d]) return padding;
    flat = flat * tensor.shape()[d] + at[static_cast<size_t>(d)];
  }
  return tensor.At(flat);
}

// Whether a batch is those examples, each tensor as large as the largest.
void CheckBatch(const Example& batch, const std::vector<int64_t>& ids,
                const std::map<std::string, double>& padding) {
  const auto rows = static_cast<int64_t>(ids.size());
  for (const auto& [name, tensor] : batch) {
    CAPTURE(name);
    const auto found = padding.find(name);
    const double value = found == padding.end() ? 0 : found->second;
    REQUIRE(tensor.shape()[0] == rows);
    const int rank = tensor.shape().rank() - 1;
    for (int d = 0; d < rank; ++d) {
      int64_t largest = 0;
      for (const int64_t id : ids) {
        largest = std::max(largest, Sequence(id)[name].shape()[d]);
      }
      REQUIRE(tensor.shape()[d + 1] == largest);
    }
    const int64_t each = rows == 0 ? 0 : tensor.elements() / rows;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      std::vector<int64_t> at(static_cast<size_t>(rank));
      int64_t rest = i % each;
      for (int d = rank - 1; d >= 0; --d) {
        at[static_cast<size_t>(d)] = rest % tensor.shape()[d + 1];
        rest /= tensor.shape()[d + 1];
      }
      const Example example = Sequence(ids[static_cast<size_t>(i / each)]);
      REQUIRE(tensor.At(i) == ElementOr(example[name], at, value));
    }
  }
}

std::vector<Example> Read(Iterator* iterator, size_t most = SIZE_MAX) {
  std::vector<Example> batches;
  Example batch;
  while (batches.size() < most && iterator->Next(&batch).ValueOrThrow()) {
    batches.push_back(batch);
  }
  return batches;
}

std::vector<Example> Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

TEST_CASE("padded batches are as large as their largest") {
  for (const int64_t n : {0, 1, 2, 9, 40}) {
    for (const int64_t size : {1, 2, 7, 40, 100}) {
      CAPTURE(n);
      CAPTURE(size);
      const Dataset batches = Sequences(n).PaddedBatch(
          size, {.values = {{"tokens", -1}, {"frames", 0.5}}});
      const std::vector<Example> read = Read(batches);
      CHECK(batches.cardinality() == static_cast<int64_t>(read.size()));
      CHECK(batches.batch_size() == size);
      int64_t next = 0;
      for (const Example& batch : read) {
        std::vector<int64_t> ids;
        for (; next < n && static_cast<int64_t>(ids.size()) < size; ++next) {
          ids.push_back(next);
        }
        CheckBatch(batch, ids, {{"tokens", -1}, {"frames", 0.5}});
      }
      CHECK(next == n);
      CHECK(Read(Sequences(n).PaddedBatch(size, {.drop_remainder = true}))
                .size() == static_cast<size_t>(n / size));
    }
  }
}

// What BucketByLength promises, in its own words.
std::vector<std::vector<int64_t>> Bucketed(
    int64_t n, const std::vector<int64_t>& boundaries,
    const std::vector<int64_t>& sizes, bool drop) {
  std::vector<std::vector<int64_t>> buckets(sizes.size()), out;
  for (int64_t id = 0; id < n; ++id) {
    size_t bucket = 0;
    for (const int64_t boundary : boundaries) {
      if (LengthOf(id) >= boundary) ++bucket;
    }
    buckets[bucket].push_back(id);
    if (static_cast<int64_t>(buckets[bucket].size()) == sizes[bucket]) {
      out.push_back(std::exchange(buckets[bucket], {}));
    }
  }
  for (const auto& left : buckets) {
    if (!left.empty() && !drop) out.push_back(left);
  }
  return out;
}

TEST_CASE("buckets, resumed anywhere and shared out") {
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto length = [](const Example& e) { return e["tokens"].shape()[0]; };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> boundaries;
    for (int64_t at = draw(0, 5); at < 14; at += draw(1, 6)) {
      boundaries.push_back(at);
    }
    const int64_t workers = draw(1, 3);
    std::vector<int64_t> sizes;
    for (size_t i = 0; i <= boundaries.size(); ++i) {
      sizes.push_back(draw(workers, 6));
    }
    const int64_t n = draw(0, 60);
    const bool drop = draw(0, 1) == 1;
    Dataset input = Sequences(n);
    const bool filtered = draw(0, 1) == 1;
    if (filtered) input = input.Filter([](const Example&) { return true; });
    const Dataset dataset = input.BucketByLength(length, boundaries, sizes,
                                                 {.drop_remainder = drop});
    const auto wanted = Bucketed(n, boundaries, sizes, drop);
    const std::vector<Example> read = Read(dataset);
    REQUIRE(read.size() == wanted.size());
    for (size_t i = 0; i < read.size(); ++i) {
      CheckBatch(read[i], wanted[i], {});
    }
    CHECK(dataset.batch_size() ==
          *std::max_element(sizes.begin(), sizes.end()));

    // The rows of all workers are those of each batch, as wide as all of it.
    const auto stop =
        static_cast<size_t>(draw(0, static_cast<int64_t>(wanted.size())));
    std::string position;
    for (int64_t rank = 0; rank < workers; ++rank) {
      Iterator saved = dataset.Share(rank, workers).MakeIterator();
      REQUIRE(Read(&saved, stop).size() == stop);
      position = saved.SavePosition();
    }
    CAPTURE(position);
    std::vector<std::vector<int64_t>> rows(wanted.size());
    for (int64_t rank = 0; rank < workers; ++rank) {
      Iterator resumed = dataset.Share(rank, workers).MakeIterator();
      Read(&resumed, static_cast<size_t>(draw(0, 2)));
      const Status status = resumed.Restore(position);
      REQUIRE_MESSAGE(status.ok(), status.message());
      const std::vector<Example> shares = Read(&resumed);
      REQUIRE(shares.size() == wanted.size() - stop);
      for (size_t i = 0; i < shares.size(); ++i) {
        const Example& share = shares[i];
        if (workers > 1) {
          CHECK(share.whole_rows() ==
                static_cast<int64_t>(wanted[stop + i].size()));
        }
        for (const int64_t id : share["id"].values<int64_t>()) {
          rows[stop + i].push_back(id);
        }
        if (share["id"].elements() > 0) {
          CHECK(share["tokens"].shape()[1] ==
                read[stop + i]["tokens"].shape()[1]);
        }
      }
    }
    for (size_t i = stop; i < rows.size(); ++i) CHECK(rows[i] == wanted[i]);
  }
}

TEST_CASE("at the end of a pass, restored for batches of any other size") {
  // How many there are is not known, and 13 are no batches of 2, 3, 4 or 5.
  const Dataset numbers = Numbers(19).Filter(
      [](const Example& e) { return e["x"].IntAt(0) % 3 != 1; });
  // What comes behind the end of one, and in the next pass.
  const auto after = [](const Dataset& one, const Dataset& other) {
    Iterator saved = one.MakeIterator(), resumed = other.MakeIterator();
    Read(&saved);
    const Status status = resumed.Restore(saved.SavePosition());
    REQUIRE_MESSAGE(status.ok(), status.message());
    std::vector<Example> read = Read(&resumed);
    read.emplace_back();
    REQUIRE(resumed.NextEpoch().ok());
    for (const Example& batch : Read(&resumed)) read.push_back(batch);
    return read;
  };
  for (int64_t from = 1; from <= 5; ++from) {
    for (int64_t to = 1; to <= 5; ++to) {
      CAPTURE(from);
      CAPTURE(to);
      const PaddingOptions drop = {.drop_remainder = true};
      const std::vector<Example> read =
          after(numbers.PaddedBatch(from, drop), numbers.PaddedBatch(to, drop));
      const std::vector<Example> wanted =
          after(numbers.Batch(from, true), numbers.Batch(to, true));
      REQUIRE(read.size() == wanted.size());
      for (size_t i = 0; i < read.size(); ++i) {
        REQUIRE(read[i].empty() == wanted[i].empty());
        if (read[i].empty()) continue;
        CHECK(read[i]["x"].BitEqual(wanted[i]["x"]));
      }
    }
  }
}

TEST_CASE("a sample of buckets is one example") {
  const Dataset buckets = Sequences(20).BucketByLength(
      [](const Example& e) { return e["tokens"].shape()[0]; }, {5}, {4, 3});
  CHECK(buckets.Sample()["id"].shape() == Shape{1});
  CHECK(buckets.Share(1, 3).Sample()["id"].shape() == Shape{1});
}

TEST_CASE("what cannot be padded") {
  const auto message = [](const Dataset& dataset) {
    return ErrorOf([&] { Read(dataset); });
  };
  const Dataset unequal = Numbers(4).Map([](Example& e) {
    if (e["x"].IntAt(0) == 2) e = {{"x", e["x"].Reshaped({1})}};
  });
  CHECK(Contains(message(unequal.PaddedBatch(3)),
                 "'x' differs within the batch in more than sizes: int64[] in "
                 "example 0, int64[1] in example 2"));
  const Dataset other = Numbers(4).Map([](Example& e) {
    if (e["x"].IntAt(0) == 1) e = {{"y", e["x"]}};
  });
  CHECK(Contains(message(other.PaddedBatch(3)),
                 "example 1 has other tensors than example 0"));
  CHECK(Contains(message(Numbers(3).PaddedBatch(2, {.values = {{"x", 0.5}}})),
                 "the padding of 'x': int64 cannot hold the number 0.5"));
  CHECK(Contains(message(Numbers(3).PaddedBatch(2, {.values = {{"y", 1}}})),
                 "a padding for 'y', but no such tensor"));
  const auto length = [](const Example&) { return int64_t{1}; };
  CHECK(
      Contains(ErrorOf([&] { Numbers(3).PaddedBatch(0); }), "a size of 1 to"));
  CHECK(Contains(ErrorOf([&] {
                   Numbers(3).BucketByLength(length, {1, 2}, {1, 2});
                 }),
                 "3 batch sizes for 2 boundaries"));
  CHECK(Contains(ErrorOf([&] {
                   Numbers(3).BucketByLength(length, {2, 2}, {1, 2, 3});
                 }),
                 "a boundary above 2"));
  CHECK(Contains(ErrorOf([&] {
                   Numbers(3).BucketByLength(length, {2}, {1, 0});
                 }),
                 "batch sizes of 1 to"));
  CHECK(Contains(ErrorOf([&] {
                   Numbers(9).BucketByLength(length, {2}, {4, 2}).Share(0, 3);
                 }),
                 "batches of 2 cannot be shared out among 3 workers"));
  CHECK(Contains(ErrorOf([&] { Numbers(3).Batch(2).PaddedBatch(2); }),
                 "must come before Batch"));
}

}  // namespace
}  // namespace sluice
