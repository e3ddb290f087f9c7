// Trainings of tables by several workers, which exchange the rows that they
// have read: what one process trains.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/sentences.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckNear;
using testing::OfRows;
using testing::Reader;
using testing::Sentences;
using testing::SentencesOnce;
using testing::Task;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

TEST_CASE("several workers train a table as one does") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 8; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    Task task;
    task.run = ToyRun(3);
    task.run.batch_size = workers + static_cast<int64_t>(random() % 20);
    const bool once = random() % 2 == 0;
    bool by_rows = false;
    task.spec = [&](int) {
      TrainerSpec spec = ToySpec();
      spec.input = once ? SentencesOnce : Sentences;
      spec.model = Reader;
      spec.optimizer = [trial](const RunContext&) { return OfRows(trial); };
      return spec;
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank > 0) return;
      for (const auto& node : run.graph().nodes()) {
        by_rows = by_rows || node->Is("AllGather");
      }
    };
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(task.run.batch_size);
    CAPTURE(once);
    const Trained one = TrainWith(1, task)[0];
    CHECK(!by_rows);
    const std::vector<Trained> all = TrainWith(workers, task);
    CHECK(by_rows);
    CheckNear(all[0], one, 2e-4);
    for (const Trained& each : all) CheckEqual(each, all[0]);
    const std::vector<Trained> again = TrainWith(workers, task);
    CheckEqual(again[0], all[0]);
  }
}

}  // namespace
}  // namespace sluice
