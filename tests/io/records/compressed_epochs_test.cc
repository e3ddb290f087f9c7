// Epochs of compressed records: those of the same records as they are, each
// once, for any number of workers, stopped and taken up by other numbers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/files/file.h"
#include "io/files/record.h"
#include "io/records/file_datasets.h"
#include "tests/support/compressed.h"
#include "tests/support/random.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Random;
using testing::TemporaryFolder;
using Texts = std::vector<std::string>;

constexpr int64_t kBatch = 6;

struct Shards {
  TemporaryFolder dir;
  std::vector<std::string> paths;
  Texts records;  // sorted

  Shards(Random& random, bool manifest) {
    const auto count = static_cast<int>(random.Between(1, 6));
    std::string names;
    for (int shard = 0; shard < count; ++shard) {
      std::string bytes;
      for (int64_t n = random.Between(0, 40); n > 0; --n) {
        records.push_back(fmt::format("{} {} {}", shard, n,
                                      std::string(random.Between(0, 99), 'x')));
        AppendRecord(records.back(), &bytes);
      }
      paths.push_back(dir / fmt::format("train-{:05}-of-{:05}", shard, count));
      const auto format = static_cast<Compression>(random.Between(0, 2));
      REQUIRE(FileSystem::Posix()
                  .WriteAtomically(paths.back(),
                                   format == Compression::kNone
                                       ? bytes
                                       : testing::Compressed(bytes, format))
                  .ok());
      names += names.empty() ? "\"\"" : ",\"\"";
    }
    std::sort(records.begin(), records.end());
    if (!manifest) return;
    REQUIRE(
        FileSystem::Posix()
            .WriteAtomically(dir / "train.json",
                             fmt::format(R"({{"records":{},"shards":[{}]}})",
                                         records.size(), names))
            .ok());
  }

  // As a training reads them.
  Dataset Batches(int64_t cycle, int threads) const {
    return datasets::Records(paths, {.cycle = cycle,
                                     .shuffle_seed = 3,
                                     .threads = threads,
                                     .places = true,
                                     .meaning = " of a test"})
        .Shuffle(20, 8)
        .Repeat()
        .MapRandom(4,
                   [](Example& example, uint64_t key) {
                     const std::string text(BytesOf(example["bytes"]));
                     example = {
                         {"text", Hash(text)},
                         {"key", Tensor::Scalar(static_cast<int64_t>(key))}};
                   })
        .Batch(kBatch);
  }

  static Tensor Hash(const std::string& text) {
    return Tensor::Scalar(
        static_cast<int64_t>(std::hash<std::string>()(text) >> 1));
  }
};

// Of batches that workers have in lockstep, by their ranks.
struct Taken {
  std::vector<int64_t> texts, keys;
};

// The next `n` batches of these; where they then stand, as one of them says.
std::string Take(const Dataset& batches, int64_t workers, int64_t n,
                 const std::string& from, Taken* taken) {
  std::vector<Iterator> iterators;
  for (int64_t rank = 0; rank < workers; ++rank) {
    iterators.push_back(batches.Share(rank, workers).MakeIterator());
    if (from.empty()) continue;
    const Status restored = iterators.back().Restore(from);
    REQUIRE_MESSAGE(restored.ok(), restored.message());
  }
  for (; n > 0; --n) {
    for (Iterator& iterator : iterators) {
      Example batch;
      REQUIRE(iterator.Next(&batch).ValueOrThrow());
      for (int64_t i = 0; i < batch["text"].elements(); ++i) {
        taken->texts.push_back(batch["text"].IntAt(i));
        taken->keys.push_back(batch["key"].IntAt(i));
      }
    }
  }
  return iterators[taken->texts.size() % iterators.size()].SavePosition();
}

TEST_CASE("each record once an epoch, by any workers and after any stops") {
  Random random(12);
  for (int round = 0; round < 40; ++round) {
    const bool manifest = round % 2 == 0;
    const Shards shards(random, manifest);
    const auto size = static_cast<int64_t>(shards.records.size());
    if (size == 0) continue;
    const int64_t cycle = random.Between(1, 4);
    CHECK(shards.Batches(cycle, 1).examples_per_epoch() ==
          (manifest ? size : kUnknownCardinality));
    constexpr int64_t kEpochs = 3;
    const int64_t batches = kEpochs * size / kBatch + 1;
    Taken whole;
    Take(shards.Batches(cycle, 1), 1, batches, "", &whole);
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      std::vector<int64_t> want, got(whole.texts.begin() + epoch * size,
                                     whole.texts.begin() + (epoch + 1) * size);
      for (const std::string& text : shards.records) {
        want.push_back(Shards::Hash(text).IntAt(0));
      }
      std::sort(want.begin(), want.end());
      std::sort(got.begin(), got.end());
      REQUIRE(got == want);
    }
    // By other numbers of workers, of threads, and with stops.
    for (int run = 0; run < 3; ++run) {
      Taken taken;
      std::string position;
      for (int64_t left = batches; left > 0;) {
        const int64_t n = std::min(left, random.Between(0, batches));
        position =
            Take(shards.Batches(cycle, static_cast<int>(random.Between(1, 3))),
                 random.Between(1, 3), n, position, &taken);
        left -= n;
      }
      REQUIRE(taken.texts == whole.texts);
      REQUIRE(taken.keys == whole.keys);
    }
  }
}

}  // namespace
}  // namespace sluice
