// Metrics and exports that would take the place of other fields in the events
// of --json.
#include "models/cli/event_names.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/cli/main.h"
#include "models/cli/predictions.h"
#include "models/cli/progress.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/stderr_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Objects;
using testing::StderrOf;
using testing::StdoutOf;
using testing::ToyRun;
using testing::ToySpec;

// The toy with one more metric and export.
TrainerSpec ToyWith(const std::string& metric, const std::string& exported) {
  TrainerSpec spec = ToySpec();
  spec.model = [=, network = spec.model](Scope& scope, const Features& in,
                                         const RunContext& run) {
    ModelSpec model = network(scope, in, run);
    model.metrics.emplace_back(metric, Mean(Square(in["x"])));
    model.exports.emplace_back(exported, in["x"]);
    return model;
  };
  return spec;
}

// What such a training prints as JSON.
std::string Events(const std::string& metric, TrainingOptions options = {}) {
  options.log_every = 1;
  Trainer trainer(ToyWith(metric, "mine"), ToyRun(2), options);
  trainer.AddHook(std::make_unique<JsonEvents>(1));
  return StdoutOf([&] { trainer.Train(); });
}

TEST_CASE("a metric may not have the name of a field beside it") {
  TrainingOptions scaled;
  scaled.session.precision = Precision::kFloat16;  // with a loss scale
  std::set<std::string> fields;
  for (const std::string& out : {Events("mine"), Events("mine", scaled)}) {
    bool steps = false, evaluations = false;
    for (const auto& event : Objects(out)) {
      const std::string kind = event["event"];
      if (kind != "step" && kind != "evaluation") continue;
      (kind == "step" ? steps : evaluations) = true;
      REQUIRE(event.contains("mine"));
      for (const auto& [name, value] : event.items()) fields.insert(name);
    }
    CHECK(steps);
    CHECK(evaluations);
  }
  fields.erase("mine");
  fields.erase("accuracy");  // the toy's metric
  CHECK(fields.size() > 10);
  // Those of several workers.
  fields.insert({"examples_per_second_per_worker", "exchange_wait",
                 "examples_per_second_by_rank", "exchange_wait_by_rank",
                 "staleness_mean", "staleness_max", "dropped", "input_stage"});
  for (const std::string& name : fields) {
    CAPTURE(name);
    CHECK(Contains(ErrorOf([&] {
                     CheckMetricNames({"accuracy", name});
                   }),
                   fmt::format("a metric called '{}', a name that the step and "
                               "evaluation events of --json have for "
                               "something else",
                               name)));
  }
  CheckMetricNames({"accuracy", "index", "error", "top_5_accuracy"});
  CHECK(Contains(ErrorOf([] {
                   CheckMetricNames({"f1", "accuracy", "f1"});
                 }),
                 "two metrics of the model are called 'f1'"));
}

TEST_CASE("an export may not have the name of a field beside it") {
  const Example good = {{"mine", Tensor::Array<int64_t>({1}, {3})}};
  const std::string out =
      StdoutOf([&] { PredictionPrinter({.json = true}).Print(good); });
  std::set<std::string> fields = {"error"};  // of what cannot be read
  const auto event = Objects(out).at(0);
  for (const auto& [name, value] : event.items()) fields.insert(name);
  REQUIRE(fields.erase("mine") == 1);
  CHECK(fields == std::set<std::string>{"error", "event", "index"});
  for (const std::string& name : fields) {
    CAPTURE(name);
    const Example bad = {{name, Tensor::Array<int64_t>({1}, {3})}};
    const std::string wanted = fmt::format(
        "an export called '{}', a name that the prediction events "
        "of --json have for something else",
        name);
    CHECK(Contains(ErrorOf([&] { CheckExportNames({name}); }), wanted));
    // One that was exported by another program, as text and as JSON.
    CHECK(StdoutOf([&] { PredictionPrinter({}).Print(bad); }) ==
          fmt::format("0: {} 3\n", name));
    CHECK(
        Contains(ErrorOf([&] { PredictionPrinter({.json = true}).Print(bad); }),
                 wanted));
  }
  CheckExportNames({"loss", "top", "file"});
  CHECK(Contains(ErrorOf([] {
                   CheckExportNames({"a", "a"});
                 }),
                 "two exports of the model are called 'a'"));
}

TEST_CASE("a program says so before it trains, with --json or without") {
  const auto main = [](const std::string& metric, const std::string& exported,
                       std::vector<const char*> words) {
    int code = 0;
    const std::string err = StderrOf([&] {
      const std::string out = StdoutOf([&] {
        words.insert(words.begin(), "toy");
        code = Main(static_cast<int>(words.size()), words.data(),
                    ToyWith(metric, exported));
      });
      if (code != 0) CHECK(out == "");
    });
    return std::pair(code, err);
  };
  const std::vector<const char*> train = {"train", "--steps", "1",
                                          "--batch-size", "50"};
  CHECK(main("mine", "index_of", train).first == 0);
  for (const bool json : {false, true}) {
    std::vector<const char*> words = train;
    if (json) words.push_back("--json");
    const auto [code, err] = main("seconds", "mine", words);
    CHECK(code == 1);
    CHECK(Contains(err, "a metric called 'seconds'"));
  }
  const auto [code, err] = main("mine", "index", train);
  CHECK(code == 1);
  CHECK(Contains(err, "an export called 'index'"));
}

}  // namespace
}  // namespace sluice
