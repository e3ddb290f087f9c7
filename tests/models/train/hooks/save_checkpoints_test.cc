// Saving beside training: what is written is the state of the moment at which
// the save began, whatever training does meanwhile and whatever the disk does.
#include "models/train/hooks/save_checkpoints.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "models/train/hooks/hooks.h"
#include "models/train/values/hook_state.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/sentences.h"
#include "tests/support/served_training.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// A disk on which nothing comes to an end while the gate is closed.
class GatedFileSystem : public FaultFileSystem {
 public:
  std::atomic<bool> open{true};
  std::atomic<int> waiting{0};
  Status Rename(const std::string& from, const std::string& to) override {
    ++waiting;
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --waiting;
    return FaultFileSystem::Rename(from, to);
  }
};

// Files have their own order.
bool SameTensors(const std::vector<NamedTensor>& a,
                 const std::vector<NamedTensor>& b) {
  std::map<std::string, Tensor> wanted;
  for (const auto& [name, tensor] : b) wanted[name] = tensor;
  return a.size() == b.size() && wanted.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&](const NamedTensor& x) {
           return wanted.contains(x.name) && x.tensor.BitEqual(wanted[x.name]);
         });
}

std::vector<NamedTensor> Values(TrainingRun& run) {
  return ReadVariables(run.session(), run.graph().Variables());
}

struct Saving {
  explicit Saving(SaveEvery every)
      : options{.save_every = every},
        spec(ToySpec()),
        run(spec, Training(), options) {}
  static RunContext Training() {
    RunContext context = ToyRun(10);
    context.mode = Mode::kTrain;
    return context;
  }
  CheckpointManager Manager() {
    return CheckpointManager::Open("log", {.files = &files}).ValueOrThrow();
  }
  CheckpointManager Reading() {
    return CheckpointManager::ForReading("log", {.files = &files});
  }

  GatedFileSystem files;
  TrainingOptions options;
  TrainerSpec spec;
  TrainingRun run;
};

TEST_CASE("a slow disk neither stops training nor sees what it does") {
  Saving on({.steps = 5, .seconds = 0});
  NanStop nan_stop(1);  // renews the snapshot after every step, if it may
  SaveCheckpoints save(on.Manager(), {});
  nan_stop.Begin(on.run);
  save.Begin(on.run);
  std::vector<NamedTensor> at_5;
  std::string position_5;
  on.files.open = false;
  while (on.run.step() < 12) {
    REQUIRE(on.run.Step(false));
    nan_stop.AfterStep(on.run);
    save.AfterStep(on.run);
    if (on.run.step() != 5) continue;
    at_5 = Values(on.run);
    while (on.files.waiting == 0) std::this_thread::yield();
  }
  CHECK(on.run.snapshot_held());
  CHECK(on.run.snapshot()->state.step == 5);
  on.files.open = true;
  save.End(on.run);
  CHECK_FALSE(on.run.snapshot_held());

  const CheckpointManager saved = on.Reading();
  // What became due meanwhile was put off, at last until the end.
  CHECK(*saved.Steps() == std::vector<int64_t>{5, 12});
  CHECK(SameTensors(saved.RestoreStep(5)->checkpoint.tensors, at_5));
  CHECK(SameTensors(saved.RestoreStep(12)->checkpoint.tensors, Values(on.run)));
  CHECK(save.last_path() == saved.PathOf(12));
}

TEST_CASE("saved beside training or not, a resume gives the same bits") {
  const auto train = [](const std::string& log, SaveEvery every,
                        const std::vector<double>& epochs) {
    for (const double e : epochs) {
      Trainer(ToySpec(), ToyRun(e),
              {.log_dir = log,
               .keep_checkpoints = 100,
               .save_every = every,
               .evaluate_every = 0})
          .Train();
    }
    return CheckpointManager::ForReading(log);
  };
  TemporaryFolder folder;
  const auto once = train(folder / "a", {.steps = 0, .seconds = 0}, {4});
  const auto often = train(folder / "b", {.steps = 3, .seconds = 0}, {4});
  const auto parts =
      train(folder / "c", {.steps = 1, .seconds = 0}, {0.5, 1.7, 4});
  CHECK(*once.Steps() == std::vector<int64_t>{40});
  CHECK(often.Steps()->front() == 3);
  CHECK(parts.Steps()->size() > 3);
  const auto wanted = once.RestoreNewest();
  for (const CheckpointManager* other : {&often, &parts}) {
    const auto got = other->RestoreNewest();
    CHECK((*got)->checkpoint.state.dataset_position ==
          (*wanted)->checkpoint.state.dataset_position);
    CHECK(
        SameTensors((*got)->checkpoint.tensors, (*wanted)->checkpoint.tensors));
  }
}

TEST_CASE("variables that are not finite are not saved, nor lose what was") {
  Saving on({.steps = 1, .seconds = 0});
  SaveCheckpoints save(on.Manager(), {});
  save.Begin(on.run);
  REQUIRE(on.run.Step(false));
  save.AfterStep(on.run);
  REQUIRE(on.run.Step(false));
  const Output weights = on.run.graph().Get("fc1/weights");
  const Tensor sound = on.run.session().Read(weights);
  Tensor broken = sound.Clone();
  broken.data<float>()[broken.elements() / 2] = INFINITY;
  on.run.session().Write(weights, broken);
  save.AfterEvaluation(on.run, *on.run.Evaluate());
  save.End(on.run);
  save.OnError(on.run);
  CHECK(*on.Reading().Steps() == std::vector<int64_t>{1});
  CHECK(save.last_path() == on.Reading().PathOf(1));
  // What a hook writes is saved, also where the snapshot is of the same step.
  on.run.RenewSnapshot();
  on.run.session().Write(weights, sound);
  save.AfterEvaluation(on.run, *on.run.Evaluate());
  save.End(on.run);
  CHECK(SameTensors(on.Reading().RestoreStep(2)->checkpoint.tensors,
                    Values(on.run)));
}

TEST_CASE("by time") {
  Saving on({.steps = 0, .seconds = 0.02});
  SaveCheckpoints save(on.Manager(), {});
  save.Begin(on.run);
  while (on.run.step() < 100 && on.Reading().Steps()->size() < 2) {
    REQUIRE(on.run.Step(false));
    save.AfterStep(on.run);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(on.Reading().Steps()->size() >= 2);
}

// A disk on which each file takes its time, by a clock that else stands still.
class SlowFileSystem : public FaultFileSystem {
 public:
  static constexpr std::chrono::seconds kTime{20};
  Status Rename(const std::string& from, const std::string& to) override {
    now = now.load() + kTime;
    return FaultFileSystem::Rename(from, to);
  }
  std::atomic<std::chrono::steady_clock::duration> now{};
};

TEST_CASE("by time, counted from the end of a save that training waits for") {
  SlowFileSystem files;
  testing::Task task;
  task.run = ToyRun(1);
  task.run.batch_size = 12;  // ten steps an epoch
  task.run.steps = 8;
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.input = testing::Sentences;
    spec.model = testing::Reader;
    spec.optimizer = [](const RunContext&) { return testing::OfRows(0); };
    return spec;
  };
  task.options = [](int) {
    return TrainingOptions{.save_every = {.steps = 0, .seconds = 10},
                           .evaluate_every = 0.5};
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<SaveCheckpoints>(
        CheckpointManager::Open("log", {.files = &files}).ValueOrThrow(),
        std::vector<const Hook*>(), [&files] {
          return std::chrono::steady_clock::time_point(files.now.load());
        }));
  };
  bool table = false;
  task.after_step = [&](int, TrainingRun& run) {
    table = run.IsTable("words/table");
  };
  const testing::Trained trained =
      testing::TrainOn(1, 1, testing::kSync, task,
                       [](TrainingServers& all) { all.cut_from = 1; })[0];
  REQUIRE(trained.error == "");
  CHECK(table);
  CHECK(files.now.load() == 2 * SlowFileSystem::kTime);
  const auto saved = CheckpointManager::ForReading("log", {.files = &files});
  CHECK(*saved.Steps() == std::vector<int64_t>{5, 8});
}

TEST_CASE("a save that is waited for is as urgent as who waits") {
  const auto niceness = [] {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  };
  for (const bool beside : {false, true}) {
    CAPTURE(beside);
    FaultFileSystem files;
    CheckpointWriter writer(
        CheckpointManager::Open("log", {.files = &files}).ValueOrThrow());
    std::set<int> seen;
    std::set<std::thread::id> threads;
    const auto read = [&](int64_t, Tensor* rows) -> Status {
      seen.insert(niceness());
      threads.insert(std::this_thread::get_id());
      std::fill_n(rows->data<float>(), rows->elements(), 1.0f);
      return {};
    };
    Checkpoint checkpoint;
    checkpoint.by_rows.push_back({"table", DType::kFloat32, {4, 2}, read});
    writer.Start(std::move(checkpoint), {}, beside);
    REQUIRE(writer.Wait().ok());
    CHECK((threads == std::set{std::this_thread::get_id()}) == !beside);
    if (!beside) CHECK(seen == std::set{niceness()});
  }
}

TEST_CASE("an evaluation's save waits for the one under way") {
  Saving on({.steps = 1, .seconds = 0});
  SaveCheckpoints save(on.Manager(), {});
  save.Begin(on.run);
  on.files.open = false;
  REQUIRE(on.run.Step(false));
  save.AfterStep(on.run);
  REQUIRE(on.run.Step(false));
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    on.files.open = true;
  });
  save.AfterEvaluation(on.run, *on.run.Evaluate());
  opens.join();
  save.End(on.run);
  CHECK(*on.Reading().Steps() == std::vector<int64_t>{1, 2});
  CHECK(on.Reading().RestoreStep(2)->checkpoint.state.metric);
}

TEST_CASE("a disk that fills up ends training, with what was saved before") {
  for (int operation = 1; operation < 12; ++operation) {
    CAPTURE(operation);
    Saving on({.steps = 4, .seconds = 0});
    SaveCheckpoints save(on.Manager(), {});
    save.Begin(on.run);
    const auto steps = [&](int64_t until) {
      while (on.run.step() < until) {
        REQUIRE(on.run.Step(false));
        save.AfterStep(on.run);
      }
    };
    steps(4);
    save.AfterEvaluation(on.run, *on.run.Evaluate());
    steps(5);
    save.End(on.run);  // 4 and 5 are whole
    on.files.FailAt(operation, FaultFileSystem::Fault::kDiskFull);
    const std::string error = ErrorOf([&] {
      steps(13);
      save.End(on.run);
    });
    CHECK(Contains(error, "disk"));
    save.OnError(on.run);
    const auto left = on.Reading().RestoreNewest();
    REQUIRE(left.ok());
    CHECK((*left)->warnings.empty());
    CHECK((*left)->checkpoint.state.step >= 5);
  }
}

// Ends training with an error at a step.
class Throw : public Hook {
 public:
  explicit Throw(int64_t step) : step_(step) {}
  void AfterStep(TrainingRun& run) override {
    if (run.step() == step_) throw Error(Code::kDataLoss, "a hook's");
  }

 private:
  int64_t step_;
};

TEST_CASE("an error that leaves the variables alone loses no step") {
  TemporaryFolder folder;
  const TrainingOptions options = {.log_dir = folder / "log"};
  Trainer trainer(ToySpec(), ToyRun(3), options);
  trainer.AddHook(std::make_unique<Throw>(17));
  CHECK(Contains(ErrorOf([&] { trainer.Train(); }), "a hook's"));
  const auto saved = CheckpointManager::ForReading(folder / "log");
  CHECK(*saved.Steps() == std::vector<int64_t>{10, 17});

  // Of the input.
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    Dataset points = testing::Points(run);
    if (!run.training()) return points;
    return points.Map([n = std::make_shared<int>(0)](Example&) {
      if (++*n == 7) throw Error(Code::kDataLoss, "a bad picture");
    });
  };
  Trainer broken(spec, ToyRun(3), {.log_dir = folder / "input"});
  CHECK(Contains(ErrorOf([&] { broken.Train(); }), "a bad picture"));
  const auto before = CheckpointManager::ForReading(folder / "input").Steps();
  REQUIRE(before->size() == 1);
  CHECK(before->front() >= 4);  // the sample and what is prefetched count
}

// Its state is how many steps it was told of.
class CountsSteps : public Hook {
 public:
  explicit CountsSteps(std::shared_ptr<std::atomic<int>> told)
      : told_(std::move(told)) {}
  void AfterStep(TrainingRun&) override { ++*told_; }
  std::string StateName() const override { return "told"; }
  std::string SaveState() const override { return std::to_string(*told_); }

 private:
  const std::shared_ptr<std::atomic<int>> told_;
};

TEST_CASE("what a step that failed leaves has hooks' states of its own step") {
  TemporaryFolder folder;
  const auto told = std::make_shared<std::atomic<int>>(0);
  TrainerSpec spec = ToySpec();
  spec.input = [told](const RunContext& run) {
    return testing::Points(run).Map([told](Example& batch) {
      if (*told < 7) return;
      Tensor label = batch["label"].Clone();
      label.data<int64_t>()[0] = 99;
      batch.Set("label", label);
    });
  };
  Trainer trainer(spec, ToyRun(3), {.log_dir = folder / "log", .log_every = 3});
  trainer.AddHook(std::make_unique<CountsSteps>(told));
  CHECK(Contains(ErrorOf([&] { trainer.Train(); }), "99"));
  CHECK(told->load() >= 7);  // the snapshot is of every third
  const auto saved = CheckpointManager::ForReading(folder / "log")
                         .RestoreNewest()
                         .ValueOrThrow();
  REQUIRE(saved);
  const TrainingState& state = saved->checkpoint.state;
  CHECK(state.step >= 6);
  CHECK(state.step % 3 == 0);
  CHECK(state.extra.at(HookStateKey("told")) == std::to_string(state.step));
}

TEST_CASE("when to save, as flags say it") {
  CHECK(ParseSaveEvery("500").steps == 500);
  CHECK(ParseSaveEvery("500").seconds == 0);
  CHECK(ParseSaveEvery("10m").seconds == 600);
  CHECK(ParseSaveEvery("1.5h").seconds == 5400);
  CHECK(ParseSaveEvery("30s").seconds == 30);
  CHECK(ParseSaveEvery("30s").steps == 0);
  CHECK(ParseSaveEvery("0").steps == 0);
  CHECK(ParseSaveEvery("0").seconds == 0);
  for (const char* bad :
       {"", "m", "1.5", "-1", "10x", "10mm", "nan", "inf", "1e99", "10 m"}) {
    CAPTURE(bad);
    CHECK(Contains(ErrorOf([&] { ParseSaveEvery(bad); }), "10m"));
  }
}

}  // namespace
}  // namespace sluice
