// Models that are not what ModelSpec promises: each is an Error that names what
// is wrong, before anything runs where that can be told.
#include "models/train/run/check_model.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/train/export.h"
#include "models/train/run/inference.h"
#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// Changes what the toy's model function returns in the modes that are not
// training.
using Change = std::function<void(ModelSpec& model, const Features& in)>;
TrainerSpec Changed(const Change& change, bool training = false) {
  TrainerSpec spec = ToySpec();
  spec.model = [network = spec.model, change, training](
                   Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = network(scope, in, run);
    if (run.training() == training) change(model, in);
    return model;
  };
  return spec;
}

std::string ErrorOfMode(const Change& change, Mode mode) {
  RunContext run = ToyRun(1);
  run.mode = mode;
  if (mode == Mode::kTrain) {
    return ErrorOf(
        [&] { TrainingRun(Changed(change, true), run, TrainingOptions()); });
  }
  return ErrorOf([&] { Inference(Changed(change), run, SessionOptions()); });
}

Metric Stateless(const Output& values) {
  return {{values}, [] { return std::unique_ptr<MetricState>(); }};
}

TEST_CASE("what is empty in a model is named, in every mode") {
  for (const Mode mode : {Mode::kTrain, Mode::kEval, Mode::kPredict}) {
    CAPTURE(static_cast<int>(mode));
    const auto error = [&](const Change& change) {
      return ErrorOfMode(change, mode);
    };
    CHECK(Contains(error([](ModelSpec& model, const Features&) {
                     model.exports.emplace_back("nowhere", Output());
                   }),
                   "toy: export 'nowhere' is an empty Output"));
    CHECK(Contains(error([](ModelSpec& model, const Features&) {
                     model.summaries.emplace_back("unseen", Output());
                   }),
                   "toy: summary 'unseen' is an empty Output"));
    CHECK(Contains(error([](ModelSpec& model, const Features& in) {
                     model.metrics.emplace_back("idle", Stateless(in["x"]));
                   }),
                   "toy: metric 'idle': its function that makes states "
                   "returned none"));
    CHECK(Contains(error([](ModelSpec& model, const Features& in) {
                     model.exports.emplace_back("mean", Mean(in["x"]));
                   }),
                   "toy: export 'mean' is a scalar"));
    const std::string no_loss =
        error([](ModelSpec& model, const Features&) { model.loss = Output(); });
    CHECK(Contains(no_loss, mode == Mode::kPredict
                                ? "(no error)"
                                : "toy: the model function returned no loss"));
  }
}

TEST_CASE("metrics, updates and hooks are not empty") {
  CHECK(Contains(ErrorOf([] { Metric metric((Output())); }),
                 "Metric: tensor 1 of 1 is an empty Output"));
  Graph graph;
  const Output x = graph.Constant(Tensor::Scalar(1.0F));
  const Metric::Start start = [] { return std::unique_ptr<MetricState>(); };
  CHECK(Contains(ErrorOf([&] {
                   Metric({x, Output()}, start);
                 }),
                 "Metric: tensor 2 of 2 is an empty Output"));
  CHECK(Contains(ErrorOf([&] { Metric({x}, nullptr); }),
                 "Metric: no function that makes its states"));
  CHECK(Contains(ErrorOf([&] { Metric({x}, start).Begin(); }),
                 "its function that makes states returned none"));

  const std::string update = ErrorOf([&] { graph.AddUpdate(Operation()); });
  CHECK(Contains(update, "AddUpdate: the operation is an empty handle"));
  CHECK(Contains(update, "check_model_test.cc:"));
  CHECK(graph.updates().empty());

  Trainer trainer(ToySpec(), ToyRun(1), {});
  CHECK(Contains(ErrorOf([&] { trainer.AddHook(nullptr); }),
                 "toy: AddHook got no hook"));
}

// As tf.estimator's model functions do it.
TEST_CASE("a model without a loss or metrics predicts and is exported") {
  TrainerSpec spec = ToySpec();
  spec.model = [network = spec.model](Scope& scope, const Features& in,
                                      const RunContext& run) {
    ModelSpec model = network(scope, in, run);
    if (run.mode == Mode::kPredict) return ModelSpec{.exports = model.exports};
    return model;
  };
  TemporaryFolder folder;
  Trainer trainer(spec, ToyRun(1), {.log_dir = folder / "log"});
  trainer.Train();
  std::vector<Tensor> wanted;  // of the model with a loss
  Trainer(ToySpec(), ToyRun(1), {.log_dir = folder / "log"})
      .Predict([&](const Example&, const Example& exports) {
        wanted.push_back(exports["probabilities"].Clone());
        return true;
      });
  REQUIRE(wanted.size() == 10);
  trainer.Export(folder / "model");
  const auto exported = LoadExported(folder / "model");
  size_t batches = 0;
  trainer.Predict([&](const Example& batch, const Example& exports) {
    CHECK(exports["probabilities"].BitEqual(wanted[batches++]));
    CHECK(exported->Predict(batch)["probabilities"].BitEqual(
        exports["probabilities"]));
    return true;
  });
  CHECK(batches == wanted.size());

  RunContext run = ToyRun(1);
  run.mode = Mode::kPredict;
  Inference inference(spec, run, SessionOptions());
  inference.Initialize();
  CHECK(Contains(ErrorOf([&] { inference.Evaluate(); }),
                 "cannot be evaluated: it was made to predict"));
}

TEST_CASE("exports have one row per example, else the run says so") {
  const auto error = [](Mode mode, const std::function<Output(Output)>& of) {
    RunContext run = ToyRun(1);
    run.mode = mode;
    Inference inference(Changed([&](ModelSpec& model, const Features& in) {
                          model.exports.emplace_back("odd", of(in["x"]));
                        }),
                        run, SessionOptions());
    inference.Initialize();
    const OnBatch each = [](const Example& batch, const Example& exports) {
      for (const auto& [name, tensor] : exports) {
        CHECK(tensor.shape()[0] == RowsOf(batch));
      }
      return true;
    };
    return ErrorOf([&] {
      if (mode == Mode::kEval) {
        inference.Evaluate({.each = each});
      } else {
        inference.Predict(each);
      }
    });
  };
  for (const Mode mode : {Mode::kEval, Mode::kPredict}) {
    CHECK(Contains(error(mode, [](Output x) { return Reshape(x, {-1}); }),
                   "export 'odd' is [75] for a batch of 25 examples, wanted "
                   "one row per example"));
    CHECK(Contains(error(mode,
                         [](Output x) {
                           return Transpose(x, {1, 0});
                         }),
                   "export 'odd' is [3,25] for a batch of 25 examples"));
    CHECK(error(mode, [](Output x) { return Sum(x, {1}); }) == "(no error)");
    CHECK(error(mode, [](Output x) { return ExpandDims(x, 1); }) ==
          "(no error)");
  }
}

TEST_CASE("so do those of exported models") {
  TemporaryFolder folder;
  const TrainerSpec spec = Changed([](ModelSpec& model, const Features& in) {
    model.exports.emplace_back("odd", Reshape(in["x"], {-1}));
  });
  Trainer trainer(spec, ToyRun(1), {.log_dir = folder / "log"});
  trainer.Train();
  trainer.Export(folder / "model");
  const auto exported = LoadExported(folder / "model");
  const Tensor x = Tensor::Full(DType::kFloat32, {2, 3}, 0.5);
  CHECK(Contains(ErrorOf([&] {
                   exported->Predict({{"x", x}});
                 }),
                 "export 'odd' is [6] for a batch of 2 examples"));
}

}  // namespace
}  // namespace sluice
