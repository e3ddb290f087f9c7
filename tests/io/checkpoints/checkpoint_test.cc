// Checkpoints: state and tensors survive; the right files are kept; a crash at
// any operation leaves the previous or the new one whole.
#include "io/checkpoints/checkpoint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;

Checkpoint Make(int64_t step, std::optional<double> metric = std::nullopt) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.metric = metric;
  checkpoint.tensors = {
      {"weights", Tensor::Full(DType::kFloat32, {3, 5}, 0.5 * step)},
      {"weights/momentum", Tensor::Full(DType::kFloat32, {3, 5}, step)},
      {"global_step", Tensor::Scalar<int64_t>(step)}};
  return checkpoint;
}

bool Whole(const Checkpoint& checkpoint) {
  const Checkpoint wanted = Make(checkpoint.state.step);
  if (checkpoint.tensors.size() != wanted.tensors.size()) return false;
  int found = 0;
  for (const NamedTensor& t : checkpoint.tensors) {
    for (const NamedTensor& w : wanted.tensors) {
      found += t.name == w.name && t.tensor.BitEqual(w.tensor);
    }
  }
  return found == static_cast<int>(wanted.tensors.size());
}

CheckpointManager Open(FaultFileSystem& files, int keep,
                       bool higher_is_better = true) {
  auto manager = CheckpointManager::Open(
      "run",
      {.keep = keep, .higher_is_better = higher_is_better, .files = &files});
  REQUIRE_MESSAGE(manager.ok(), manager.status().message());
  return *std::move(manager);
}

using Steps = std::vector<int64_t>;

TEST_CASE("a training's state makes the round trip as text") {
  TrainingState state;
  state.step = 1234567890123;
  state.seed = std::numeric_limits<uint64_t>::max();
  state.dataset_position = R"({"examples":7,"pipeline":"a \"b\""})";
  state.schedule = "5:0.1->0.4";
  state.loss_scale = 0.1;
  state.metric = 1.0 / 3;
  state.class_names = {"cat", "dög", ""};
  state.extra = {{"hook.a", "{}"}, {"step", "not the step"}};
  const std::string text = PrintTrainingState(state);
  const TrainingState back = ParseTrainingState(text).ValueOrThrow();
  CHECK(back.step == state.step);
  CHECK(back.seed == state.seed);
  CHECK(back.dataset_position == state.dataset_position);
  CHECK(back.schedule == state.schedule);
  CHECK(back.loss_scale == state.loss_scale);
  CHECK(back.metric == state.metric);
  CHECK(back.class_names == state.class_names);
  CHECK(back.extra == state.extra);
  CHECK(!ParseTrainingState(PrintTrainingState({})).ValueOrThrow().metric);
  // What is cut short, or is something else, is no state.
  for (size_t length = 0; length < text.size(); ++length) {
    CHECK(!ParseTrainingState(text.substr(0, length)).ok());
  }
  for (const char* other : {"[]", "{}", "7", "{\"step\": 3}", "null"}) {
    CHECK(!ParseTrainingState(other).ok());
  }
}

TEST_CASE("training state and tensors make the round trip") {
  FaultFileSystem files;
  Checkpoint checkpoint = Make(1234567890123);
  checkpoint.state.seed = std::numeric_limits<uint64_t>::max();
  checkpoint.state.dataset_position = R"({"examples":7,"pipeline":"a \"b\""})";
  checkpoint.state.schedule = "5:0.1->0.4";
  checkpoint.state.loss_scale = 0.1;
  checkpoint.state.metric = 1.0 / 3;
  checkpoint.state.extra = {{"model", "cnn"}, {"step", "not the step"}};
  REQUIRE(WriteCheckpoint("c", checkpoint, files).ok());
  const auto read = ReadCheckpoint("c", files);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(read->state.step == checkpoint.state.step);
  CHECK(read->state.seed == checkpoint.state.seed);
  CHECK(read->state.dataset_position == checkpoint.state.dataset_position);
  CHECK(read->state.schedule == checkpoint.state.schedule);
  CHECK(read->state.loss_scale == 0.1);
  CHECK(read->state.metric == 1.0 / 3);
  CHECK(read->state.extra == checkpoint.state.extra);
  CHECK(Whole(*read));
}

TEST_CASE("a safetensors file of others gives weights and a default state") {
  FaultFileSystem files;
  REQUIRE(
      WriteSafetensors("w", Make(3).tensors, {{"format", "pt"}}, files).ok());
  const auto read = ReadCheckpoint("w", files);
  REQUIRE(read.ok());
  CHECK(read->state.step == 0);
  CHECK(read->tensors.size() == 3);
  REQUIRE(WriteSafetensors("x", {}, {{"sluice.checkpoint", "99"}}, files).ok());
  CHECK(ReadCheckpoint("x", files).status().code() == Code::kUnimplemented);
  REQUIRE(WriteSafetensors("y", {}, {{"sluice.checkpoint", "1"}, {"step", "z"}},
                           files)
              .ok());
  CHECK(ReadCheckpoint("y", files).status().code() == Code::kDataLoss);
}

TEST_CASE("the newest and the best are kept") {
  FaultFileSystem files;
  CheckpointManager manager = Open(files, 2);
  CHECK(!manager.RestoreNewest()->has_value());
  CHECK(!manager.BestStep()->has_value());
  const double metrics[] = {0.5, 0.9, 0.7, 0.8, 0.6};
  for (int i = 0; i < 5; ++i) {
    CHECK(manager.Save(Make(10 * (i + 1), metrics[i])).ok());
  }
  CHECK(*manager.Steps() == Steps{20, 40, 50});
  CHECK(*manager.BestStep() == 20);
  const auto newest = *manager.RestoreNewest();
  CHECK(newest->checkpoint.state.step == 50);
  CHECK(newest->path == "run/checkpoint-50.safetensors");
  CHECK(newest->warnings.empty());
  // Another process finds out by itself.
  files.Restart(Loss::kNothing);
  CheckpointManager later = Open(files, 2);
  CHECK(*later.BestStep() == 20);
  CHECK(later.Save(Make(60, 0.95)).ok());
  CHECK(*later.Steps() == Steps{50, 60});
  CHECK(later.Save(Make(70)).ok());
  CHECK(later.Save(Make(80, std::nan(""))).ok());
  CHECK(later.Save(Make(90)).ok());
  CHECK(*later.Steps() == Steps{60, 80, 90});
}

// Files of which one cannot be read for a while.
class RefusingFiles : public FaultFileSystem {
 public:
  std::string refused;
  int times = -1;  // so often; negative: always

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override {
    if (Refuses(path)) return Unavailable("'" + path + "': no answer");
    return FaultFileSystem::ReadPrefix(path, limit);
  }
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    if (Refuses(path)) return Unavailable("'" + path + "': no answer");
    return FaultFileSystem::OpenRead(path);
  }

 private:
  bool Refuses(const std::string& path) {
    if (path != refused || times == 0) return false;
    --times;
    return true;
  }
};

TEST_CASE("what cannot be read for a while is not removed") {
  RefusingFiles files;
  {
    CheckpointManager manager = Open(files, 1);
    CHECK(manager.Save(Make(10, 0.9)).ok());
    CHECK(manager.Save(Make(20, 0.5)).ok());
  }
  CheckpointManager later = Open(files, 1);
  files.refused = later.PathOf(10);
  CHECK(later.Save(Make(30, 0.6)).ok());
  CHECK(*later.Steps() == Steps{10, 30});
  CHECK(later.RestoreBest().status().code() == Code::kUnavailable);
  files.refused.clear();
  CHECK(*later.BestStep() == 10);
  CHECK(later.Save(Make(40, 0.7)).ok());
  CHECK(*later.Steps() == Steps{10, 40});
}

TEST_CASE("the best is not removed, however often it cannot be read") {
  for (const int times : {1, 2, 3}) {
    CAPTURE(times);
    RefusingFiles files;
    for (const auto& [step, metric] : {std::pair(10, 0.9), {20, 0.5}}) {
      CHECK(Open(files, 1).Save(Make(step, metric)).ok());
    }
    CheckpointManager later = Open(files, 1);
    files.refused = later.PathOf(10);
    files.times = times;
    CHECK(later.Save(Make(30, 0.6)).ok());
    CHECK(*later.Steps() == Steps{10, 30});
    files.refused.clear();
    CHECK(*later.BestStep() == 10);
  }
}

TEST_CASE("a server's newest checkpoint that it does not give is an error") {
  RefusingFiles files;
  const std::string folder = "refusing://run";
  REQUIRE(files.MakeDirectories(folder).ok());
  CheckpointManager manager =
      CheckpointManager::Open(folder, {.keep = 3, .files = &files})
          .ValueOrThrow();
  CHECK(manager.Save(Make(10)).ok());
  CHECK(manager.Save(Make(20)).ok());
  files.refused = manager.PathOf(20);
  CHECK(manager.RestoreNewest().status().code() == Code::kUnavailable);
  files.refused.clear();
  CHECK((*manager.RestoreNewest())->checkpoint.state.step == 20);
}

// Files of which one is first read behind what another process does.
class BusyFiles : public FaultFileSystem {
 public:
  std::string awaited;
  std::function<void()> act;

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override {
    ActBefore(path);
    return FaultFileSystem::ReadPrefix(path, limit);
  }
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    ActBefore(path);
    return FaultFileSystem::OpenRead(path);
  }

 private:
  void ActBefore(const std::string& path) {
    if (path != awaited) return;
    awaited.clear();
    act();
  }
};

TEST_CASE("the newest is the one that another was removed for meanwhile") {
  BusyFiles files;
  CheckpointManager saving = Open(files, 1);
  CHECK(saving.Save(Make(100, 0.9)).ok());
  CHECK(saving.Save(Make(500, 0.5)).ok());
  CHECK(*saving.Steps() == Steps{100, 500});
  const CheckpointManager reading =
      CheckpointManager::ForReading("run", {.files = &files});
  files.act = [&] { CHECK(saving.Save(Make(600, 0.6)).ok()); };
  files.awaited = saving.PathOf(500);
  const auto restored = *reading.RestoreNewest();
  CHECK(files.awaited.empty());
  REQUIRE(restored.has_value());
  CHECK(restored->checkpoint.state.step == 600);
  CHECK(restored->warnings.empty());
  CHECK(*saving.Steps() == Steps{100, 600});
}

TEST_CASE("the best is the one that another was removed for meanwhile") {
  BusyFiles files;
  CheckpointManager saving = Open(files, 1);
  CHECK(saving.Save(Make(100, 0.9)).ok());
  CHECK(saving.Save(Make(500, 0.5)).ok());
  const CheckpointManager reading =
      CheckpointManager::ForReading("run", {.files = &files});
  files.act = [&] { CHECK(saving.Save(Make(600, 0.95)).ok()); };
  files.awaited = saving.PathOf(100);
  const auto restored = *reading.RestoreBest();
  CHECK(files.awaited.empty());
  CHECK(*saving.Steps() == Steps{600});
  REQUIRE(restored.has_value());
  CHECK(restored->checkpoint.state.step == 600);
  // One of a step that was saved before it was evaluated, again.
  CHECK(saving.Save(Make(700)).ok());
  CHECK(*reading.BestStep() == 600);
  CHECK(saving.Save(Make(700, 0.97)).ok());
  CHECK(*reading.BestStep() == 700);
}

TEST_CASE("lower may be better, and a step may be saved again") {
  FaultFileSystem files;
  CheckpointManager manager = Open(files, 1, false);
  CHECK(manager.Save(Make(1, 0.1)).ok());
  CHECK(manager.Save(Make(2, 0.3)).ok());
  CHECK(manager.Save(Make(3, 0.2)).ok());
  CHECK(*manager.Steps() == Steps{1, 3});
  CHECK(manager.Save(Make(3, 0.05)).ok());
  CHECK(*manager.BestStep() == 3);
  CHECK(*manager.Steps() == Steps{3});
  // A new run in an old folder must not lose what it has just saved.
  CHECK(manager.Save(Make(2)).ok());
  CHECK(*manager.Steps() == Steps{2, 3});
}

TEST_CASE("a damaged newest checkpoint is passed over with a warning") {
  FaultFileSystem files;
  CheckpointManager manager = Open(files, 5);
  for (int64_t step : {1, 2, 10}) CHECK(manager.Save(Make(step)).ok());
  std::string bytes = *files.Read(manager.PathOf(10));
  bytes[bytes.size() - 3] ^= 1;
  REQUIRE(files.WriteAtomically(manager.PathOf(10), bytes).ok());
  auto restored = *manager.RestoreNewest();
  REQUIRE(restored.has_value());
  CHECK(restored->checkpoint.state.step == 2);
  REQUIRE(restored->warnings.size() == 1);
  CHECK(restored->warnings[0].find("step 10") != std::string::npos);
  for (int64_t step : {1, 2}) {
    REQUIRE(files.WriteAtomically(manager.PathOf(step), "junk").ok());
  }
  const Status status = manager.RestoreNewest().status();
  CHECK(status.code() == Code::kDataLoss);
}

TEST_CASE("any flipped bit is noticed or changes nothing") {
  FaultFileSystem files;
  REQUIRE(WriteCheckpoint("c", Make(3, 0.5), files).ok());
  const std::string bytes = *files.Read("c");
  int errors = 0;
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string bad = bytes;
    bad[i / 8] ^= static_cast<char>(1 << (i % 8));
    REQUIRE(files.WriteAtomically("c", bad).ok());
    const auto read = ReadCheckpoint("c", files);
    if (!read.ok()) {
      ++errors;
      continue;
    }
    CHECK(read->state.step == 3);
    CHECK(read->state.metric == 0.5);
    CHECK(Whole(*read));
  }
  CHECK(errors > static_cast<int>(bytes.size()) * 7);
}

TEST_CASE("foreign files are left alone, stale temporary ones removed") {
  FaultFileSystem files;
  REQUIRE(files.MakeDirectories("run").ok());
  for (const char* name :
       {"run/checkpoint-5.safetensors.tmp-1-2", "run/notes.tmp-1-2",
        "run/checkpoint-.safetensors", "run/checkpoint-x.safetensors",
        "run/checkpoint-7.safetensors.old",
        // As others number files: PathOf(7) is not one of these.
        "run/checkpoint-000007.safetensors", "run/checkpoint-+7.safetensors",
        "run/checkpoint--0.safetensors", "run/checkpoint-7.0.safetensors"}) {
    REQUIRE(files.WriteAtomically(name, "junk").ok());
  }
  CheckpointManager manager = Open(files, 1);
  CHECK(files.List("run")->size() == 8);
  CHECK(manager.Steps()->empty());
  for (const int64_t step : {7, 8}) CHECK(manager.Save(Make(step)).ok());
  CHECK(*manager.Steps() == Steps{8});
  CHECK(files.List("run")->size() == 9);
}

// Files that somebody else removes a moment before.
class SweptFiles : public FaultFileSystem {
 public:
  Status Remove(const std::string& path) override {
    (void)FaultFileSystem::Remove(path);
    return FaultFileSystem::Remove(path);
  }
};

TEST_CASE("what is not kept may be gone already") {
  SweptFiles files;
  CheckpointManager manager = Open(files, 1);
  for (const int64_t step : {1, 2, 3}) CHECK(manager.Save(Make(step)).ok());
  CHECK(*manager.Steps() == Steps{3});
}

TEST_CASE("one saves, the others read and leave everything as it is") {
  FaultFileSystem files;
  CheckpointManager saving = Open(files, 2);
  CHECK(saving.Save(Make(1)).ok());
  // What a save that is under way has written.
  const std::string temporary = "run/checkpoint-2.safetensors.tmp-1";
  REQUIRE(IsTemporaryName("checkpoint-2.safetensors.tmp-1"));
  REQUIRE(files.Create(temporary).ok());

  const int before = files.operations();
  CheckpointManager reading =
      CheckpointManager::ForReading("run", {.files = &files});
  CHECK(*reading.Steps() == Steps{1});
  CHECK((*reading.RestoreNewest())->checkpoint.state.step == 1);
  CHECK(reading.Save(Make(3)).status().code() == Code::kFailedPrecondition);
  CHECK(reading.SetAside().status().code() == Code::kFailedPrecondition);
  CHECK(files.operations() == before);
  CHECK(*files.Exists(temporary));
  const CheckpointManager nowhere =
      CheckpointManager::ForReading("nowhere", {.files = &files});
  CHECK(!nowhere.RestoreNewest()->has_value());
  CHECK(!*files.Exists("nowhere"));

  const Status second =
      CheckpointManager::Open("run", {.files = &files}).status();
  CHECK(second.code() == Code::kFailedPrecondition);
  CHECK(second.message().starts_with(
      "'run' belongs to a training that is under way (process "));
  CHECK(*files.Exists(temporary));
  { const CheckpointManager ended = std::move(saving); }
  CHECK(CheckpointManager::Open("run", {.files = &files}).ok());
  CHECK(!*files.Exists(temporary));
}

// Saves step 3 over steps 1 and 2 with a fault at operation n. True when n is
// behind the last operation.
bool SaveWithFault(int n, Fault fault, Loss loss) {
  FaultFileSystem files;
  {
    CheckpointManager manager = Open(files, 2);
    REQUIRE(manager.Save(Make(1, 0.1)).ok());
    REQUIRE(manager.Save(Make(2, 0.2)).ok());
    files.FailAt(files.operations() + n, fault);
    const bool saved = manager.Save(Make(3, 0.3)).ok();
    const bool faulted = files.failed();
    files.Restart(loss);
    CAPTURE(n);
    CheckpointManager after = Open(files, 2);
    const auto newest = *after.RestoreNewest();
    REQUIRE(newest.has_value());
    CHECK(newest->warnings.empty());
    CHECK(Whole(newest->checkpoint));
    CHECK((newest->checkpoint.state.step == 3 ||
           (newest->checkpoint.state.step == 2 && !saved)));
    for (int64_t step : after.Steps().ValueOrThrow()) {
      CHECK(Whole(*ReadCheckpoint(after.PathOf(step), files)));
    }
    for (const std::string& name : files.List("run").ValueOrThrow()) {
      CHECK(!IsTemporaryName(name));
    }
    // And the next save works.
    CHECK(after.Save(Make(4)).ok());
    return !faulted;
  }
}

TEST_CASE("killed at any operation, the previous or the new one is whole") {
  for (Fault fault : {Fault::kKill, Fault::kDiskFull}) {
    for (Loss loss :
         {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
      int n = 1;
      while (!SaveWithFault(n, fault, loss)) ++n;
      // create, head, three tensors, sync, rename, sync, remove
      CHECK(n == 10);
    }
  }
}

TEST_CASE("a full disk and a read-only folder say so") {
  FaultFileSystem files;
  CheckpointManager manager = Open(files, 2);
  CHECK(manager.Save(Make(1)).ok());
  files.FailAt(files.operations() + 2, Fault::kDiskFull);
  const Status full = manager.Save(Make(2)).status();
  CHECK(full.code() == Code::kResourceExhausted);
  CHECK(full.message().find("disk is full") != std::string::npos);
  CHECK(*manager.Steps() == Steps{1});
  files.Restart(Loss::kNothing);
  files.SetReadOnly(true);
  CHECK(manager.Save(Make(2)).status().message().find("read-only") !=
        std::string::npos);
  const auto other = CheckpointManager::Open("new", {.files = &files});
  CHECK(other.status().code() == Code::kUnavailable);
  CHECK(CheckpointManager::Open("run", {.keep = 0}).status().code() ==
        Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
