// `sluice data copy` from outside: what it copies is compared byte by byte,
// also after runs that were killed and where files cannot be copied.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "apps/sluice/data/file_copy.h"
#include "io/files/file.h"
#include "tests/support/data_program.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::Contains;
using testing::DataObject;
using testing::Outcome;
using testing::Process;
using testing::RandomBytes;
using testing::RunData;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteFile;

// Bytes by path from the folder on; folders have a slash at the end.
using Tree = std::map<std::string, std::string>;
Tree TreeIn(const std::string& folder) {
  Tree tree;
  const auto options = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(folder, options)) {
    const std::string path = entry.path().lexically_relative(folder);
    if (entry.is_directory()) {
      tree[path + "/"];
    } else {
      tree[path] = TextOf(entry.path());
    }
  }
  return tree;
}

// Folders in folders, empty ones, files of no bytes, of one and of more than a
// piece, names that are hard to say.
void WriteTree(const std::string& folder, int count, std::mt19937& random) {
  const Strings names = {"a",    "b c",     "d'e", "\xc3\xa4", "f\ng",
                         ".dot", "h.tmp-x", "%20", "\xff"};
  fs::create_directories(folder + "/empty/er");
  for (int i = 0; i < count; ++i) {
    std::string path = folder;
    for (uint32_t depth = random() % 4; depth > 0; --depth) {
      path += "/" + names[random() % names.size()];
    }
    const size_t sizes[] = {0, 1, 511, 512, 70'000, random() % 3000};
    const size_t size = i == 7 ? (4 << 20) + 5 : sizes[random() % 6];
    WriteFile(path + fmt::format("/{}{}", names[random() % 4], i),
              RandomBytes(random, size));
  }
}

// The name that a process here of that number might give to a file until it is
// whole.
std::string NameGivenBy(pid_t process, const std::string& file) {
  std::string name = TemporaryName(file);
  const std::string own = std::to_string(getpid());
  return name.replace(name.rfind(".tmp-") + 5, own.size(),
                      std::to_string(process));
}
constexpr pid_t kNobody = 999'999'999;

int64_t FilesOf(const Tree& tree) {
  return std::count_if(tree.begin(), tree.end(), [](const auto& entry) {
    return !entry.first.ends_with('/');
  });
}

TEST_CASE("a copy is the same tree, for any threads, and back again") {
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    const TemporaryFolder folder;
    const int count = round == 0 ? 0 : static_cast<int>(random() % 30);
    WriteTree(folder / "in", count, random);
    const Tree want = TreeIn(folder / "in");
    const char* threads = round % 2 == 0 ? "1" : "7";
    // A slash more or less changes nothing.
    const std::string slash = round % 3 == 0 ? "/" : "";
    Json copied = DataObject({"copy", folder / "in" + slash,
                              folder / "x/out" + slash, "--threads", threads});
    CHECK(TreeIn(folder / "x/out") == want);
    CHECK(copied["files"] == FilesOf(want));
    CHECK(copied["copied"] == FilesOf(want));
    CHECK(copied["there"] == 0);
    uint64_t bytes = 0;
    for (const auto& [name, text] : want) bytes += text.size();
    CHECK(copied["bytes"] == bytes);
    copied = DataObject({"copy", folder / "x/out", folder / "back", "--check"});
    CHECK(copied["copied"] == FilesOf(want));
    CHECK(TreeIn(folder / "back") == want);
    // Once more: nothing is written.
    copied = DataObject({"copy", folder / "in", folder / "back"});
    CHECK(copied["copied"] == 0);
    CHECK(copied["bytes"] == 0);
    CHECK(copied["there"] == FilesOf(want));
  }
}

TEST_CASE("only what is missing or differs is copied") {
  std::mt19937 random(2);
  for (int round = 0; round < 4; ++round) {
    const TemporaryFolder folder;
    const std::string in = folder / "in", out = folder / "out";
    WriteTree(in, 30, random);
    REQUIRE(RunData({"copy", in, out}).code == 0);
    const Tree want = TreeIn(in);
    std::set<std::string> missing, spoilt;
    for (const auto& [name, bytes] : want) {
      if (name.ends_with('/') || bytes.empty() || random() % 3 > 0) continue;
      const std::string path = JoinPath(out, name);
      std::string other = bytes;
      switch (random() % 4) {
        case 0:
          fs::remove(path);
          break;
        case 1:
          WriteFile(path, bytes.substr(0, bytes.size() - 1));
          break;
        case 2:
          WriteFile(path, bytes + "x");
          break;
        default:
          other[random() % other.size()] ^= 4;
          WriteFile(path, other);
          spoilt.insert(name);
          continue;
      }
      missing.insert(name);
    }
    WriteFile(out + "/mine/notes", "stay");
    // What would be copied is said, and nothing is changed.
    const Tree before = TreeIn(out);
    const Outcome plan = RunData({"copy", in, out, "--dry-run", "--json"});
    CHECK(plan.code == 0);
    CHECK(testing::Lines(plan.out) == static_cast<int64_t>(missing.size()) + 1);
    CHECK(testing::LastObject(plan.out)["to_copy"] == missing.size());
    CHECK(TreeIn(out) == before);
    // By sizes, then by bytes.
    CHECK(DataObject({"copy", in, out})["copied"] == missing.size());
    CHECK(DataObject({"copy", in, out, "--check", "--dry-run"})["to_copy"] ==
          spoilt.size());
    CHECK(DataObject({"copy", in, out, "--check"})["copied"] == spoilt.size());
    Tree got = TreeIn(out);
    CHECK(got["mine/notes"] == "stay");
    got.erase("mine/notes");
    got.erase("mine/");
    CHECK(got == want);
  }
}

TEST_CASE("what was written since the last copy is copied again") {
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  fs::create_directory(in);
  for (const char* name : {"/a", "/b", "/c"}) WriteFile(in + name, "old");
  REQUIRE(RunData({"copy", in, out}).code == 0);
  WriteFile(in + "/b", "new");
  fs::last_write_time(
      in + "/b", fs::last_write_time(out + "/b") + std::chrono::seconds(1));
  // One that is older than its copy is none.
  fs::last_write_time(in + "/c",
                      fs::last_write_time(out + "/c") - std::chrono::hours(1));
  CHECK(DataObject({"copy", in, out, "--dry-run"})["to_copy"] == 1);
  CHECK(DataObject({"copy", in, out})["copied"] == 1);
  CHECK(TextOf(out + "/b") == "new");
  // Where bytes are compared, times do not matter.
  fs::last_write_time(in + "/a",
                      fs::last_write_time(out + "/a") + std::chrono::hours(1));
  CHECK(DataObject({"copy", in, out, "--check"})["copied"] == 0);
}

TEST_CASE("a run that is killed leaves whole files, the next one the rest") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  for (int i = 0; i < 150; ++i) {
    WriteFile(fmt::format("{}/{}/{:03}", in, i % 3, i),
              RandomBytes(random, random() % 200'000));
  }
  const Tree want = TreeIn(in);
  const auto there = [&] { return fs::exists(out) ? FilesOf(TreeIn(out)) : 0; };
  const auto runs = [](const Process& process) {
    siginfo_t info{};
    waitid(P_PID, process.pid(), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  };
  int in_the_middle = 0;
  for (const int64_t at : {0, 1, 20, 40, 60, 80, 100, 120}) {
    const Process process(testing::kTool,
                          {"data", "copy", in, out, "--threads", "2"});
    while (there() < at && runs(process)) {
    }
    process.Kill(SIGKILL);
    if (process.Wait() == -SIGKILL && there() > 0) ++in_the_middle;
    if (!fs::exists(out)) continue;
    for (const auto& [name, bytes] : TreeIn(out)) {
      CAPTURE(name);
      if (IsTemporaryName(name)) continue;
      REQUIRE(want.contains(name));
      CHECK((bytes == want.at(name)));
    }
  }
  CHECK(in_the_middle >= 1);
  // As a run that was killed would have left them, whatever the timing was.
  WriteFile(out + "/0/" + NameGivenBy(kNobody, "000"), "half");
  WriteFile(out + "/1/" + NameGivenBy(kNobody, "001"), "half");
  REQUIRE(RunData({"copy", in, out}).code == 0);
  CHECK((TreeIn(out) == want));
}

#if SLUICE_HAVE_PNG
TEST_CASE("temporary files go where nobody writes them, and no others") {
  std::mt19937 random(7);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  WriteFile(folder / "pictures/x.png", testing::RandomPng(random));
  const Process busy(testing::kTool, {"data", "bench", folder / "pictures",
                                      "--seconds", "3600", "--threads", "1"});
  const std::string comm = fmt::format("/proc/{}/comm", busy.pid());
  while (TextOf(comm) != "sluice\n") {
  }
  const std::string alive = NameGivenBy(busy.pid(), "a");
  const std::string other = NameGivenBy(kNobody, "other");
  const std::string long_name(255, 'n');  // as long as one may be
  WriteFile(in + "/a", "1");
  WriteFile(in + "/b.tmp-5", "2");  // what is copied is never one
  WriteFile(in + "/b", "3");
  WriteFile(in + "/" + long_name, "4");
  // Whoever is process 1 there, here it is another one.
  const Tree elsewhere = {{"a.tmp-1-1", "of another version"},
                          {"a.tmp-1-5-1", "of another container"},
                          {"a.tmp--7", "nobody's"}};
  Tree left = {{NameGivenBy(kNobody, "a"), "dead"},
               {TemporaryName("a"), "of a number that another program has now"},
               {TemporaryName(long_name), "of one, too"},
               {alive, "of a copy that runs"},
               {other, "of no file here"}};
  left.insert(elsewhere.begin(), elsewhere.end());
  for (const auto& [name, bytes] : left) WriteFile(JoinPath(out, name), bytes);
  REQUIRE(RunData({"copy", in, out, "--dry-run"}).code == 0);
  CHECK(TreeIn(out) == left);
  REQUIRE(RunData({"copy", in, out}).code == 0);
  Tree want = {{"a", "1"},
               {"b", "3"},
               {"b.tmp-5", "2"},
               {long_name, "4"},
               {alive, "of a copy that runs"},
               {other, "of no file here"}};
  Tree with_those = want;
  with_those.insert(elsewhere.begin(), elsewhere.end());
  CHECK(TreeIn(out) == with_those);
  // What has not been written for long is nobody's, unless somebody is seen.
  for (const auto& [name, bytes] : TreeIn(out)) {
    const std::string path = JoinPath(out, name);
    fs::last_write_time(path,
                        fs::last_write_time(path) - std::chrono::hours(25));
  }
  REQUIRE(RunData({"copy", in, out}).code == 0);
  CHECK(TreeIn(out) == want);
  // Killed, but nobody has asked for it yet.
  busy.Kill(SIGKILL);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, busy.pid(), &info, WEXITED | WNOWAIT) == 0);
  REQUIRE(RunData({"copy", in, out}).code == 0);
  want.erase(alive);
  CHECK(TreeIn(out) == want);
  CHECK(busy.Wait() == -SIGKILL);
}
#endif

TEST_CASE("what cannot be copied is named and the rest is copied") {
  std::mt19937 random(4);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  WriteTree(in, 20, random);
  Tree want = TreeIn(in);
  fs::create_symlink("nowhere", in + "/dangling");
  fs::create_directory_symlink("..", in + "/empty/back");
  REQUIRE(mkfifo((in + "/pipe").c_str(), 0600) == 0);
  WriteFile(in + "/blocked", "a folder is in its way");
  fs::create_directories(out + "/blocked/x");
  WriteFile(in + "/below/file", "a file is in its folder's way");
  WriteFile(out + "/below", "file");
  for (const char* threads : {"1", "5"}) {
    const Outcome outcome = RunData({"copy", in, out, "--threads", threads});
    CHECK(outcome.code == 1);
    for (const char* name :
         {"dangling'", "empty/back' is a link that leads",
          "pipe': it is a pipe", "blocked': it is a folder", "below/file'"}) {
      CAPTURE(name);
      CHECK(Contains(outcome.err, name));
    }
    CHECK(Contains(outcome.out, " bad\n"));
    for (const auto& [name, bytes] : want) {
      CAPTURE(name);
      if (name.ends_with('/')) {
        CHECK(fs::is_directory(JoinPath(out, name)));
      } else {
        CHECK((TextOf(JoinPath(out, name)) == bytes));
      }
    }
  }
  const Outcome json = RunData({"copy", in, out, "--json"});
  CHECK(json.code == 1);
  CHECK(json.err == "");
  CHECK(testing::LastObject(json.out)["bad"].get<int>() ==
        testing::Lines(json.out) - 1);
}

TEST_CASE("links are followed, but not in circles") {
  const TemporaryFolder folder;
  const std::string in = folder / "in";
  WriteFile(folder / "elsewhere/deep/x", "x");
  WriteFile(in + "/a/file", "f");
  WriteFile(in + "/b/file", "g");
  fs::create_symlink("file", in + "/a/link");
  fs::create_directory_symlink(folder / "elsewhere", in + "/a/folder");
  REQUIRE(RunData({"copy", in, folder / "out"}).code == 0);
  CHECK(TreeIn(folder / "out") == TreeIn(in));
  CHECK(TreeIn(folder / "out").contains("a/folder/deep/x"));
  // Two folders with links to each other.
  fs::create_directory_symlink(in + "/b", in + "/a/to_b");
  fs::create_directory_symlink(in + "/a", in + "/b/to_a");
  const Outcome outcome = RunData({"copy", in, folder / "two"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "a/to_b/to_a' is a link that leads back"));
  CHECK(TextOf(folder / "two/a/to_b/file") == "g");
  CHECK_FALSE(fs::exists(folder / "two/a/to_b/to_a"));
}

TEST_CASE("a single file becomes a file, or one in a folder") {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "bytes");
  fs::create_directory(folder / "there");
  const auto copy = [&](const std::string& to) {
    return DataObject({"copy", folder / "file", folder / to})["copied"] == 1;
  };
  CHECK(copy("x/y/renamed"));
  CHECK(TextOf(folder / "x/y/renamed") == "bytes");
  CHECK(copy("there"));
  CHECK(TextOf(folder / "there/file") == "bytes");
  CHECK(copy("new/"));
  CHECK(TextOf(folder / "new/file") == "bytes");
  CHECK_FALSE(copy("new/"));
}

TEST_CASE("a copy into itself is refused, and so is wrong usage") {
  const TemporaryFolder folder;
  const std::string in = folder / "in";
  WriteFile(in + "/a/file", "f");
  fs::create_directory_symlink(in, folder / "alias");
  const Tree before = TreeIn(in);
  const auto refused = [&](const std::string& from, const std::string& to) {
    CheckDataError({"copy", from, to}, 1, "one is in the other, or they are");
  };
  refused(in, in);
  refused(in, in + "/");
  refused(in, in + "/a");
  refused(in, in + "/new/deep");
  refused(in + "/a", in);
  refused(in, folder / "alias");
  refused(in, folder / "alias/x");
  refused(in, folder / "other/../in/b");
  refused(in + "/a/file", in + "/a/file");
  refused(in + "/a/file", in + "/a");
  CHECK(TreeIn(in) == before);
  // A name that only begins alike is another folder.
  CHECK(RunData({"copy", in, in + "2"}).code == 0);
  CheckDataError({"copy", folder / "none", folder / "x"}, 1, "none': no such");
  CheckDataError({"copy", in}, 2, "to");
  CheckDataError({"copy", in, in + "2/a/file"}, 1, "which is a file");
  CheckDataError({"copy", in, folder / "x", "--threads", "-1"}, 2, "--threads");
  CheckDataError({"copy", in, "none://bucket/x"}, 1, "none://");
  CheckDataError({"copy", "none://bucket/x", folder / "x"}, 1, "none://");
  CHECK_FALSE(fs::exists(folder / "x"));
}

TEST_CASE("a full disk leaves whole files") {
  std::mt19937 random(5);
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  for (int i = 0; i < 10; ++i) {
    WriteFile(fmt::format("{}/{}", in, i),
              RandomBytes(random, i % 3 == 1 ? 300'000 : 5'000));
  }
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {100'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const Outcome outcome = RunData({"copy", in, out, "--threads", "3"});
  std::signal(SIGXFSZ, old);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(outcome.code == 1);
  CHECK(testing::Lines(outcome.err) == 3);
  CHECK(Contains(outcome.err, "cannot write"));
  Tree want = TreeIn(in);
  for (const char* name : {"1", "4", "7"}) want.erase(name);
  CHECK((TreeIn(out) == want));
  REQUIRE(RunData({"copy", in, out}).code == 0);
  CHECK((TreeIn(out) == TreeIn(in)));
}

TEST_CASE("two runs at once end in the same tree") {
  std::mt19937 random(6);
  const TemporaryFolder folder;
  WriteTree(folder / "in", 50, random);
  const Strings arguments = {"data",         "copy",      folder / "in",
                             folder / "out", "--threads", "2"};
  const Process one(testing::kTool, arguments);
  const Process two(testing::kTool, arguments);
  CHECK(one.Wait() == 0);
  CHECK(two.Wait() == 0);
  CHECK((TreeIn(folder / "out") == TreeIn(folder / "in")));
}

// A copy of the same size that is younger would be left as it is for ever.
TEST_CASE("a file that is changed while it is copied is an error") {
  std::mt19937 random(8);
  const TemporaryFolder folder;
  const std::string from = folder / "from", to = folder / "out/to";
  const std::string before = RandomBytes(random, 9 << 20);
  const std::string after = RandomBytes(random, 9 << 20);
  fs::create_directory(folder / "out");
  for (const bool renamed : {false, true}) {
    CAPTURE(renamed);
    WriteFile(from, before);
    WriteFile(folder / "other", after);
    // What is written to it from now on has another time by any clock.
    fs::last_write_time(from,
                        fs::last_write_time(from) - std::chrono::hours(1));
    bool first = true;
    const Status status = tool::CopyFile(from, to, false, [&](int64_t) {
      if (!std::exchange(first, false)) return;
      if (renamed) {
        fs::rename(folder / "other", from);
      } else {
        WriteFile(from, after);
      }
    });
    CHECK(status.code() == Code::kDataLoss);
    CHECK(Contains(status.message(), from));
    CHECK(TreeIn(folder / "out").empty());
  }
  REQUIRE(tool::CopyFile(from, to, false, [](int64_t) {}).ok());
  CHECK((TextOf(to) == after));
}

TEST_CASE("a file whose links and times alone change meanwhile is copied") {
  const TemporaryFolder folder;
  const std::string from = folder / "from", to = folder / "to";
  WriteFile(from, std::string(9 << 20, 'x'));
  int pieces = 0;
  const Status status = tool::CopyFile(from, to, false, [&](int64_t) {
    fs::create_hard_link(from, folder / std::to_string(++pieces));
    fs::last_write_time(from, fs::file_time_type(std::chrono::hours(pieces)));
  });
  CHECK(status.ok());
  CHECK(pieces == 3);
  CHECK((TextOf(to) == TextOf(from)));
}

TEST_CASE("what is before a command, or too much behind --, is told") {
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  WriteFile(in + "/a", "1");
  const Tree before = TreeIn(folder.path());
  CheckDataError({"--dry-run", "copy", in, out}, 2, "--dry-run");
  CheckDataError({"--check", "copy", in, out}, 2, "--check");
  CheckDataError({"--part", "validation", "make", in, out}, 2, "--part");
  CheckDataError({"--part", "validation", "stats", in, "--json"}, 2, "--part");
  CheckDataError({"check", in + "/a", "--", folder / "bad"}, 2, "/bad");
  CHECK(TreeIn(folder.path()) == before);
}

}  // namespace
}  // namespace sluice
