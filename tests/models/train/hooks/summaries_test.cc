// A training's scalars.csv: what is in it when, and that a training in pieces,
// or whose file was damaged, keeps it as one in a piece.
#include "models/train/hooks/summaries.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "io/images/png.h"
#include "models/train/hooks/hook.h"
#include "models/train/hooks/scalar_log.h"
#include "models/train/trainer.h"
#include "models/train/workers/reporter.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::TextOf;

using Rows = std::vector<ScalarRow>;

constexpr int64_t kSteps = 30;
constexpr int64_t kLogEvery = 3;

// Ends a training with an error, as a lost device does: the checkpoint is of
// that step, its evaluation is still to come.
class Fail : public Hook {
 public:
  Fail(int64_t step, bool evaluated) : step_(step), evaluated_(evaluated) {}
  void AfterStep(TrainingRun& run) override {
    if (!evaluated_) FailAt(run);
  }
  void AfterEvaluation(TrainingRun& run, const Evaluation&) override {
    FailAt(run);
  }

 private:
  void FailAt(const TrainingRun& run) const {
    if (run.step() == step_) throw Error(Code::kUnavailable, "lost");
  }

  int64_t step_;
  bool evaluated_;
};

// Returns what was noted. With a hook it must fail.
std::string Train(const std::string& log_dir, std::unique_ptr<Hook> hook = {}) {
  testing::RecordingReporter notes;
  TrainingOptions options;
  options.log_dir = log_dir;
  options.log_every = kLogEvery;
  options.evaluate_every = 0.5;  // 5 steps
  options.reporter = &notes;
  Trainer trainer(testing::ToySpec(),
                  testing::ToyRun(static_cast<double>(kSteps) / 10), options);
  const bool fails = hook != nullptr;
  if (fails) trainer.AddHook(std::move(hook));
  CHECK((ErrorOf([&] { trainer.Train(); }) != "(no error)") == fails);
  return notes.text();
}

// What does not depend on how fast the machine is, a line for each row.
std::string Lasting(const std::string& log_dir) {
  std::string lines;
  for (const ScalarRow& row : ReadScalars(log_dir).ValueOrThrow()) {
    const bool speed =
        row.name == "examples_per_second" || row.name == "input_wait";
    lines += fmt::format("{} {} {} {}\n", row.step, row.set, row.name,
                         speed ? 0 : row.value);
  }
  return lines;
}

TEST_CASE("a training's scalars") {
  const TemporaryFolder folder;
  Train(folder / "log");
  std::string want, got;
  for (int64_t step = 1; step <= kSteps; ++step) {
    if (step % kLogEvery == 0) {
      for (const char* name : {"loss", "learning_rate", "examples_per_second",
                               "input_wait", "accuracy"}) {
        want += fmt::format("{} train {}\n", step, name);
      }
    }
    if (step % 5 == 0) {
      want += fmt::format("{0} eval loss\n{0} eval accuracy\n", step);
    }
  }
  const Rows rows = ReadScalars(folder / "log").ValueOrThrow();
  double before = 0;
  for (const ScalarRow& row : rows) {
    got += fmt::format("{} {} {}\n", row.step, row.set, row.name);
    CHECK(row.seconds >= before);
    before = row.seconds;
  }
  CHECK(got == want);
  CHECK(before > 0);
  CHECK(rows[rows.size() - 2].value < rows[0].value);

  // Nothing is left to train, but the end is evaluated again.
  const std::string text = TextOf(folder / "log/scalars.csv");
  Train(folder / "log");
  CHECK(TextOf(folder / "log/scalars.csv") == text);
}

TEST_CASE("a training in pieces has the scalars of one in a piece") {
  const TemporaryFolder folder;
  Train(folder / "whole");
  const std::string whole = Lasting(folder / "whole");
  const std::string beyond = TextOf(folder / "whole/scalars.csv");
  CounterRandom random(1);
  for (const int64_t step : {1, 3, 7, 10, 15, 29, 30}) {
    for (const bool evaluated : {false, true}) {
      if (evaluated && step % 5 != 0) continue;
      CAPTURE(step);
      CAPTURE(evaluated);
      const std::string log =
          folder / (std::to_string(step) + (evaluated ? "e" : ""));
      Train(log, std::make_unique<Fail>(step, evaluated));
      // As if it had gone on behind its last checkpoint until it was killed.
      const Rows rows = ReadScalars(log).ValueOrThrow();
      if (!rows.empty()) CHECK(rows.back().step <= step);
      size_t behind = beyond.find('\n') + 1;
      for (size_t i = 0; i < rows.size(); ++i) {
        behind = beyond.find('\n', behind) + 1;
      }
      const size_t rest = beyond.size() - behind;
      std::ofstream(log + "/scalars.csv", std::ios::app | std::ios::binary)
          << beyond.substr(behind,
                           random.Below(static_cast<uint32_t>(rest) + 1));
      const std::string notes = Train(log);
      CHECK(notes.find("scalars.csv") == std::string::npos);
      CHECK(Lasting(log) == whole);
      double kept = 0;
      for (const auto& row : ReadScalars(log).ValueOrThrow()) {
        if (row.step <= step) kept = row.seconds;
        CHECK(row.seconds >= kept);
      }
    }
  }
}

TEST_CASE("damaged scalars do not end the training") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, std::make_unique<Fail>(15, true));
  const std::string bad = "anything\n";
  std::ofstream(log + "/scalars.csv") << bad;
  CHECK(Contains(Train(log), "scalars.csv', line 1: "));
  CHECK(TextOf(log + "/scalars.csv.damaged") == bad);
  const Rows rows = ReadScalars(log).ValueOrThrow();
  CHECK(rows.front().step >= 15);
  CHECK(rows.back().step == kSteps);
}

// Such as a second and a half of sound at 44.1 kHz; more than a PNG is wide.
TEST_CASE("what only has the rank of pictures is not drawn") {
  for (const Shape& of_example : {Shape{66150, 1, 1}, Shape{1, 32769, 3}}) {
    const TemporaryFolder folder;
    TrainerSpec spec = testing::ToySpec();
    spec.input = [&](const RunContext& run) {
      Shape shape = {4};
      for (const int64_t d : of_example) shape.push_back(d);
      return datasets::FromTensors(
                 {{"x", Tensor::Zeros(DType::kFloat32, shape)},
                  {"label", Tensor::Zeros(DType::kInt64, {4})}})
          .Batch(run.batch_size);
    };
    spec.model = [](Scope& scope, const Features& in, const RunContext&) {
      const Output x = Mean(in["x"], {1, 2});
      const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
      return ModelSpec{
          .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
    };
    RunContext run;
    run.batch_size = 2;
    Trainer trainer(spec, run, {.log_dir = folder / "log"});
    CHECK(trainer.Train().steps == 2);
  }
}

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
// The pictures in a file of events, of which each is all in a piece.
std::vector<Tensor> PicturesIn(std::string_view events) {
  constexpr std::string_view kBegin = "\x89PNG", kEnd = "IEND";
  constexpr size_t kChecksum = 4;  // behind the end
  std::vector<Tensor> pictures;
  for (size_t at = 0; (at = events.find(kBegin, at)) != events.npos;) {
    const size_t end = events.find(kEnd, at) + kEnd.size() + kChecksum;
    REQUIRE(end <= events.size());
    pictures.push_back(DecodePng(events.substr(at, end - at)).ValueOrThrow());
    at = end;
  }
  return pictures;
}

TEST_CASE("pictures of numbers beyond 0 and 1 are stretched") {
  const TemporaryFolder folder;
  TrainerSpec spec = testing::ToySpec();
  spec.input = [](const RunContext& run) {
    const Tensor x =
        Tensor::Array<float>({2, 1, 3, 1}, {-2, 0, 2, 0.25, 0.5, 0.75});
    return datasets::FromTensors(
               {{"x", x}, {"label", Tensor::Zeros(DType::kInt64, {2})}})
        .Batch(run.batch_size);
  };
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    const Output logits =
        layers::Dense(scope / "logits", layers::Flatten(in["x"]), {.units = 3});
    return ModelSpec{.loss =
                         Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
  };
  RunContext run;
  run.batch_size = 2;
  Trainer trainer(spec, run, {.log_dir = folder / "log"});
  REQUIRE(trainer.Train().steps == 1);
  std::vector<Tensor> pictures;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / "log/train")) {
    for (Tensor& picture : PicturesIn(TextOf(entry.path().string()))) {
      pictures.push_back(std::move(picture));
    }
  }
  // Within 0 and 1 they are as they were.
  const std::vector<std::vector<uint8_t>> wanted = {{0, 128, 255},
                                                    {64, 128, 191}};
  REQUIRE(pictures.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    REQUIRE(pictures[i].elements() == 3 * 3);
    for (size_t pixel = 0; pixel < 3; ++pixel) {
      CAPTURE(i);
      CAPTURE(pixel);
      CHECK(pictures[i].data<uint8_t>()[3 * pixel] == wanted[i][pixel]);
    }
  }
}
#endif

// An earlier one that was killed before its first checkpoint leaves scalars.
TEST_CASE("a training that begins anew has its own scalars alone") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log);
  const std::string want = Lasting(log);
  const std::string file = log + "/scalars.csv";
  for (const std::string& before :
       {TextOf(file), std::string("anything\n"),
        std::string("seconds,step,set,name,value\n9999,0,train,loss,1\n")}) {
    std::filesystem::remove_all(log);
    std::filesystem::create_directory(log);
    std::ofstream(file) << before;
    CHECK(Train(log).find("scalars.csv") == std::string::npos);
    CHECK(Lasting(log) == want);
    CHECK(ReadScalars(log).ValueOrThrow().back().seconds < 9999);
  }
}

}  // namespace
}  // namespace sluice
