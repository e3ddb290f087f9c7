// What a checkpoint says of its training is of the one that is used then, and
// needs no second reading.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>

#include "io/checkpoints/checkpoint.h"
#include "io/files/schemes.h"
#include "models/train/trainer.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

class CountedFiles : public FaultFileSystem {
 public:
  std::atomic<int> opened{0};  // to read what they hold
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    ++opened;
    return FaultFileSystem::OpenRead(path);
  }
};

TEST_CASE("what was told of a training is of the checkpoint that is used") {
  static CountedFiles files;
  RegisterScheme("counted", files);
  const std::string log_dir = "counted://log";
  REQUIRE(files.MakeDirectories(log_dir).ok());
  CheckpointManager saved =
      CheckpointManager::Open(log_dir, {.files = &files}).ValueOrThrow();
  TemporaryFolder folder;
  Trainer teacher(ToySpec(), ToyRun(1), {.log_dir = folder / "log"});
  Checkpoint checkpoint =
      ReadCheckpoint(teacher.Train().checkpoint).ValueOrThrow();
  const int64_t step = checkpoint.state.step;
  const std::string position = checkpoint.state.dataset_position;
  REQUIRE(saved.Save(checkpoint).ok());

  Trainer trainer(ToySpec(), ToyRun(1), {.log_dir = log_dir});
  CHECK(trainer.ToldOfTraining(ToyRun(1)).trained_on == position);
  checkpoint.state.step = step + 5;
  REQUIRE(saved.Save(checkpoint).ok());
  const int before = files.opened.load();
  const auto evaluated = trainer.Evaluate();
  REQUIRE(evaluated.has_value());
  CHECK(evaluated->step == step);
  CHECK(evaluated->checkpoint == saved.PathOf(step));
  CHECK(files.opened.load() == before);
  // The next one is chosen anew.
  int batches = 0;
  trainer.Predict([&](const Example&, const Example&) {
    ++batches;
    return true;
  });
  CHECK(batches > 0);
  CHECK(files.opened.load() > before);
  CHECK(trainer.Evaluate()->step == step + 5);
}

}  // namespace
}  // namespace sluice
