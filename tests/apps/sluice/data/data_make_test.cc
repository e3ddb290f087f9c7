// Where `sluice data make` may write: in no class's place, and what it says of
// a lock that does not hold.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/support/data_program.h"
#include "tests/support/object_store.h"
#include "tests/support/store_program.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CheckDataError;
using testing::Contains;
using testing::DataObject;
using testing::KnowsStores;
using testing::ObjectStore;
using testing::Outcome;
using testing::RunData;
using testing::StoreSettings;
using testing::TemporaryFolder;
using testing::WriteFile;

constexpr const char* kRefused =
    "would be taken for a class: choose another folder for the records";

void WritePictures(const std::string& folder) {
  std::mt19937 random(1);
  for (const char* name : {"ant/1.png", "ant/2.png", "bee/1.png"}) {
    WriteFile(folder + "/" + name, testing::RandomPng(random));
  }
}

std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    files[entry.path()] =
        entry.is_regular_file() ? testing::TextOf(entry.path()) : "";
  }
  return files;
}

TEST_CASE("records are written where they are no class, or not at all") {
  const TemporaryFolder folder;
  const std::string in = folder / "in";
  WritePictures(in);
  fs::create_directory_symlink(in, folder / "alias");
  fs::create_directory(in + "/empty");
  const auto before = FilesIn(in);
  for (const std::string& out :
       {in + "/records", in + "/records//", in + "/new/records", in + "/empty",
        in + "/empty/records", folder / "alias/records",
        folder / "none/../in/records"}) {
    CAPTURE(out);
    CheckDataError({"make", in, out}, 1, kRefused);
    CheckDataError({"make", in + "/", out}, 1, kRefused);
    CheckDataError({"make", folder / "alias", out}, 1, kRefused);
    CHECK(FilesIn(in) == before);
  }
  fs::remove(in + "/empty");
  // Wherever it is allowed, it can be run again.
  for (const std::string& out : {in + "/.records", in + "/ant/records", in,
                                 in + "2", folder / "alias/.other/records"}) {
    CAPTURE(out);
    CHECK(DataObject({"make", in, out})["kept"] == 0);
    CHECK(DataObject({"make", in, out})["kept"] == 1);
  }
  // With a table sub-folders are no classes.
  WriteFile(in + "/labels.csv", "ant/1.png,0\nbee/1.png,1\n");
  for (const std::string& out : {in + "/records", in + "/more"}) {
    const std::string from = out.ends_with('e') ? in + "/labels.csv" : in;
    CHECK(DataObject({"make", from, out})["kept"] == 0);
    CHECK(DataObject({"make", from, out})["kept"] == 1);
  }
}

TEST_CASE("in a store, too, records are no class") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  WritePictures(folder.path());
  testing::Upload(store, folder.path(), "in");
  store.ResetCounts();
  CheckDataError({"make", "s3://b/in", "s3://b/in/records"}, 1, kRefused);
  CheckDataError({"make", "s3://b/in/", "s3://b/in/a/b/"}, 1, kRefused);
  CHECK(store.Count("PUT") == 0);
  for (const char* kept : {"0", "1"}) {
    CHECK(DataObject({"make", "s3://b/in", "s3://b/in/.records"})["kept"]
              .dump() == kept);
  }
}

TEST_CASE("a store without conditions is told, once, and so is a wait") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  WritePictures(folder.path());
  const auto make = [&](const std::string& out) {
    const Outcome outcome = RunData({"make", folder.path(), out});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  const std::string warning = "knows no conditional writes";
  CHECK(make("s3://b/with").find(warning) == std::string::npos);
  for (const auto conditions :
       {testing::Conditions::kIgnored, testing::Conditions::kRefused}) {
    store.SetConditions(conditions);
    const std::string err = make("s3://b/without");
    CHECK(Contains(err, "'s3://b/without/data.lock': this object store"));
    CHECK(Contains(err, warning));
    CHECK(err.find(warning) == err.rfind(warning));
  }
  store.SetConditions(testing::Conditions::kHonoured);
  store.Put("held/data.lock",
            R"({"format": "sluice.lease", "version": 1, "id": "7",)"
            R"( "holder": "process 7 on there", "seconds": 1000})");
  const testing::Process waits(testing::kTool,
                               {"data", "make", folder.path(), "s3://b/held"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (waits.err().find("locked by process 7 on there") ==
         std::string::npos) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  waits.Kill(SIGKILL);
  CHECK(waits.Wait() == -SIGKILL);
}

}  // namespace
}  // namespace sluice

#endif
