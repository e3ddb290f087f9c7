// `sluice data make` from outside: what it writes is read back record by
// record, also after runs that were killed or ended by an error.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "io/files/file.h"
#include "io/files/record.h"
#include "io/records/tf_example.h"
#include "tests/support/data_program.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_JPEG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::DataObject;
using testing::Outcome;
using testing::Process;
using testing::RandomJpeg;
using testing::RandomPng;
using testing::RunData;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteFile;

// A folder of pictures, a sub-folder per class: bytes by path from it on.
using Pictures = std::map<std::string, std::string>;
Pictures WritePictures(const std::string& folder, const Strings& classes,
                       int count, std::mt19937& random) {
  Pictures pictures;
  for (int i = 0; i < count; ++i) {
    const bool jpeg = random() % 4 == 0;
    const std::string name = fmt::format(
        "{}/{:03}.{}", classes[i % classes.size()], i, jpeg ? "jpg" : "png");
    pictures[name] = jpeg ? RandomJpeg(random) : RandomPng(random);
    WriteFile(JoinPath(folder, name), pictures[name]);
  }
  return pictures;
}

// What is in a folder, by name.
Pictures FilesIn(const std::string& folder) {
  Pictures files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = TextOf(entry.path());
  }
  return files;
}
// The same without the lock, which says who held it.
Pictures Made(const std::string& folder) {
  Pictures files = FilesIn(folder);
  CHECK(files.erase("data.lock") == 1);
  return files;
}

// Every picture once, in shards of about equal length, with the label that its
// class has in `classes`; each index as its shard is. Returns the order.
Strings CheckMade(const std::string& out, const std::string& part, int shards,
                  const Pictures& pictures, const Strings& classes) {
  Strings order;
  for (int s = 0; s < shards; ++s) {
    const std::string path =
        fmt::format("{}/{}-{:05}-of-{:05}", out, part, s, shards);
    CAPTURE(path);
    const std::string bytes = TextOf(path);
    std::string index;
    size_t offset = 0, records = 0;
    RecordReader reader(bytes);
    for (std::string_view payload; reader.Next(&payload).ValueOrThrow();) {
      ++records;
      index += fmt::format("{} {}\n", offset, payload.size() + 16);
      offset += payload.size() + 16;
      const auto example = TfExample::Parse(payload).ValueOrThrow();
      const std::string name(example.Bytes("image/filename").ValueOrThrow());
      order.push_back(name);
      REQUIRE(pictures.contains(name));
      CHECK(example.Bytes("image/encoded").ValueOrThrow() == pictures.at(name));
      const std::string label = name.substr(0, name.find('/'));
      CHECK(example.Bytes("image/class/text").ValueOrThrow() == label);
      CHECK(classes.at(example.Int("image/class/label").ValueOrThrow()) ==
            label);
    }
    CHECK(TextOf(path + ".idx") == index);
    CHECK(records >= pictures.size() / shards);
    CHECK(records <= pictures.size() / shards + 1);
  }
  CHECK(order.size() == pictures.size());
  CHECK(std::set(order.begin(), order.end()).size() == pictures.size());
  return order;
}

TEST_CASE("each picture is in one record, whatever the shards and threads") {
  std::mt19937 random(1);
  const Strings classes = {"ant", "bee, honey", "cat"};
  for (int round = 0; round < 8; ++round) {
    const TemporaryFolder folder;
    const int count = 1 + static_cast<int>(random() % 60);
    const int shards = 1 + static_cast<int>(random() % std::min(count, 9));
    const Strings used(classes.begin(),
                       classes.begin() + std::min<int64_t>(count, 3));
    const Pictures pictures = WritePictures(folder / "in", used, count, random);
    const auto make = [&](const std::string& out, const char* threads) {
      return DataObject({"make", folder / "in", folder / out, "--shards",
                         std::to_string(shards), "--threads", threads});
    };
    const Json made = make("a/b", round % 2 == 0 ? "64" : "3");
    const Strings order =
        CheckMade(folder / "a/b", "train", shards, pictures, used);
    CHECK(made["records"] == count);
    CHECK(made["shards"] == shards);
    CHECK(made["kept"] == 0);
    CHECK(TextOf(folder / "a/b/labels.txt") ==
          fmt::format("{}\n", fmt::join(used, "\n")));
    CHECK((count < 10 || !std::is_sorted(order.begin(), order.end())));
    make("c", "1");
    CHECK(Made(folder / "a/b") == Made(folder / "c"));
    // Once more: nothing is written.
    const auto before = fs::last_write_time(folder / "c/train-00000-of-" +
                                            fmt::format("{:05}", shards));
    CHECK(make("c", "2")["kept"] == shards);
    CHECK(fs::last_write_time(folder / "c/train-00000-of-" +
                              fmt::format("{:05}", shards)) == before);
  }
}

TEST_CASE("a run that is killed leaves whole shards, the next one the rest") {
  std::mt19937 random(2);
  const TemporaryFolder folder;
  const Pictures pictures =
      WritePictures(folder / "in", {"a", "b"}, 120, random);
  const auto arguments = [&](const std::string& out) -> Strings {
    return {"data",     "make", folder / "in", folder / out,
            "--shards", "60",   "--threads",   "2"};
  };
  REQUIRE(testing::RunProgram(testing::kTool, arguments("whole")).code == 0);
  const Pictures want = Made(folder / "whole");
  const auto whole = [&] {
    int64_t n = 0;
    if (!fs::exists(folder / "out")) return n;
    for (const auto& entry : fs::directory_iterator(folder / "out")) {
      if (entry.path().extension() == ".idx") ++n;
    }
    return n;
  };
  const auto runs = [](const Process& process) {
    siginfo_t info{};
    waitid(P_PID, process.pid(), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  };
  int in_the_middle = 0;
  for (const int64_t at : {0, 1, 5, 17, 30, 31, 44}) {
    const Process process(testing::kTool, arguments("out"));
    while (whole() < at && runs(process)) {
    }
    process.Kill(SIGKILL);
    if (process.Wait() == -SIGKILL && whole() > 0) ++in_the_middle;
    if (!fs::exists(folder / "out")) continue;
    for (const auto& [name, bytes] : FilesIn(folder / "out")) {
      if (name == "data.lock" || IsTemporaryName(name)) continue;
      CAPTURE(name);
      REQUIRE(want.contains(name));
      CHECK(bytes == want.at(name));
    }
  }
  CHECK(in_the_middle >= 1);
  REQUIRE(testing::RunProgram(testing::kTool, arguments("out")).code == 0);
  CHECK(Made(folder / "out") == want);
}

TEST_CASE("a picture that is none ends the run before anything is written") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  const Pictures pictures =
      WritePictures(folder / "in", {"a", "b"}, 40, random);
  const Strings make = {"make",     folder / "in", folder / "out",
                        "--shards", "5",           "--threads"};
  const auto with_threads = [&](const char* threads) {
    Strings arguments = make;
    arguments.emplace_back(threads);
    return arguments;
  };
  Strings whole = with_threads("1");
  whole[2] = folder / "whole";
  REQUIRE(RunData(whole).code == 0);
  const Pictures want = Made(folder / "whole");
  const auto [name, good] = *std::next(pictures.begin(), 17);
  const std::string path = folder / "in/" + name;
  const std::vector<std::function<void()>> breaks = {
      [&] { WriteFile(path, ""); },
      [&] { WriteFile(path, "GIF89a and more"); },
      [&] { WriteFile(path, "\xff"); },
      [&] { fs::create_symlink("nowhere", path); },
      [&] { fs::create_directory(path); },
  };
  for (const auto& damage : breaks) {
    for (const char* threads : {"1", "3"}) {
      fs::remove_all(folder / "out");
      fs::remove(path);
      damage();
      CheckDataError(with_threads(threads), 1, name);
      CHECK_FALSE(fs::exists(folder / "out"));
      // A folder that was there before stays as it was.
      fs::create_directory(folder / "out");
      WriteFile(folder / "out/notes", "mine");
      CheckDataError(with_threads(threads), 1, "1 of 40 pictures");
      CHECK(FilesIn(folder / "out") == Pictures{{"notes", "mine"}});
      fs::remove(folder / "out/notes");
      fs::remove(path);
      WriteFile(path, good);
      CHECK(DataObject(with_threads(threads))["kept"] == 0);
      CHECK(Made(folder / "out") == want);
    }
  }
}

TEST_CASE("all bad pictures are told at once, the first twenty by name") {
  std::mt19937 random(9);
  for (const size_t bad : {1, 20, 21, 47}) {
    const TemporaryFolder folder;
    const Pictures pictures =
        WritePictures(folder / "in", {"a", "b"}, 50, random);
    Strings names;
    for (const auto& [name, bytes] : pictures) names.push_back(name);
    std::shuffle(names.begin(), names.end(), random);
    names.resize(bad);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      WriteFile(folder / "in/" + name, random() % 2 == 0 ? "" : "none");
    }
    std::string first;
    for (const char* threads : {"1", "3", "64"}) {
      const Outcome outcome = RunData(
          {"make", folder / "in", folder / "out", "--threads", threads});
      if (first.empty()) first = outcome.err;
      CHECK(outcome.err == first);
      testing::CheckError(outcome, "sluice", 1,
                          fmt::format("{} of 50 pictures", bad));
      CHECK(testing::Lines(outcome.err) ==
            static_cast<int64_t>(std::min<size_t>(bad, 20) + (bad > 20) + 1));
      const auto has = [&](const std::string& text) {
        return outcome.err.find(text) != std::string::npos;
      };
      for (size_t i = 0; i < bad; ++i) {
        CHECK(has(names[i] + "'") == (i < 20));
      }
      CHECK(has(fmt::format("\nand {} more\n", bad - 20)) == (bad > 20));
      CHECK_FALSE(fs::exists(folder / "out"));
    }
  }
}

TEST_CASE("a folder that is the wrong one leaves no names of classes") {
  std::mt19937 random(10);
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  WritePictures(folder / "wrong", {"x"}, 3, random);
  WriteFile(folder / "wrong/x/bad.png", "none");
  const Pictures pictures = WritePictures(folder / "in", {"a", "b"}, 6, random);
  CheckDataError({"make", folder / "wrong", out}, 1, "1 of 4 pictures");
  CheckDataError({"make", folder / "wrong", out, "--shards", "9"}, 1,
                 "wanted at most one per");
  CHECK_FALSE(fs::exists(out));
  DataObject({"make", folder / "in", out});
  CheckMade(out, "train", 1, pictures, {"a", "b"});
  // A name with the end of a line would be two of labels.txt.
  WritePictures(folder / "lines", {"a\nb"}, 2, random);
  CheckDataError({"make", folder / "lines", folder / "new"}, 1,
                 "a line ends within");
  CHECK_FALSE(fs::exists(folder / "new"));
}

TEST_CASE("a shard that lost records is written again") {
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    const TemporaryFolder folder;
    WritePictures(folder / "in", {"a", "b"}, 20, random);
    const std::string out = folder / "out";
    const Strings make = {"make", folder / "in", out, "--shards", "3"};
    REQUIRE(RunData(make).code == 0);
    const Pictures made = Made(out);
    const std::string shard = out + "/train-00001-of-00003";
    const std::string bytes = TextOf(shard), index = TextOf(shard + ".idx");
    RecordReader reader(bytes);
    size_t length = 0, records = random() % 6;  // of 6 or 7
    std::string_view payload;
    for (size_t i = 0; i < records; ++i) {
      REQUIRE(reader.Next(&payload).ValueOrThrow());
      length += payload.size() + 16;
    }
    const bool within = round % 3 == 2;  // a record
    WriteFile(shard, bytes.substr(0, length + (within ? 5 : 0)));
    if (round % 3 == 1) {
      size_t end = 0;
      for (size_t i = 0; i < records; ++i) end = index.find('\n', end) + 1;
      WriteFile(shard + ".idx", index.substr(0, end));
    }
    CAPTURE(records);
    CHECK(DataObject(make)["kept"] == 2);
    CHECK(Made(out) == made);
    CHECK(RunData({"check", out}).code == 0);
  }
}

TEST_CASE("a run that ended before its first shard is cut as it was") {
  std::mt19937 random(12);
  const TemporaryFolder folder;
  WritePictures(folder / "in", {"a", "b"}, 20, random);
  const std::string out = folder / "out";
  const Strings make = {"make", folder / "in", out};
  REQUIRE(RunData({"make", folder / "in", out, "--shards", "7"}).code == 0);
  const Pictures made = Made(out);
  const auto forget_shards = [&] {
    for (const auto& [name, bytes] : made) {
      if (name.starts_with("train-")) fs::remove(JoinPath(out, name));
    }
  };
  forget_shards();
  CHECK(DataObject(make)["shards"] == 7);
  CHECK(Made(out) == made);
  // Not where it was asked for otherwise, or of other pictures, or unreadable.
  forget_shards();
  const auto shards_after = [&](const std::string& plan, Strings arguments) {
    fs::remove_all(out);
    WriteFile(out + "/train.json", plan);
    return DataObject(std::move(arguments))["shards"].get<int>();
  };
  const std::string plan = made.at("train.json");
  Strings four = make;
  four.insert(four.end(), {"--shards", "4"});
  CHECK(shards_after(plan, make) == 7);
  CHECK(shards_after(plan, four) == 4);
  CHECK(shards_after("{", make) == 1);
  CHECK(shards_after(R"({"records": 1, "shards": [4, 5]})", make) == 1);
  WriteFile(folder / "in/a/more.png", RandomPng(random));
  CHECK(shards_after(plan, make) == 1);
}

TEST_CASE("a full disk leaves whole shards") {
  std::mt19937 random(4);
  const TemporaryFolder folder;
  WritePictures(folder / "in", {"a"}, 30, random);
  // The second shard is larger than a file may be.
  WriteFile(folder / "in/a/big.png",
            RandomPng(random) + std::string(300'000, '.'));
  const Strings make = {"make", folder / "in", folder / "out", "--shards", "4"};
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {100'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const Outcome outcome = RunData(make);
  std::signal(SIGXFSZ, old);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  testing::CheckError(outcome, "sluice", 1, "cannot write");
  const Pictures there = Made(folder / "out");
  REQUIRE(RunData(make).code == 0);
  for (const auto& [name, bytes] : there) {
    CHECK(TextOf(folder / "out/" + name) == bytes);
  }
}

TEST_CASE("a second part has the classes of the first") {
  std::mt19937 random(5);
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  WritePictures(folder / "train", {"a", "b", "c"}, 12, random);
  const Pictures pictures =
      WritePictures(folder / "val", {"c", "a"}, 9, random);
  REQUIRE(RunData({"make", folder / "train", out, "--shards", "2"}).code == 0);
  const Strings validation = {"make", folder / "val", out, "--part",
                              "validation"};
  CHECK(DataObject(validation)["classes"] == 3);
  CheckMade(out, "validation", 1, pictures, {"a", "b", "c"});
  CHECK(DataObject({"check", out})["records"] == 21);
  WritePictures(folder / "val", {"d"}, 1, random);
  CheckDataError(validation, 1, "no class of that name, only a, b, c");
  CheckDataError(validation, 1, "those of '" + out + "/labels.txt': choose");
  // Numbers alone, then names.
  WriteFile(folder / "numbers/x.png", RandomPng(random));
  WriteFile(folder / "numbers/y.png", RandomPng(random));
  WriteFile(folder / "numbers/labels.csv", "x.png,4\ny.png,1\n");
  const Strings numbers = {"make", folder / "numbers", folder / "mixed"};
  CHECK(testing::Contains(RunData(numbers).out,
                          "/mixed/train: 2 records of labels 1 to 4,"));
  const Json object = DataObject(numbers);
  CHECK(object["least_label"] == 1);
  CHECK(object["most_label"] == 4);
  CHECK_FALSE(object.contains("classes"));
  CHECK_FALSE(fs::exists(folder / "mixed/labels.txt"));
  CheckDataError({"make", folder / "train", folder / "mixed", "--part", "test"},
                 1, "numbers alone");
  CheckDataError({"make", folder / "numbers", out, "--part", "test"}, 1,
                 "has the label 4");
}

TEST_CASE("what is there already and is not of this run is not touched") {
  std::mt19937 random(6);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  const Pictures pictures = WritePictures(in, {"a", "b"}, 20, random);
  const Strings make = {"make", in, out, "--shards", "3"};
  WriteFile(out + "/notes", "mine");
  REQUIRE(RunData(make).code == 0);
  const Pictures made = Made(out);
  CheckDataError({"make", in, out, "--shards", "4"}, 1,
                 "one of 3 shards, got --shards 4; leave --shards out, or "
                 "remove '");
  CHECK(DataObject({"make", in, out})["kept"] == 3);  // as many as before
  WriteFile(in + "/a/more.png", RandomPng(random));
  CheckDataError(make, 1, "was made from other pictures");
  fs::remove(in + "/a/more.png");
  WriteFile(in + "/" + pictures.begin()->first, RandomPng(random) + "longer");
  CheckDataError(make, 1, "was made from other pictures");
  WriteFile(in + "/" + pictures.begin()->first, pictures.begin()->second);
  fs::rename(in + "/b", in + "/B");
  CheckDataError(make, 1, "no class of that name");
  fs::rename(in + "/B", in + "/b");
  WriteFile(out + "/train-00000-of-00007", "another's");
  CheckDataError(make, 1, "is none of the 3 shards");
  fs::remove(out + "/train-00000-of-00007");
  WriteFile(out + "/train.json", "{}");
  CheckDataError(make, 1, "train.json' is damaged; remove");
  fs::remove(out + "/train.json");
  CheckDataError(make, 1, "is there without");
  WriteFile(out + "/train.json", made.at("train.json"));
  CHECK(Made(out) == made);
  // A shard that somebody removed is written again, though its index is there.
  fs::remove(out + "/train-00001-of-00003");
  CHECK(DataObject(make)["kept"] == 2);
  CHECK(Made(out) == made);
}

TEST_CASE("two runs at once are told, and so is wrong usage") {
  std::mt19937 random(7);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  WritePictures(in, {"a", "b"}, 4, random);
  fs::create_directory(out);
  {
    const auto lock =
        FileSystem::Posix().Lock(out + "/data.lock", "the test").ValueOrThrow();
    CheckDataError({"make", in, out}, 1, "by another run (the test)");
  }
  CheckDataError({"make", in, out, "--shards", "5"}, 1,
                 "wanted at most one per");
  CheckDataError({"make", in, out, "--shards", "0"}, 2, "--shards");
  CheckDataError({"make", in, out, "--threads", "-1"}, 2, "--threads");
  CheckDataError({"make", in, out, "--part", "a/b"}, 2, "--part");
  CheckDataError({"make", in}, 2, "out");
  CheckDataError({"make", folder / "none", folder / "new"}, 1, "none");
  CHECK_FALSE(fs::exists(folder / "new"));
  fs::create_directory(folder / "empty");
  CheckDataError({"make", folder / "empty", out}, 1, "no images in");
  CheckDataError({"make", folder.path(), folder.path()}, 1,
                 folder / "empty" + "': a class's folder without JPEG and PNG");
  CheckDataError({"make", in, in + "/a/000.png/out"}, 1, "cannot create");
  CheckDataError({}, 2,
                 "wanted make, copy, show, check, stats or bench, got "
                 "nothing");
  CheckDataError({"mkae"}, 2, "got 'mkae'");
  CheckDataError({"--bogus"}, 2, "got '--bogus'");
  for (const char* command : {"show", "check", "stats"}) {
    CheckDataError({command, folder / "empty"}, 1, "train-00000-of-00008");
    CheckDataError({command, folder / "none"}, 1, "none");
    CheckDataError({command}, 2, "required");
  }
  if (geteuid() == 0) {
    MESSAGE("skipped: root may write anywhere");
    return;
  }
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::owner_read);
  CheckDataError({"make", in, folder / "closed"}, 1, "permission denied");
  fs::permissions(folder / "closed", fs::perms::owner_all);
}

}  // namespace
}  // namespace sluice

#endif
