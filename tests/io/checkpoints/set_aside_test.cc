// A training that is set aside, also where that is stopped at any operation: it
// can be gone on with, or is gone from its folder; nothing of it is lost, and
// what is left can be set aside.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;

// Files of which those in one folder are on a disk of their own, where it is
// given: one to which a link leads.
class FilesOnDisks : public FaultFileSystem {
 public:
  std::optional<std::string> other;

  Status Rename(const std::string& from, const std::string& to) override {
    if ((ParentDirectory(from) == other) != (ParentDirectory(to) == other)) {
      return FileError(EXDEV, "rename to", to);
    }
    return FaultFileSystem::Rename(from, to);
  }
};

CheckpointManager OpenRun(FaultFileSystem& files) {
  auto manager = CheckpointManager::Open("run", {.files = &files});
  REQUIRE_MESSAGE(manager.ok(), manager.status().message());
  return *std::move(manager);
}

const std::vector<std::string> kBeside = {"run.json", "scalars.csv",
                                          "train/events.1", "train/events.2",
                                          "eval/events.1"};
constexpr int64_t kNewest = 10;

// A training's files with their bytes, by their paths from its folder on.
std::map<std::string, std::string> WriteTraining(FaultFileSystem& files) {
  const CheckpointManager manager = OpenRun(files);
  for (const int64_t step : {1, 2, 10}) {
    Checkpoint checkpoint;
    checkpoint.state.step = step;
    REQUIRE(WriteCheckpoint(manager.PathOf(step), checkpoint, files).ok());
  }
  for (const std::string& name : kBeside) {
    const std::string path = "run/" + name;
    REQUIRE(files.MakeDirectories(ParentDirectory(path)).ok());
    REQUIRE(files.WriteAtomically(path, "bytes of " + name).ok());
  }
  std::map<std::string, std::string> all;
  for (const char* folder : {"run", "run/train", "run/eval"}) {
    for (const std::string& name : files.List(folder).ValueOrThrow()) {
      const std::string path = JoinPath(folder, name);
      all[path.substr(std::string_view("run/").size())] =
          files.Read(path).ValueOrThrow();
    }
  }
  return all;
}

TEST_CASE("setting aside keeps everything, elsewhere") {
  FilesOnDisks files;
  CheckpointManager manager = OpenRun(files);
  CHECK(*manager.SetAside() == "");
  CHECK(manager.Save({}).ok());
  CHECK(*manager.SetAside() == "run/previous-1");
  CHECK(manager.Steps()->empty());
  CHECK(files.List("run/previous-1")->size() == 1);
  CHECK(manager.Save({}).ok());
  CHECK(*manager.SetAside() == "run/previous-2");
}

// Sets a training aside with a fault at operation n. True when n is behind the
// last operation.
bool SetAsideWithFault(int n, Fault fault, Loss loss, FilesOnDisks& files) {
  CAPTURE(n);
  const std::map<std::string, std::string> all = WriteTraining(files);
  files.Restart(Loss::kNothing);
  {
    CheckpointManager manager = OpenRun(files);
    files.FailAt(files.operations() + n, fault);
    const auto folder = manager.SetAside(kBeside);
    CHECK((folder.ok() || files.failed()));
    if (folder.ok()) CHECK(*folder == "run/previous-1");
  }
  const bool faulted = files.failed();
  files.Restart(loss);
  CheckpointManager later = OpenRun(files);
  const auto newest = *later.RestoreNewest();
  if (newest) {
    CHECK(newest->checkpoint.state.step == kNewest);
    CHECK(newest->warnings.empty());
  } else {
    for (const auto& [name, bytes] : all) CHECK(!*files.Exists("run/" + name));
  }
  const auto check_kept = [&](const std::vector<std::string>& folders) {
    for (const auto& [name, bytes] : all) {
      CAPTURE(name);
      int whole = 0;
      for (const std::string& folder : folders) {
        const auto read = files.Read(JoinPath(folder, name));
        if (read.ok()) CHECK(*read == bytes);
        whole += read.ok() ? 1 : 0;
      }
      CHECK(whole > 0);
    }
  };
  check_kept({"run", "run/previous-1"});
  CHECK(later.SetAside(kBeside).ok());
  for (const auto& [name, bytes] : all) CHECK(!*files.Exists("run/" + name));
  check_kept({"run/previous-1", "run/previous-2"});
  return !faulted;
}

TEST_CASE("set aside half-way, a training can be gone on with or is gone") {
  for (const char* other : {"", "run/train"}) {
    CAPTURE(other);
    for (const Fault fault : {Fault::kKill, Fault::kDiskFull}) {
      for (const Loss loss :
           {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
        int n = 0;
        bool behind = false;
        while (!behind) {
          FilesOnDisks files;
          if (*other != '\0') files.other = other;
          behind = SetAsideWithFault(++n, fault, loss, files);
        }
        CHECK(n > 8);  // files are there
      }
    }
  }
}

}  // namespace
}  // namespace sluice
