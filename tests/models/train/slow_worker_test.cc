// One of several workers is slow, and a training says which: by how long each
// waits for the others, by its own rate where it has one, and while it is
// waited for. What steps wait for servers and stages counts.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "models/train/hooks/hook.h"
#include "models/train/hooks/scalar_log.h"
#include "models/train/hooks/throughput.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::JobServers;
using testing::kSync;
using testing::Lead;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;

constexpr int kWorkers = 3;
constexpr int kSlow = 1;

// Of the whole training, as rank 0 has them.
class WholeRates : public Hook {
 public:
  explicit WholeRates(Rates* rates) : rates_(rates) {}
  void Begin(TrainingRun& run) override { throughput_.Start(run); }
  void End(TrainingRun& run) override {
    if (run.workers().leads()) *rates_ = throughput_.Since(run);
  }

 private:
  Rates* const rates_;
  Throughput throughput_;
};

// Whose worker, or those up to `last`, takes long to read: longer than a busy
// machine keeps any waiting.
Task SlowTask(Rates* rates, int first = kSlow, int last = kSlow) {
  Task task{.spec =
                [first, last](int rank) {
                  const bool slow = first <= rank && rank <= last;
                  TrainerSpec spec = PlainSpec();
                  spec.input = [slow](const RunContext& run) {
                    return testing::Points(run).Map([slow](Example&) {
                      if (!slow) return;
                      std::this_thread::sleep_for(milliseconds(60));
                    });
                  };
                  return spec;
                },
            .run = ToyRun(2)};
  task.add_hooks = [rates](Trainer& trainer) {
    trainer.AddHook(std::make_unique<WholeRates>(rates));
  };
  return task;
}

void CheckSlowWaitsLeast(const std::vector<double>& waits) {
  REQUIRE(waits.size() == kWorkers);
  for (int rank = 0; rank < kWorkers; ++rank) {
    CAPTURE(rank);
    const double wait = waits[static_cast<size_t>(rank)];
    CHECK(wait >= 0);
    CHECK(wait <= 1);
    if (rank != kSlow) CHECK(wait > waits[kSlow] + 0.1);
  }
}

TEST_CASE("in step the slow one is the one that waits least") {
  const TemporaryFolder folder;
  Rates rates;
  Task task = SlowTask(&rates);
  task.options = [&](int) {
    return TrainingOptions{.log_dir = folder / "log", .log_every = 10};
  };
  for (const Trained& each : TrainWith(kWorkers, task)) {
    REQUIRE(each.error == "");
  }
  CheckSlowWaitsLeast(rates.worker_exchange_waits);
  CHECK(rates.worker_examples_per_second.empty());  // all are as fast

  std::vector<double> waits(kWorkers);
  double all = 0, each = 0;
  for (const ScalarRow& row : ReadScalars(folder / "log").ValueOrThrow()) {
    if (row.step != 20 || row.set != "train") continue;
    if (row.name == "examples_per_second") all = row.value;
    if (row.name == "examples_per_second_per_worker") each = row.value;
    for (int rank = 0; rank < kWorkers; ++rank) {
      if (row.name != fmt::format("exchange_wait/rank_{}", rank)) continue;
      waits[static_cast<size_t>(rank)] = row.value;
    }
  }
  CheckSlowWaitsLeast(waits);
  CHECK(each > 0);
  CHECK(each == doctest::Approx(all / kWorkers));
}

TEST_CASE("workers with their own speeds have rates of their own") {
  Rates rates;
  for (const Trained& each :
       TrainOn(1, kWorkers, /*lead=*/2, SlowTask(&rates))) {
    REQUIRE(each.error == "");
  }
  CheckSlowWaitsLeast(rates.worker_exchange_waits);
  const std::vector<double>& all = rates.worker_examples_per_second;
  REQUIRE(all.size() == kWorkers);
  for (const double rate : all) CHECK(rate > 0);
  CHECK(rates.examples_per_second ==
        doctest::Approx(std::accumulate(all.begin(), all.end(), 0.0)));
}

TEST_CASE("a stage that waits for a slow one counts that") {
  Rates rates;
  Task task = SlowTask(&rates);
  task.run = ToyRun(1);
  task.stages = 2;
  task.options = [](int) { return testing::Virtual(4); };
  for (const Trained& each : TrainWith(2, task)) REQUIRE(each.error == "");
  CHECK(rates.exchange_wait > 0.1);
  CHECK(rates.exchange_wait <= 1);
}

// Both stages of the second one are as slow, so that none waits within it.
TEST_CASE("a replica that waits for a slow one counts that") {
  Rates rates;
  Task task = SlowTask(&rates, /*first=*/2, /*last=*/3);
  task.run = ToyRun(1);
  task.stages = 2;
  task.options = [](int) { return testing::Virtual(4); };
  for (const Trained& each : TrainWith(4, task)) REQUIRE(each.error == "");
  REQUIRE(rates.worker_exchange_waits.size() == 4);
  for (const size_t rank : {0, 1}) {
    CAPTURE(rank);
    CHECK(rates.worker_exchange_waits[rank] > 0.1);
    CHECK(rates.worker_exchange_waits[rank] <= 1);
  }
}

TEST_CASE("what a worker waits for values of servers counts") {
  Rates rates;
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<WholeRates>(&rates));
  };
  for (const Trained& each : TrainOn(1, /*workers=*/1, kSync, task)) {
    REQUIRE(each.error == "");
  }
  CHECK(rates.exchange_wait > 0);
  CHECK(rates.exchange_wait < 1);
}

// What any worker may say, and no more.
class NotesOfAny : public testing::RecordingReporter {
 public:
  void Note(std::string_view) override {}
  void NoteOfAny(std::string_view line) override {
    RecordingReporter::Note(line);
  }
};

// What each rank says while one worker does nothing for a while, and the most
// lines that one can say in the time that it all takes.
struct StallLines {
  std::vector<std::string> by_rank;
  int64_t most = 0;
};

StallLines SaidInStall(Lead lead, std::optional<int64_t> backups) {
  constexpr milliseconds kNote(300);
  std::array<NotesOfAny, kWorkers> notes;
  JobServers job(1);
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  task.options = [&](int rank) {
    TrainingOptions options;
    options.reporter = &notes[static_cast<size_t>(rank)];
    options.servers = job.For(rank, lead);
    options.servers.backups = backups;
    options.servers.stall_note = kNote;
    return options;
  };
  bool stalled = false;
  task.after_step = [&](int rank, TrainingRun&) {
    if (rank != kSlow || std::exchange(stalled, true)) return;
    // So long that the others have waited for a note's time of it, even where
    // the machine is busy.
    std::this_thread::sleep_for(milliseconds(3000));
  };
  const auto begin = std::chrono::steady_clock::now();
  for (const Trained& each : TrainWith(kWorkers, task)) {
    REQUIRE(each.error == "");
  }
  StallLines said;
  said.most = (std::chrono::steady_clock::now() - begin) / kNote;
  for (const NotesOfAny& each : notes) said.by_rank.push_back(each.text());
  return said;
}

void CheckFewLines(const StallLines& said) {
  for (const std::string& text : said.by_rank) {
    CAPTURE(text);
    CHECK(std::count(text.begin(), text.end(), '\n') <= said.most);
  }
}

TEST_CASE("whoever waits for a slower one says so") {
  const StallLines said = SaidInStall(/*lead=*/0, std::nullopt);
  CAPTURE(said.by_rank[0]);
  CHECK(Contains(said.by_rank[0],
                 "s ranks 0, 2 of 3 have waited for rank 1, which has done the "
                 "fewest steps\n"));
  // One of them does, the first.
  for (const size_t rank : {1, 2}) {
    CAPTURE(said.by_rank[rank]);
    CHECK_FALSE(Contains(said.by_rank[rank], "ranks 0"));
  }
  CheckFewLines(said);
}

TEST_CASE("whoever waits for contributions says for whose") {
  const StallLines said = SaidInStall(kSync, 0);
  CAPTURE(said.by_rank[0]);
  CHECK(Contains(said.by_rank[0],
                 "s rank 0 of 3 has waited for rank 1 to end the step\n"));
  // Unless rank 0 were waited for, too.
  CAPTURE(said.by_rank[2]);
  CHECK_FALSE(Contains(said.by_rank[2], "waited for rank 1 to"));
  CheckFewLines(said);
}

}  // namespace
}  // namespace sluice
