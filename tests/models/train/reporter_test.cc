// What the trainer tells its reporter and nobody else, and that a stop token
// ends it.
#include "models/train/reporter.h"

#include <doctest/doctest.h>

#include "io/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

class Notes : public Reporter {
 public:
  void Note(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

TEST_CASE("what is told goes to the reporter and nowhere else") {
  TemporaryFolder folder;
  Notes notes;
  TrainingOptions options = {.log_dir = folder / "log"};
  const std::string printed = testing::StderrOf([&] {
    Trainer(ToySpec(), ToyRun(1), options).Train();
    Trainer(ToySpec(), ToyRun(2), options).Train();  // resumes
    options.reporter = &notes;
    Trainer(ToySpec(), ToyRun(3), options).Train();
    Trainer(ToySpec(), ToyRun(3), options).Evaluate();
  });
  CHECK(printed.empty());
  REQUIRE(notes.lines.size() == 2);
  CHECK(Contains(notes.lines[0], "resuming from step 20 of "));
  CHECK(Contains(notes.lines[1], "using "));
}

// Ends what asks it more often than `times`.
class StopAfter : public StopToken {
 public:
  explicit StopAfter(int times) : times_(times) {}
  std::string Reason() const override {
    return asked_++ < times_ ? "" : "enough";
  }

 private:
  int times_;
  mutable int asked_ = 0;
};

std::vector<NamedTensor> Newest(const std::string& log_dir) {
  return CheckpointManager::Open(log_dir)
      .ValueOrThrow()
      .RestoreNewest()
      .ValueOrThrow()
      ->checkpoint.tensors;
}

TEST_CASE("a stop token ends training, which is saved and resumes") {
  TemporaryFolder folder;
  Trainer(ToySpec(), ToyRun(2), {.log_dir = folder / "whole"}).Train();
  const StopAfter stop(7);  // asked once after each step
  TrainingOptions options = {.log_dir = folder / "parts"};
  options.stop = &stop;
  const TrainingResult stopped = Trainer(ToySpec(), ToyRun(2), options).Train();
  CHECK(stopped.steps == 8);
  CHECK(stopped.stop_reason == "enough");
  CHECK(!stopped.evaluation.has_value());
  CHECK(stopped.checkpoint == folder / "parts/checkpoint-8.safetensors");

  options.stop = nullptr;
  const TrainingResult resumed = Trainer(ToySpec(), ToyRun(2), options).Train();
  CHECK(resumed.steps == 20);
  const std::vector<NamedTensor> whole = Newest(folder / "whole");
  const std::vector<NamedTensor> parts = Newest(folder / "parts");
  REQUIRE(parts.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(whole[i].name);
    CHECK(parts[i].name == whole[i].name);
    CHECK(parts[i].tensor.BitEqual(whole[i].tensor));
  }
}

TEST_CASE("a stop token cuts evaluation and prediction short") {
  TemporaryFolder folder;
  TrainingOptions options = {.log_dir = folder / "log"};
  Trainer(ToySpec(), ToyRun(1), options).Train();
  const StopAfter before_all(0), after_two(2);
  options.stop = &before_all;
  CHECK(!Trainer(ToySpec(), ToyRun(1), options).Evaluate().has_value());
  options.stop = &after_two;
  int batches = 0;
  Trainer(ToySpec(), ToyRun(1), options)
      .Predict([&](const Example&, const Example&) { return ++batches > 0; });
  CHECK(batches == 2);
}

}  // namespace
}  // namespace sluice
