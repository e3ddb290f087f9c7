// How old the values are that workers with speeds of their own compute their
// gradients of, against a script of who does what when.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/summaries/event_file.h"
#include "models/train/hooks/scalar_log.h"
#include "tests/support/served_training.h"
#include "tests/support/turns.h"

namespace sluice {
namespace {

using testing::kAnyLead;
using testing::kSync;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;
using testing::TrainOn;
using testing::Turns;

// Of training.
std::vector<double> Scalars(const std::string& log_dir,
                            const std::string& name) {
  std::vector<double> values;
  for (const ScalarRow& row : ReadScalars(log_dir).ValueOrThrow()) {
    if (row.set == "train" && row.name == name) values.push_back(row.value);
  }
  return values;
}

#ifdef SLUICE_HAVE_PROTOBUF
int64_t Histograms(const std::string& log_dir) {
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(log_dir + "/train")) {
    const EventFile file = ReadEvents(entry.path().string()).ValueOrThrow();
    for (const EventRecord& record : file.records) {
      if (record.kind == "histogram" && record.tag == "staleness") ++count;
    }
  }
  return count;
}
#endif

TEST_CASE("an update is as stale as others updated since its worker has read") {
  std::mt19937 random(12);
  for (int trial = 0; trial < 3; ++trial) {
    CAPTURE(trial);
    std::vector<Turns::Round> rounds(12);
    for (size_t left = rounds.size(); left > 0; --left) {
      Turns::Round& round = rounds[random() % rounds.size()];
      ++(random() % 3 == 0 ? round.after : round.within);
    }
    std::map<int64_t, int64_t> wanted;
    std::vector<double> one_by_one;
    for (const Turns::Round& round : rounds) {
      ++wanted[round.within];
      one_by_one.push_back(static_cast<double>(round.within));
    }
    const auto steps = static_cast<int64_t>(rounds.size());
    std::map<int64_t, int64_t> staleness[2];
    Turns turns(
        std::move(rounds),
        // Its variables have come when it has a product of them.
        [](const InstructionLabel& ran) {
          return ran.node.find("logits") != std::string::npos;
        },
        [&](TrainingRun& run) {
          staleness[run.workers().rank()] = run.staleness();
        });
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
    task.run.steps = 2 * steps;
    TemporaryFolder folder;
    task.options = [&](int) {
      return TrainingOptions{
          .log_dir = folder / "log", .evaluate_every = 0, .log_every = 2};
    };
    task.add_hooks = [&](Trainer& trainer) { turns.AddTo(trainer); };
    for (const Trained& each : TrainOn(1 + trial, 2, kAnyLead, task)) {
      REQUIRE(each.error == "");
    }
    CHECK(staleness[0] == wanted);
    CHECK(staleness[1] == std::map<int64_t, int64_t>{{0, steps}});
    // What is told is of what came since it was told last.
    CHECK(Scalars(folder / "log", "staleness_mean") == one_by_one);
    CHECK(Scalars(folder / "log", "staleness_max") == one_by_one);
#ifdef SLUICE_HAVE_PROTOBUF
    CHECK(Histograms(folder / "log") == steps);
#endif
  }
  // Where all do a step together nothing is counted.
  for (const int workers : {1, 2}) {
    TemporaryFolder folder;
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log", .log_every = 1};
    };
    task.after_step = [](int, TrainingRun& run) {
      CHECK(run.staleness().empty());
    };
    for (const Trained& each : TrainOn(1, workers, kSync, task)) {
      CHECK(each.error == "");
    }
    CHECK(Scalars(folder / "log", "staleness_mean").empty());
    CHECK(Scalars(folder / "log", "loss").size() > 1);
  }
}

}  // namespace
}  // namespace sluice
