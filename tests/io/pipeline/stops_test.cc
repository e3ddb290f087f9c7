// Random pipelines that stop again and again, in any epoch, and go on by other
// numbers of workers, on other threads, in other batches and with caches that
// are still being filled: all workers together read what one does that never
// stopped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "tests/support/random_pipeline.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Generators;
using testing::IsMark;
using testing::kMost;
using testing::Pipeline;
using testing::Read;
using testing::Rounds;
using testing::TemporaryFolder;
using testing::Values;

constexpr size_t kEpochs = 3;
constexpr int kVariants = 3;  // of one pipeline, by its numbers of threads

// What each epoch has; fewer where one is empty.
std::vector<Values> Epochs(const Dataset& dataset) {
  std::vector<Values> epochs;
  Iterator iterator = dataset.MakeIterator();
  for (size_t epoch = 0; epoch < kEpochs; ++epoch) {
    if (epoch > 0 && !iterator.NextEpoch().ok()) break;
    epochs.push_back(Read(&iterator));
  }
  return epochs;
}

// Workers that read batches in step.
class Team {
 public:
  // One of the pipelines for each, which differ in their threads alone.
  Team(const std::vector<Pipeline>& variants, int64_t batch, int64_t size,
       bool padded, std::mt19937& random) {
    for (int64_t rank = 0; rank < size; ++rank) {
      const Dataset& examples = variants[random() % variants.size()].dataset;
      const Dataset batches =
          padded ? examples.PaddedBatch(batch) : examples.Batch(batch);
      workers_.push_back(batches.Share(rank, size).MakeIterator());
    }
  }

  void Restore(const std::string& position) {
    for (Iterator& worker : workers_) {
      const Status status = worker.Restore(position);
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
  }
  // Any one's: each can be restored by all.
  std::string Position(std::mt19937& random) const {
    return workers_[random() % workers_.size()].SavePosition();
  }
  // Appends the next batch; false at the end, where all are.
  bool Next(Values* values) {
    size_t ended = 0;
    for (Iterator& worker : workers_) {
      Example batch;
      if (!worker.Next(&batch).ValueOrThrow()) {
        ++ended;
        continue;
      }
      const auto rows = batch["x"].values<int64_t>();
      values->insert(values->end(), rows.begin(), rows.end());
    }
    REQUIRE((ended == 0 || ended == workers_.size()));
    return ended == 0;
  }
  void NextEpoch() {
    for (Iterator& worker : workers_) {
      const Status status = worker.NextEpoch();
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
  }

 private:
  std::vector<Iterator> workers_;
};

void CheckStops(unsigned seed, bool random_steps, int rounds) {
  const TemporaryFolder folder;
  std::vector<Generators> generators;
  for (unsigned i = 0; i < kVariants; ++i) {
    generators.emplace_back(seed, random_steps, i, folder.path());
  }
  std::mt19937 random(seed);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  int64_t stops = 0, marks = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Pipeline> variants;
    for (Generators& generator : generators) {
      variants.push_back(generator.Make());
    }
    CAPTURE(seed);
    CAPTURE(variants[0].text);
    REQUIRE(variants[1].text == variants[0].text);
    if (variants[0].values.size() >= kMost) continue;
    // Half of the time caches are empty when the workers begin.
    const bool filled = draw(0, 1) == 0;
    std::vector<Values> whole;
    if (filled) whole = Epochs(variants[0].dataset);

    const bool padded = draw(0, 3) == 0;
    int64_t batch = draw(1, 9);
    std::vector<Values> read(1);
    std::string position, told;
    for (bool over = false; !over;) {
      const int64_t size = draw(1, std::min<int64_t>(batch, 4));
      told += " batch " + std::to_string(batch) + " size " +
              std::to_string(size) + " " + position;
      CAPTURE(told);
      Team team(variants, batch, size, padded, random);
      if (!position.empty()) team.Restore(position);
      for (int64_t left = draw(0, 8); left > 0 && !over; --left) {
        if (team.Next(&read.back())) continue;
        over = read.size() == kEpochs || read.back().empty();
        if (over) break;
        team.NextEpoch();
        read.emplace_back();
      }
      position = team.Position(random);
      ++stops;
      if (!IsMark(position)) continue;
      ++marks;
      batch = draw(1, 9);
    }
    if (!filled) whole = Epochs(variants[0].dataset);
    if (!random_steps) {
      for (const Values& epoch : whole) REQUIRE(epoch == variants[0].values);
    }
    CAPTURE(told);
    CAPTURE(filled);
    REQUIRE(read == whole);
  }
  CHECK(stops > 2 * rounds);
  CHECK(marks > rounds);
}

TEST_CASE("stopped anywhere, gone on with by other workers and threads") {
  CheckStops(23, false, Rounds(400));
  CheckStops(29, true, Rounds(400));
}

}  // namespace
}  // namespace sluice
