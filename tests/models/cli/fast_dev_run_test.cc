// The rehearsal: what it goes through, what it says, what it leaves behind.
#include "models/cli/fast_dev_run.h"

#include <doctest/doctest.h>
#include <stdlib.h>  // NOLINT: setenv is POSIX's

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "models/nn/layers.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::StderrOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// Puts temporary folders into one of the test's own meanwhile.
class OwnTemporary {
 public:
  OwnTemporary() {
    const char* const before = ::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    Set(folder_.path());
  }
  ~OwnTemporary() {
    if (before_.empty()) {
      ::unsetenv("TMPDIR");
    } else {
      Set(before_);
    }
  }
  OwnTemporary(const OwnTemporary&) = delete;
  OwnTemporary& operator=(const OwnTemporary&) = delete;
  static void Set(const std::string& path) {
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  bool empty() const { return std::filesystem::is_empty(folder_.path()); }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

struct Outcome {
  std::string error, notes;
};

Outcome Rehearse(const TrainerSpec& spec, const TrainingOptions& options = {},
                 const RunContext& run = ToyRun(10)) {
  const OwnTemporary temporary;
  Outcome outcome;
  outcome.notes = StderrOf([&] {
    outcome.error = ErrorOf([&] { FastDevRun(spec, run, options); });
  });
  CHECK(temporary.empty());
  return outcome;
}

bool Lacks(const std::string& text, const std::string& part) {
  return text.find(part) == std::string::npos;
}

// In this order.
void CheckStages(const std::string& notes,
                 const std::vector<std::string>& stages) {
  size_t at = 0;
  for (const std::string& stage : stages) {
    const size_t found = notes.find("fast dev run: " + stage + ": ", at);
    if (found == std::string::npos) FAIL("no '", stage, "' in: ", notes);
    at = found + 1;
  }
}

TEST_CASE("a program that gets through") {
  const Outcome outcome = Rehearse(ToySpec());
  CHECK(outcome.error == "(no error)");
  CheckStages(outcome.notes,
              {"2 training steps", "resuming for one more step", "evaluation",
               "prediction", "export", "prediction of the exported model"});
  CHECK(outcome.notes.ends_with("fast dev run: all is well\n"));
}

TEST_CASE("its steps, batches and modes") {
  std::vector<Mode> models;
  int64_t read[3] = {0, 0, 0};  // examples, by mode
  TrainerSpec spec = ToySpec();
  spec.input = [&](const RunContext& run) {
    const auto mode = static_cast<size_t>(run.mode);
    return testing::Points(run).Map(
        [&read, mode](Example& batch) { read[mode] += RowsOf(batch); });
  };
  spec.model = [&](Scope& scope, const Features& in, const RunContext& run) {
    models.push_back(run.mode);
    CHECK(run.total_steps() == 3);
    return testing::Network(scope, in, run);
  };
  // Whose folder and training are left alone.
  TemporaryFolder folder;
  TrainingOptions options;
  options.log_dir = folder / "log";
  Trainer(ToySpec(), ToyRun(1), options).Train();
  const auto listing = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(folder.path()))) {
      names.push_back(entry.path().string());
    }
    return names;
  };
  const std::vector<std::string> before = listing();
  options.restart = true;
  options.checkpoint = {.kind = CheckpointChoice::Kind::kStep, .step = 77};
  CHECK(Rehearse(spec, options).error == "(no error)");
  CHECK(listing() == before);

  using enum Mode;
  CHECK(models == std::vector<Mode>{kTrain, kEval, kTrain, kEval, kEval,
                                    kPredict, kPredict});
  // A sample and a batch each time.
  CHECK(read[static_cast<size_t>(kEval)] <= 3 * (25 + 1));
  CHECK(read[static_cast<size_t>(kPredict)] <= 2 * (25 + 1));
}

TEST_CASE("so many steps as two updates take") {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [](const RunContext&) {
    return optimizers::Sgd(0.1).With(gradients::Accumulate(3));
  };
  const Outcome outcome = Rehearse(spec);
  CHECK(outcome.error == "(no error)");
  CheckStages(outcome.notes, {"6 training steps", "evaluation"});
}

TEST_CASE("what refuses the training as it is asked for refuses this, too") {
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    return datasets::FromTensors(
               {{"x", Tensor::Full(DType::kFloat32, {250, 3}, 0.5)},
                {"label", Tensor::Zeros(DType::kInt64, {250})}})
        .Filter([](const Example&) { return true; })  // nobody knows how many
        .Batch(run.batch_size);
  };
  const auto constant = [](const RunContext&) { return optimizers::Sgd(0.1); };
  const auto falling = [](const RunContext& run) {
    return optimizers::Sgd(schedules::Cosine(0.1, run.total_steps()));
  };
  const auto check = [&](const RunContext& run, const std::string& part) {
    const std::string refused =
        ErrorOf([&] { Trainer(spec, run, {}).Train(); });
    CHECK(Contains(refused, part));
    CHECK(Rehearse(spec, {}, run).error ==
          "fast dev run: 2 training steps: " + refused);
  };
  check(ToyRun(2), "how many steps an epoch has is not known");
  spec.optimizer = constant;
  check(ToyRun(1.5), "a whole number of epochs");
  CHECK(Rehearse(spec, {}, ToyRun(2)).error == "(no error)");
  spec.optimizer = falling;
  check(ToyRun(2), "needs the number of steps");
  RunContext known = ToyRun(2);
  known.steps = 8;
  CHECK(Rehearse(spec, {}, known).error == "(no error)");
}

TEST_CASE("nothing to predict") {
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    model.exports.clear();
    return model;
  };
  // Nor is its input asked for.
  spec.input = [](const RunContext& run) {
    REQUIRE(run.mode != Mode::kPredict);
    return testing::Points(run);
  };
  const Outcome outcome = Rehearse(spec);
  CHECK(outcome.error == "(no error)");
  CheckStages(outcome.notes, {"evaluation"});
  CHECK(Contains(outcome.notes, "the model has no exports"));
  CHECK(Lacks(outcome.notes, "fast dev run: export"));
  CHECK(outcome.notes.ends_with("fast dev run: all is well\n"));
}

TEST_CASE("exports when the model is not training alone") {
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    if (run.training()) model.exports.clear();
    return model;
  };
  const Outcome outcome = Rehearse(spec);
  CHECK(outcome.error == "(no error)");
  CheckStages(outcome.notes, {"prediction of the exported model"});
}

TEST_CASE("what fails is told with its stage, and no folder stays") {
  const auto failing = [](Mode mode) {
    TrainerSpec spec = ToySpec();
    spec.input = [mode](const RunContext& run) {
      if (run.mode == mode) {
        throw Error(Code::kNotFound, "no file 'digits'");
      }
      return testing::Points(run);
    };
    return spec;
  };
  CHECK(Rehearse(failing(Mode::kTrain)).error ==
        "fast dev run: 2 training steps: no file 'digits'");
  // Training looks at what it will evaluate on before the first step.
  CHECK(Rehearse(failing(Mode::kEval)).error ==
        "fast dev run: 2 training steps: no file 'digits'");
  CHECK(Rehearse(failing(Mode::kPredict)).error ==
        "fast dev run: prediction: no file 'digits'");

  // The third evaluation input is the evaluation's own.
  TrainerSpec spec = ToySpec();
  int evaluations = 0;
  spec.input = [&](const RunContext& run) {
    if (run.mode == Mode::kEval && ++evaluations == 3) {
      throw std::runtime_error("gone");
    }
    return testing::Points(run);
  };
  Outcome outcome = Rehearse(spec);
  CHECK(outcome.error == "fast dev run: evaluation: gone");
  CheckStages(outcome.notes, {"resuming for one more step"});
  CHECK(Lacks(outcome.notes, "all is well"));

  // A variable that another model does not have cannot be resumed with.
  spec = ToySpec();
  int models = 0;
  spec.model = [&](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    if (run.training() && ++models == 2) {
      model.loss = model.loss + scope.graph().Variable("second", Ones({}));
    }
    return model;
  };
  outcome = Rehearse(spec);
  CHECK(Contains(outcome.error, "fast dev run: resuming for one more step: "));
  CHECK(Contains(outcome.error, "second"));

  spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    if (run.training()) model.loss = model.loss * Log(Mean(in["x"]) * 0 - 1);
    return model;
  };
  CHECK(Contains(Rehearse(spec).error, "fast dev run: 2 training steps: "));
}

TEST_CASE("an input that is too short to resume in") {
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    RunContext other = run;
    other.mode = Mode::kEval;  // without Repeat
    return testing::Points(other).Take(2);
  };
  CHECK(Rehearse(spec).error ==
        "fast dev run: resuming for one more step: wanted 3 steps: the input "
        "ended after 2 steps");
}

TEST_CASE("a model that an export changes is found out") {
  // The second that is built to predict, which is exported, differs.
  TrainerSpec spec = ToySpec();
  int predicting = 0;
  spec.model = [&](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    if (run.mode == Mode::kPredict && ++predicting == 2) {
      model.exports[0].second = model.exports[0].second * 1.5;
    }
    return model;
  };
  const Outcome outcome = Rehearse(spec);
  CHECK(Contains(outcome.error,
                 "fast dev run: prediction of the exported model: "
                 "'probabilities' is float32[25,3]"));
}

TEST_CASE("integers, numbers that are none, and half precision") {
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    const Output p = model.exports[0].second;
    model.exports.emplace_back("class", ArgMax(p));
    model.exports.emplace_back("nothing", Log(p - 2));
    return model;
  };
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
    TrainingOptions options;
    options.session.precision = precision;
    CHECK(Rehearse(spec, options).error == "(no error)");
  }
}

TEST_CASE("weights are what it begins with") {
  TemporaryFolder folder;
  TrainingOptions training;
  training.log_dir = folder / "log";
  const std::string saved =
      Trainer(ToySpec(), ToyRun(1), training).Train().checkpoint;
  TrainingOptions options;
  options.weights = saved;
  // And no more than that: they are gone when it resumes. (The first of three
  // inputs tells how long the training is.)
  TrainerSpec spec = ToySpec();
  int inputs = 0;
  spec.input = [&](const RunContext& run) {
    if (run.training() && ++inputs == 3) std::filesystem::remove(saved);
    return testing::Points(run);
  };
  CHECK(Rehearse(spec, options).error == "(no error)");
  CHECK(inputs == 3);
  CHECK(!std::filesystem::exists(saved));
  options.weights = folder / "none.safetensors";
  CHECK(Contains(Rehearse(ToySpec(), options).error,
                 "fast dev run: 2 training steps: "));
}

// Ends at the n-th question.
class StopAt : public StopToken {
 public:
  explicit StopAt(int question) : left_(question) {}
  std::string Reason() const override {
    return --left_ < 0 ? "SIGINT was received" : "";
  }

 private:
  mutable int left_;
};

TEST_CASE("it may be interrupted anywhere") {
  bool whole = false;
  int early = 0;
  for (int question = 0; question < 100 && !whole; ++question) {
    CAPTURE(question);
    const StopAt stop(question);
    TrainingOptions options;
    options.stop = &stop;
    const Outcome outcome = Rehearse(ToySpec(), options);
    CHECK(outcome.error == "(no error)");
    whole = outcome.notes.ends_with("fast dev run: all is well\n");
    if (whole) continue;
    ++early;
    CHECK(outcome.notes.ends_with(
        "fast dev run: ended early: SIGINT was received\n"));
  }
  CHECK(whole);
  CHECK(early > 6);
}

TEST_CASE("no place for temporary files") {
  TemporaryFolder folder;
  const OwnTemporary temporary;
  OwnTemporary::Set(folder / "none");
  const std::string error =
      ErrorOf([&] { FastDevRun(ToySpec(), ToyRun(1), {}); });
  CHECK(Contains(error, "no temporary folder"));
  CHECK(Contains(error, "TMPDIR"));
}

}  // namespace
}  // namespace sluice
