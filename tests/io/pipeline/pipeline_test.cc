// Random pipelines of all steps that come before Batch, against loops over
// vectors; resumed anywhere, shared out, and from damaged positions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Generators;
using testing::IsMark;
using testing::kMost;
using testing::Numbers;
using testing::Pipeline;
using testing::Read;
using testing::Rounds;
using testing::Values;

TEST_CASE("random pipelines yield what loops over vectors do") {
  Generators generators(3, false);
  int64_t examples = 0;
  for (int round = 0; round < Rounds(3000); ++round) {
    const Pipeline pipeline = generators.Make();
    CAPTURE(pipeline.text);
    if (pipeline.values.size() > kMost) continue;
    REQUIRE(Read(pipeline.dataset) == pipeline.values);
    REQUIRE(Read(pipeline.dataset) == pipeline.values);  // caches are filled
    const int64_t size = pipeline.dataset.cardinality();
    if (size != kUnknownCardinality) {
      CHECK(size == static_cast<int64_t>(pipeline.values.size()));
    }
    examples += static_cast<int64_t>(pipeline.values.size());
  }
  CHECK(examples > Rounds(20'000));  // the generator makes something to see
}

TEST_CASE("random pipelines go on anywhere") {
  for (const bool random : {false, true}) {
    Generators generators(random ? 11 : 13, random);
    int64_t marks = 0;
    for (int round = 0; round < Rounds(2000); ++round) {
      const Pipeline pipeline = generators.Make();
      CAPTURE(pipeline.text);
      const Values whole = Read(pipeline.dataset);
      const int64_t at = generators.Draw(0, static_cast<int64_t>(whole.size()));
      CAPTURE(at);
      Iterator saved = pipeline.dataset.MakeIterator();
      REQUIRE(Read(&saved, at).size() == static_cast<size_t>(at));
      const std::string position = saved.SavePosition();
      CAPTURE(position);
      if (IsMark(position)) ++marks;
      Iterator resumed = pipeline.dataset.MakeIterator();
      // Restoring must not depend on where the iterator was.
      Read(&resumed, generators.Draw(0, 5));
      const Status status = resumed.Restore(position);
      REQUIRE_MESSAGE(status.ok(), status.message());
      CHECK(resumed.SavePosition() == position);
      const Values rest(whole.begin() + at, whole.end());
      REQUIRE(Read(&resumed, kMost - at) == rest);
    }
    CHECK(marks > Rounds(500));
  }
}

// Appends the next batch of each worker; false at the end, where all are.
bool ReadEach(std::vector<Iterator>* workers, Values* values) {
  size_t ended = 0;
  for (Iterator& worker : *workers) {
    Example batch;
    if (!worker.Next(&batch).ValueOrThrow()) {
      ++ended;
      continue;
    }
    REQUIRE(batch["x"].shape().rank() == 1);
    const auto rows = batch["x"].values<int64_t>();
    values->insert(values->end(), rows.begin(), rows.end());
  }
  REQUIRE((ended == 0 || ended == workers->size()));
  return ended == 0;
}

TEST_CASE("random pipelines in batches, shared out, with other batch sizes") {
  Generators generators(17, true);
  for (int round = 0; round < Rounds(1500); ++round) {
    const Pipeline pipeline = generators.Make();
    CAPTURE(pipeline.text);
    const Values whole = Read(pipeline.dataset);
    const int64_t n = generators.Draw(1, 9);
    const int64_t size = generators.Draw(1, std::min<int64_t>(n, 4));
    const bool padded = generators.Draw(0, 2) == 0;
    const auto batches = [&](int64_t of) {
      return padded ? pipeline.dataset.PaddedBatch(of)
                    : pipeline.dataset.Batch(of);
    };
    CAPTURE(n);
    CAPTURE(size);
    CAPTURE(padded);
    // The workers' rows side by side are the whole; after `stop` batches
    // another number of workers goes on, or, where the position is a mark,
    // other batches.
    const int64_t stop = generators.Draw(0, 6);
    Values read;
    std::vector<Iterator> workers;
    for (int64_t rank = 0; rank < size; ++rank) {
      workers.push_back(batches(n).Share(rank, size).MakeIterator());
    }
    bool ended = false;
    for (int64_t i = 0; i < stop && !ended; ++i) {
      ended = !ReadEach(&workers, &read);
    }
    // Marks of one place may differ, as some have seen the end of an input.
    const auto saver = static_cast<size_t>(generators.Draw(0, size - 1));
    const std::string position = workers[saver].SavePosition();
    CAPTURE(position);
    if (!IsMark(position)) CHECK(workers[0].SavePosition() == position);
    const int64_t other = IsMark(position) ? generators.Draw(1, 9) : n;
    const int64_t others = generators.Draw(1, std::min<int64_t>(other, 4));
    std::vector<Iterator> resumed;
    for (int64_t rank = 0; rank < others; ++rank) {
      resumed.push_back(batches(other).Share(rank, others).MakeIterator());
      const Status status = resumed.back().Restore(position);
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
    for (ended = false; !ended && read.size() < whole.size();) {
      ended = !ReadEach(&resumed, &read);
    }
    REQUIRE(read == whole);
  }
}

TEST_CASE("damaged positions are errors or places, never more") {
  Generators generators(19, true);
  int64_t refused = 0;
  for (int round = 0; round < Rounds(1500); ++round) {
    const Pipeline pipeline = generators.Make();
    CAPTURE(pipeline.text);
    Iterator iterator = pipeline.dataset.MakeIterator();
    Read(&iterator, generators.Draw(0, 20));
    nlohmann::json position = nlohmann::json::parse(iterator.SavePosition());
    if (!position.contains("at")) continue;
    nlohmann::json& mark = position["at"];
    for (int64_t changes = generators.Draw(1, 3); changes > 0; --changes) {
      const auto i = static_cast<size_t>(
          generators.Draw(0, static_cast<int64_t>(mark.size())));
      const int64_t value = generators.Draw(0, 3) == 0
                                ? generators.Draw(INT64_MIN, INT64_MAX)
                                : generators.Draw(-1, 40);
      if (i == mark.size() || generators.Draw(0, 4) == 0) {
        mark.insert(mark.begin() + static_cast<int64_t>(i), value);
      } else if (generators.Draw(0, 3) == 0) {
        mark.erase(i);
      } else {
        mark[i] = value;
      }
    }
    const Status status = iterator.Restore(position.dump());
    if (!status.ok()) {
      ++refused;
      continue;
    }
    Example example;
    for (int i = 0; i < 50; ++i) {
      const Result<bool> more = iterator.Next(&example);
      if (!more.ok() || !*more) break;
    }
  }
  CHECK(refused > Rounds(100));
  // Without its mark it is no position at all.
  Iterator filtered =
      Numbers(9).Filter([](const Example&) { return true; }).MakeIterator();
  nlohmann::json position = nlohmann::json::parse(filtered.SavePosition());
  position.erase("at");
  CHECK(filtered.Restore(position.dump()).code() == Code::kInvalidArgument);
  position["at"] = {1.5};
  CHECK(filtered.Restore(position.dump()).code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
