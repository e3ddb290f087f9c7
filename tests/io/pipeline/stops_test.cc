// Random pipelines that stop again and again, in any epoch, and go on by other
// numbers of workers, on other threads, in other batches and with caches that
// are still being filled; some stop since a function of theirs failed. All
// workers together read what one does that never stopped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/pipeline/dataset.h"
#include "tests/support/random_pipeline.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Failures;
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

enum class Outcome { kRead, kEnded, kFailed };

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
    saver_ = random() % workers_.size();
  }

  // Tries again where that fails, ever more seldom, as long as it takes.
  void Restore(const std::string& position, Failures& failures,
               uint64_t one_in) {
    for (Iterator& worker : workers_) {
      failures.Set(one_in);
      Status status = worker.Restore(position);
      for (uint64_t more = 2; status.message() == Failures::kMessage; ++more) {
        failures.Set(one_in * more * more);
        status = worker.Restore(position);
      }
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
  }
  // Any one's, since each can be restored by all; behind a failure that of whom
  // it met.
  std::string Position() const { return workers_[saver_].SavePosition(); }
  // Appends the next batch. At the end all are there; what fails appends
  // nothing.
  Outcome Next(Values* values) {
    const size_t before = values->size();
    size_t ended = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      Example batch;
      Result<bool> more = workers_[i].Next(&batch);
      if (more.status().message() == Failures::kMessage) {
        saver_ = i;
        values->resize(before);
        return Outcome::kFailed;
      }
      if (!std::move(more).ValueOrThrow()) {
        ++ended;
        continue;
      }
      const auto rows = batch["x"].values<int64_t>();
      values->insert(values->end(), rows.begin(), rows.end());
    }
    REQUIRE((ended == 0 || ended == workers_.size()));
    return ended == 0 ? Outcome::kRead : Outcome::kEnded;
  }
  void NextEpoch() {
    for (Iterator& worker : workers_) {
      const Status status = worker.NextEpoch();
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
  }

 private:
  std::vector<Iterator> workers_;
  size_t saver_;
};

// What the tests have met.
struct Seen {
  int64_t stops = 0, marks = 0, failures = 0;
};

// Epochs as above, read by one team after another.
std::vector<Values> ReadInPieces(const std::vector<Pipeline>& variants,
                                 bool fails, std::mt19937& random, Seen* seen) {
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  std::vector<Values> read(1);
  const bool padded = draw(0, 3) == 0;
  int64_t batch = draw(1, 9);
  std::string position;
  Failures failures;
  for (uint64_t teams = 1;; ++teams) {
    const int64_t size = draw(1, std::min<int64_t>(batch, 4));
    CAPTURE(position);
    CAPTURE(batch);
    CAPTURE(size);
    const uint64_t one_in = fails ? 30 * teams : 0;  // so that it ends
    Team team(variants, batch, size, padded, random);
    if (!position.empty()) team.Restore(position, failures, one_in);
    failures.Set(one_in);
    Outcome last = Outcome::kRead;
    for (int64_t n = draw(0, 8); n > 0 && last != Outcome::kFailed; --n) {
      last = team.Next(&read.back());
      if (last != Outcome::kEnded) continue;
      if (read.size() == kEpochs || read.back().empty()) return read;
      team.NextEpoch();
      read.emplace_back();
    }
    position = team.Position();
    ++seen->stops;
    seen->failures += last == Outcome::kFailed ? 1 : 0;
    if (!IsMark(position)) continue;
    ++seen->marks;
    batch = draw(1, 9);
  }
}

Seen CheckStops(unsigned seed, bool random_steps, bool fails) {
  const TemporaryFolder folder;
  std::vector<Generators> generators;
  for (unsigned i = 0; i < kVariants; ++i) {
    generators.emplace_back(seed, random_steps, i, folder.path());
  }
  std::mt19937 random(seed);
  Seen seen;
  // So many that another compiler's order of draws shows enough, too.
  for (int round = 0; round < Rounds(450); ++round) {
    std::vector<Pipeline> variants;
    for (Generators& generator : generators) {
      variants.push_back(generator.Make());
    }
    CAPTURE(seed);
    CAPTURE(variants[0].text);
    REQUIRE(variants[1].text == variants[0].text);
    if (variants[0].values.size() >= kMost) continue;
    // Half of the time caches are empty when the workers begin.
    const bool filled = random() % 2 == 0;
    std::vector<Values> whole;
    if (filled) whole = Epochs(variants[0].dataset);
    const std::vector<Values> read =
        ReadInPieces(variants, fails, random, &seen);
    if (!filled) whole = Epochs(variants[0].dataset);
    if (!random_steps) {
      for (const Values& epoch : whole) REQUIRE(epoch == variants[0].values);
    }
    CAPTURE(filled);
    REQUIRE(read == whole);
  }
  return seen;
}

TEST_CASE("stopped anywhere, gone on with by other workers and threads") {
  for (const bool random_steps : {false, true}) {
    const Seen seen = CheckStops(random_steps ? 29 : 23, random_steps, false);
    CHECK(seen.stops > Rounds(500));
    CHECK(seen.marks > Rounds(250));
    CHECK(seen.failures == 0);
  }
}

TEST_CASE("the same where functions fail now and then") {
  for (const bool random_steps : {false, true}) {
    const Seen seen = CheckStops(random_steps ? 37 : 31, random_steps, true);
    CHECK(seen.failures > Rounds(250));
  }
}

}  // namespace
}  // namespace sluice
