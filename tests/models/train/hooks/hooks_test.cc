// Hooks: when they are called and what the built-in ones do.
#include "models/train/hooks/hooks.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "io/summaries/event_file.h"
#include "models/train/trainer.h"
#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Points;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::TrappedSpec;

struct Record {
  int begins = 0, ends = 0;
  std::vector<int64_t> steps, evaluations, measured;
  std::vector<double> rates, losses;
};

class Recorder : public Hook {
 public:
  explicit Recorder(Record* log) : log_(log) {}
  void Begin(TrainingRun& run) override {
    ++log_->begins;
    CHECK(run.total_steps() == 30);
  }
  bool Measures(const TrainingRun&, int64_t step) const override {
    return step % 7 == 0;
  }
  void AfterStep(TrainingRun& run) override {
    log_->steps.push_back(run.step());
    log_->losses.push_back(run.loss());
    if (run.measurement().step == run.step()) {
      log_->measured.push_back(run.step());
      log_->rates.push_back(run.measurement().learning_rate);
      CHECK(run.measurement().metrics[0].first == "accuracy");
      CHECK(run.measurement().metrics[0].second >= 0);
      CHECK(run.measurement().metrics[0].second <= 1);
    }
  }
  void AfterEvaluation(TrainingRun& run, const Evaluation& e) override {
    CHECK(e.step == run.step());
    log_->evaluations.push_back(e.step);
  }
  void End(TrainingRun&) override { ++log_->ends; }

 private:
  Record* log_;
};

TEST_CASE("hooks are called at every step, evaluation and the end") {
  Record log;
  Trainer trainer(ToySpec(), ToyRun(3), {.evaluate_every = 0.5});
  trainer.AddHook(std::make_unique<Recorder>(&log));
  trainer.Train();
  CHECK(log.begins == 1);
  CHECK(log.ends == 1);
  CHECK(log.steps.size() == 30);
  CHECK(log.evaluations == std::vector<int64_t>{5, 10, 15, 20, 25, 30});
  // The trainer's own NaN stop measures nothing, so only the recorder does.
  CHECK(log.measured == std::vector<int64_t>{7, 14, 21, 28});
  // "2:0.01->0.1": step 7 runs with 6 steps completed, 0.6 of 2 epochs.
  CHECK(log.rates[0] == doctest::Approx(0.01 + 0.09 * 0.3));
}

TEST_CASE("the rate is the optimizer's, whatever else has its name") {
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    return Points(run).Map([](Example& example) {
      const Shape rows = {RowsOf(example)};
      example.Set("learning_rate", Tensor::Full(DType::kFloat32, rows, 5));
    });
  };
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    const Output mean = Identity(Mean(in["learning_rate"]), "learning_rate");
    CHECK(mean.name() == "learning_rate_1");
    model.loss = model.loss + 0 * mean;
    return model;
  };
  spec.optimizer = [](const RunContext&) { return optimizers::Sgd(0.25); };
  for (const int64_t leaves : {0, 2}) {
    CAPTURE(leaves);
    Record log;
    TrainingOptions options = {.evaluate_every = 0.5};
    options.virtual_workers = leaves;
    Trainer trainer(spec, ToyRun(3), options);
    trainer.AddHook(std::make_unique<Recorder>(&log));
    trainer.Train();
    CHECK(log.rates == std::vector<double>(4, 0.25));
  }
}

TEST_CASE("no better for some evaluations stops early") {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [](const RunContext&) { return optimizers::Sgd(0); };
  Trainer trainer(spec, ToyRun(50), {});
  trainer.AddHook(std::make_unique<EarlyStopping>(3, 1.0));
  const TrainingResult result = trainer.Train();
  CHECK(result.steps == 40);
  CHECK(Contains(result.stop_reason, "no better for 3 evaluations"));
}

TEST_CASE("the step that diverged is named, and whether running again failed") {
  TrainerSpec spec = TrappedSpec();
  CHECK(Contains(ErrorOf([&] { Trainer(spec, ToyRun(3), {}).Train(); }),
                 "came from 'trap/log' in step 14"));
  // Reads its input once: of the second reading it fails.
  int batches = 0;
  spec.input = [&](const RunContext& run) {
    if (!run.training()) return Points(run);
    return Points(run).Map([&](Example&) {
      if (++batches == 20) throw Error(Code::kDataLoss, "the disk is gone");
    });
  };
  const std::string error =
      ErrorOf([&] { Trainer(spec, ToyRun(3), {}).Train(); });
  CHECK(Contains(error, "step 14: the loss is"));
  CHECK(Contains(error, "running the steps again failed"));
  CHECK(Contains(error, "the disk is gone"));
  CHECK(batches == 20);
}

TEST_CASE("what is no number is neither better nor the best for ever") {
  const TrainerSpec spec = ToySpec();
  Trainer trainer(spec, ToyRun(50), {});
  // The first two evaluations are NaN, the others get better: nothing stops.
  class Pretend final : public EarlyStopping {
   public:
    Pretend() : EarlyStopping(3, 0) {}
    void AfterEvaluation(TrainingRun& run, const Evaluation& given) override {
      Evaluation evaluation = given;
      evaluation.values[1].second =
          ++evaluations_ <= 2 ? NAN : 0.01 * evaluations_;
      EarlyStopping::AfterEvaluation(run, evaluation);
      if (evaluations_ == 8) run.Stop("seen enough");
    }

   private:
    int evaluations_ = 0;
  };
  trainer.AddHook(std::make_unique<Pretend>());
  CHECK(Contains(trainer.Train().stop_reason, "seen enough"));
}

TEST_CASE("checkpoints: the newest few and the best are kept") {
  TemporaryFolder folder;
  Trainer trainer(ToySpec(), ToyRun(8),
                  {.log_dir = folder / "log", .keep_checkpoints = 2});
  const TrainingResult result = trainer.Train();
  const auto manager = CheckpointManager::Open(folder / "log").ValueOrThrow();
  const std::vector<int64_t> steps = manager.Steps().ValueOrThrow();
  const int64_t best = manager.BestStep().ValueOrThrow().value();
  CHECK(steps.size() == (best >= 70 ? 2 : 3));
  CHECK(std::count(steps.begin(), steps.end(), best) == 1);
  CHECK(steps.back() == 80);
  CHECK(result.checkpoint == manager.PathOf(80));
}

TEST_CASE("a loss that is no number names the first bad node") {
  const TrainerSpec spec = testing::TrappedSpec();
  TemporaryFolder folder;
  const std::string error = ErrorOf(
      [&] { Trainer(spec, ToyRun(5), {.log_dir = folder / "log"}).Train(); });
  CHECK(Contains(error, "step 14: the loss is"));
  CHECK(Contains(error, "'trap/log' in step 14"));
  // What was saved before is still there.
  CHECK(CheckpointManager::Open(folder / "log")
            .ValueOrThrow()
            .Steps()
            .ValueOrThrow() == std::vector<int64_t>{10});
}

TEST_CASE("a gradient that is no number is found where it arises") {
  TrainerSpec spec = ToySpec();
  // The root's derivative at 0 is infinite, times 0 no number; the loss itself
  // is finite in the step that spoils the weights.
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    const Output w = scope.graph().Get("logits/weights");
    NameScope names(scope.graph(), "trap");
    model.loss = model.loss + Sum(Sqrt(w * 0));
    return model;
  };
  const std::string error =
      ErrorOf([&] { Trainer(spec, ToyRun(5), {}).Train(); });
  CHECK(Contains(error, "step 2: the loss is"));
  CHECK(Contains(error, "in step 1"));
  CHECK(Contains(error, "trap"));
}

TEST_CASE("a profile is a Chrome trace of the steps asked for") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.session.fuse = false;  // every node under its own name
  Trainer trainer(ToySpec(), ToyRun(1), options);
  trainer.AddHook(std::make_unique<Profile>(3, 4, folder / "trace.json"));
  trainer.Train();
  std::ifstream file(folder / "trace.json");
  const auto trace = nlohmann::json::parse(file);
  const auto& events = trace.is_array() ? trace : trace["traceEvents"];
  int matmuls = 0;
  for (const auto& event : events) {
    if (event.dump().find("fc1/mat_mul\"") != std::string::npos) ++matmuls;
  }
  CHECK(matmuls == 2);

  // The input's stages have rows in a process of their own. What is read ahead
  // may be ready already, so only of the input that is not must there be any,
  // and of more steps than its two threads may be ahead: two elements each.
  const auto rows_of = [](const nlohmann::json& all) {
    std::map<int, std::string> rows;
    int input = -1;
    for (const auto& event : all) {
      if (event["name"] == "process_name" && event["args"]["name"] == "input") {
        input = event["pid"];
      }
    }
    for (const auto& event : all) {
      if (event["name"] == "thread_name" && event["pid"] == input) {
        rows[event["tid"]] = event["args"]["name"];
      }
    }
    // Each piece is in its stage's row.
    for (const auto& event : all) {
      if (event["ph"] != "X" || event["pid"] != input) continue;
      const std::string name = event["name"];
      CHECK(rows[event["tid"]].starts_with(name));
      CHECK(event["dur"].get<double>() >= 1);
    }
    std::set<std::string> names;
    for (const auto& [number, name] : rows) names.insert(name);
    return names;
  };
  TrainerSpec slow = ToySpec();
  slow.input = [](const RunContext& run) {
    const auto wait = [](Example&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    return testing::Points(run)
        .Map(wait, {.name = "wait"})
        .Map(wait, {.threads = 2, .name = "wait long"});
  };
  Trainer again(slow, ToyRun(1), options);
  again.AddHook(std::make_unique<Profile>(2, 9, folder / "trace.json"));
  again.Train();
  std::ifstream second(folder / "trace.json");
  const std::set<std::string> rows =
      rows_of(nlohmann::json::parse(second)["traceEvents"]);
  CHECK(rows.contains("wait"));
  CHECK(rows.contains("wait long"));
}

TEST_CASE("a training that goes on behind the traced steps leaves the trace") {
  const TemporaryFolder folder;
  const auto train = [&](double epochs) {
    Trainer trainer(ToySpec(), ToyRun(epochs), {.log_dir = folder / "log"});
    trainer.AddHook(std::make_unique<Profile>(3, 4, folder / "trace.json"));
    trainer.Train();
    std::ifstream file(folder / "trace.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string trace = train(1);
  CHECK(!trace.empty());
  CHECK((train(1) == trace));  // nothing was left to do
  CHECK((train(2) == trace));
}

TEST_CASE("a training that goes on among the traced steps traces the others") {
  const TemporaryFolder folder;
  TrainingOptions options = {.log_dir = folder / "log"};
  options.session.fuse = false;  // every node under its own name
  const auto train = [&](int64_t steps) {
    Trainer trainer(ToySpec(), ToyRun(1), options);
    trainer.AddHook(std::make_unique<StopAtStep>(steps));
    trainer.AddHook(std::make_unique<Profile>(3, 7, folder / "a.b/trace.json"));
    trainer.Train();
  };
  std::filesystem::create_directory(folder / "a.b");
  const auto text = [&](const std::string& name) {
    std::ifstream file(folder / ("a.b/" + name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  train(4);
  const std::string first = text("trace.json");
  CHECK(!first.empty());
  train(5);
  const std::string second = text("trace-from-5.json");
  CHECK(!second.empty());
  train(10);
  const auto last = nlohmann::json::parse(text("trace-from-6.json"));
  // Of steps 6 and 7.
  int matmuls = 0;
  for (const auto& event : last["traceEvents"]) {
    if (event.dump().find("fc1/mat_mul\"") != std::string::npos) ++matmuls;
  }
  CHECK(matmuls == 2);
  CHECK((text("trace.json") == first));
  CHECK((text("trace-from-5.json") == second));
}

#ifdef SLUICE_HAVE_PROTOBUF
TEST_CASE("summaries hold curves, histograms and the graph") {
  TemporaryFolder folder;
  TrainingOptions options = {.log_dir = folder / "log", .log_every = 5};
  Trainer(ToySpec(), ToyRun(2), options).Train();
  const auto read = [&](const std::string& part) {
    std::map<std::string, int> tags;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder / ("log/" + part))) {
      const EventFile file = ReadEvents(entry.path().string()).ValueOrThrow();
      CHECK(file.warning.empty());
      for (const EventRecord& r : file.records) ++tags[r.kind + " " + r.tag];
    }
    return tags;
  };
  std::map<std::string, int> train = read("train");
  CHECK(train["scalar loss"] == 4);
  CHECK(train["scalar accuracy"] == 4);
  CHECK(train["scalar learning_rate"] == 4);
  CHECK(train["scalar examples_per_second"] == 4);
  CHECK(train["histogram fc1/weights"] == 2);
  CHECK(train["graph "] == 1);
  std::map<std::string, int> eval = read("eval");
  CHECK(eval["scalar accuracy"] == 2);
  CHECK(eval["scalar loss"] == 2);
}
#endif

}  // namespace
}  // namespace sluice
