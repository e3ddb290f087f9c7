// `sluice data copy` to an object store and back: the store is in this process,
// the tool finds it by its environment.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/places.h"
#include "tests/support/data_program.h"
#include "tests/support/mnist_program.h"
#include "tests/support/object_store.h"
#include "tests/support/random_bytes.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/store_program.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::DataObject;
using testing::KnowsStores;
using testing::ObjectStore;
using testing::Outcome;
using testing::Process;
using testing::RunData;
using testing::StoreSettings;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteFile;

// Bytes by path, of files alone.
using Files = std::map<std::string, std::string>;
Files FilesIn(const std::string& folder) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    files[entry.path().lexically_relative(folder)] = TextOf(entry.path());
  }
  return files;
}

Files WriteFiles(const std::string& folder, int n, std::mt19937& random) {
  const char* const folders[] = {"", "a/", "a/b c/", "%41+d/"};
  for (int i = 0; i < n; ++i) {
    const size_t sizes[] = {0, 1, 5000, random() % 100'000};
    WriteFile(fmt::format("{}/{}{:03}", folder, folders[random() % 4], i),
              testing::RandomBytes(random, sizes[random() % 4]));
  }
  return FilesIn(folder);
}

TEST_CASE("a folder comes back from an object store as it went there") {
  if (!KnowsStores()) return;
  std::mt19937 random(1);
  ObjectStore store;
  const StoreSettings settings(store);
  store.SetPage(7);
  const TemporaryFolder folder;
  const Files want = WriteFiles(folder / "in", 40, random);
  const auto n = static_cast<int64_t>(want.size());
  const std::string there = "s3://b/some/where";
  Json copied =
      DataObject({"copy", folder / "in", there, "--threads", "3", "--check"});
  CHECK(copied["copied"] == n);
  for (const auto& [name, bytes] : want) {
    REQUIRE(store.Has("some/where/" + name));
    CHECK((store.Get("some/where/" + name).bytes == bytes));
  }
  CHECK(DataObject({"copy", folder / "in", there})["there"] == n);
  copied = DataObject({"copy", there + "/", folder / "back", "--threads", "3"});
  CHECK(copied["copied"] == n);
  CHECK((FilesIn(folder / "back") == want));
  CHECK(DataObject({"copy", there, folder / "back", "--check"})["there"] == n);
  // To another place there, and a single file.
  CHECK(DataObject({"copy", there, "s3://b/else"})["copied"] == n);
  const auto& [name, bytes] = *want.rbegin();
  REQUIRE(RunData({"copy", "s3://b/else/" + name, folder / "one"}).code == 0);
  CHECK((TextOf(folder / "one") == bytes));
  REQUIRE(RunData({"copy", folder / "one", "s3://b/new/"}).code == 0);
  CHECK((store.Get("new/one").bytes == bytes));
  for (const char* inside : {"s3://b/some/where/x", "s3://b/some", "s3://b"}) {
    testing::CheckDataError({"copy", there, inside}, 1, "one is in the other");
  }
  testing::CheckDataError({"copy", "s3://b/none", folder / "x"}, 1,
                          "'s3://b/none': no such file or folder");
  store.ResetCounts();
  testing::CheckDataError({"copy", folder / "in", "s3://none/x"}, 1,
                          "cannot list 's3://none/x': no such bucket");
  CHECK(store.Count("PUT") == 0);
  store.SetPrivate(true);
  testing::CheckDataError({"copy", folder / "in", there}, 1, "s3://b/some");
}

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
TEST_CASE("what was begun here goes on in a store, without the locks of here") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  const auto train = [](const std::string& log, const char* steps) {
    return testing::RunMnist({"train", "--model", "softmax", "--threads", "1",
                              "--max-steps", steps, "--log-dir", log});
  };
  REQUIRE(train(folder / "log", "5").code == 0);
  REQUIRE(fs::exists(folder / "log/training.lock"));
  REQUIRE(testing::RunMnist({"export", "--log-dir", folder / "log"}).code == 0);
  REQUIRE(fs::exists(folder / "log/export/export.lock"));
  testing::WritePicture(folder / "a.png", 4, 4);
  WriteFile(folder / "t.csv", "a.png,0\n");
  REQUIRE(RunData({"make", folder / "t.csv", folder / "records"}).code == 0);
  REQUIRE(fs::exists(folder / "records/data.lock"));

  REQUIRE(RunData({"copy", folder.path(), "s3://b/all"}).code == 0);
  CHECK_FALSE(store.Has("all/log/training.lock"));
  CHECK_FALSE(store.Has("all/records/data.lock"));
  CHECK_FALSE(store.Has("all/log/export/export.lock"));
  const Outcome exported =
      testing::RunMnist({"export", "--log-dir", "s3://b/all/log"});
  CHECK_MESSAGE(exported.code == 0, exported.err);
  const Outcome on = train("s3://b/all/log", "9");
  REQUIRE_MESSAGE(on.code == 0, on.err);
  CHECK(Contains(on.err, "resuming from step 5"));
  const Outcome second = RunData(
      {"make", folder / "t.csv", "s3://b/all/records", "--part", "validation"});
  CHECK_MESSAGE(second.code == 0, second.err);
  // Nor does a copy hold the lock of one that is under way there.
  store.Put("all/log/training.lock",
            R"({"format": "sluice.lease", "version": 1, "id": "7",)"
            R"( "holder": "process 7 on there", "seconds": 1000})");
  REQUIRE(RunData({"copy", "s3://b/all/log", "s3://b/copied"}).code == 0);
  CHECK_FALSE(store.Has("copied/training.lock"));
  // Where it is named it is a file like others.
  REQUIRE(
      RunData({"copy", "s3://b/all/log/training.lock", folder / "one"}).code ==
      0);
  CHECK(Contains(TextOf(folder / "one"), "process 7 on there"));
}
#endif

TEST_CASE("what was written since it was copied to a store goes there again") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  fs::create_directory(folder / "in");
  for (const char* name : {"in/a", "in/b"}) WriteFile(folder / name, "old");
  REQUIRE(RunData({"copy", folder / "in", "s3://b/x"}).code == 0);
  CHECK(DataObject({"copy", folder / "in", "s3://b/x"})["copied"] == 0);
  const auto later =
      fs::file_time_type::clock::now() + std::chrono::seconds(100);
  WriteFile(folder / "in/b", "new");
  fs::last_write_time(folder / "in/b", later);
  CHECK(DataObject({"copy", folder / "in", "s3://b/x"})["copied"] == 1);
  CHECK(store.Get("x/b").bytes == "new");
  // And back, from one whose clock says that it has changed.
  REQUIRE(RunData({"copy", "s3://b/x", folder / "back"}).code == 0);
  for (const char* name : {"back/a", "back/b"}) {
    fs::last_write_time(folder / name, later);  // not within the second
  }
  store.SetClock(200);
  store.Put("x/a", "NEW");
  CHECK(DataObject({"copy", "s3://b/x", folder / "back"})["copied"] == 1);
  CHECK(TextOf(folder / "back/a") == "NEW");
  // Where nobody says when, sizes alone tell.
  store.SetTimeless(true);
  store.Put("x/a", "yet");
  CHECK(DataObject({"copy", "s3://b/x", folder / "back"})["copied"] == 0);
}

// To find out what it is, and what is in it; the one that is copied is looked
// at before that.
TEST_CASE("a copy from a store lists the folders in it twice") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  for (const char* key : {"in/a/1", "in/a/2", "in/b/c/3", "in/4"}) {
    store.Put(key, key);
  }
  store.ResetCounts();
  CHECK(DataObject({"copy", "s3://b/in", folder / "out"})["copied"] == 4);
  CHECK(store.Count("LIST") <= 1 + 2 * 4);  // "in", "a", "b" and "c"
}

TEST_CASE("a name that leads out of the folder is none") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  store.Put("data/good", "1");
  store.Put("data/../../out", "2");
  store.Put("data/./x", "3");
  store.Put("data/empty", "");  // where others are in it, no file
  store.Put("data/empty/y", "4");
  const TemporaryFolder folder;
  const Outcome outcome =
      RunData({"copy", "s3://b/data", folder / "deep/deeper/to"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "'..' can be no name"));
  CHECK(Contains(outcome.err, "'.' can be no name"));
  CHECK(FilesIn(folder.path()) ==
        Files{{"deep/deeper/to/good", "1"}, {"deep/deeper/to/empty/y", "4"}});
}

// Whether an object is named, or a folder below the root that it is in.
bool IsNamed(const std::string& err, std::string key, const std::string& root) {
  const auto has = [&](const std::string& path) {
    return err.find("'s3://b/" + path + "'") != std::string::npos;
  };
  for (size_t end = root.size() + 1; end < key.size(); ++end) {
    if (key[end - 1] == '/' && has(key.substr(0, end))) return true;
  }
  if (has(key)) return true;
  if (key.ends_with('/')) key.pop_back();
  return has(key);
}

TEST_CASE("each object is copied, or it is said that it is not") {
  if (!KnowsStores()) return;
  std::mt19937 random(3);
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  int all_copied = 0, some_left = 0;
  for (int round = 0; round < 30; ++round) {
    const std::string name = std::to_string(round), root = name + "/";
    Files objects = {{root + "z", "1"}};
    if (round == 0) {
      objects = {
          {"0/a", "hello"}, {"0/a/b", "2"}, {"0/c/x", "3"}, {"0//e", ""}};
    }
    for (uint32_t n = round == 0 ? 0 : random() % 7; n > 0; --n) {
      const char* const names[] = {"", "a", "b", "c"};
      std::string key = root + names[random() % 4];
      while (random() % 2 == 0) key += std::string("/") + names[random() % 4];
      objects[key] = random() % 4 == 0 ? "" : std::to_string(n);
    }
    for (const auto& [key, bytes] : objects) store.Put(key, bytes);
    const Outcome outcome = RunData({"copy", "s3://b/" + name, folder / name});
    CAPTURE(outcome.err);
    bool are_plain = true, are_copied = true;
    for (const auto& [key, bytes] : objects) {
      CAPTURE(key);
      const auto next = objects.lower_bound(key + "/");
      const bool is_folder =
          next != objects.end() && next->first.starts_with(key + "/");
      const bool has_name =
          !key.ends_with('/') && key.find("//") == std::string::npos;
      are_plain = are_plain && has_name && !is_folder;
      // Some programs put such an object where there is a folder.
      if (bytes.empty() && (is_folder || key.ends_with('/'))) continue;
      const std::string path = folder / key;
      if (has_name && fs::is_regular_file(path)) {
        CHECK(TextOf(path) == bytes);
      } else {
        are_copied = false;
        CHECK(IsNamed(outcome.err, key, root));
      }
    }
    if (are_plain) CHECK(are_copied);
    if (are_plain) CHECK(outcome.code == 0);
    if (!are_copied) CHECK(outcome.code == 1);
    ++(are_copied ? all_copied : some_left);
  }
  CHECK(all_copied > 0);
  CHECK(some_left > 0);
}

TEST_CASE("a run that is killed leaves whole objects, the next one the rest") {
  if (!KnowsStores()) return;
  std::mt19937 random(2);
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  const Files want = WriteFiles(folder / "in", 60, random);
  const auto runs = [](const Process& process) {
    siginfo_t info{};
    waitid(P_PID, process.pid(), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  };
  // Slow enough to be seen on a machine that is busy.
  store.Fail([](const auto&, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return testing::StoreFault::kNone;
  });
  int in_the_middle = 0;
  for (const int at : {1, 15, 30}) {
    store.ResetCounts();
    const Process process(testing::kTool, {"data", "copy", folder / "in",
                                           "s3://b/x", "--threads", "2"});
    while (store.Count("PUT") < at && runs(process)) {
      std::this_thread::yield();
    }
    process.Kill(SIGKILL);
    if (process.Wait() == -SIGKILL) ++in_the_middle;
    for (const auto& [name, bytes] : want) {
      if (!store.Has("x/" + name)) continue;
      CHECK((store.Get("x/" + name).bytes == bytes));
    }
  }
  CHECK(in_the_middle >= 1);
  store.Fail(nullptr);
  REQUIRE(RunData({"copy", folder / "in", "s3://b/x"}).code == 0);
  for (const auto& [name, bytes] : want) {
    REQUIRE(store.Has("x/" + name));
    CHECK((store.Get("x/" + name).bytes == bytes));
  }
}

}  // namespace
}  // namespace sluice
