// The POSIX file system, and atomic writes under every fault.
#include "io/files/file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "io/files/lock_warning.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::FaultFileSystem;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;

// An empty folder of this test's own, removed at the end.
struct Folder {
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string File(const std::string& name) const { return path + "/" + name; }
  std::string path =
      (fs::temp_directory_path() / fmt::format("sluice_file_{}", getpid()))
          .string();
};

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("posix: write, append, read, list, rename, remove") {
  const Folder folder;
  FileSystem& files = FileSystem::Posix();
  const std::string nested = folder.File("a/b/c");
  REQUIRE(files.MakeDirectories(nested).ok());
  CHECK(files.MakeDirectories(nested).ok());
  const std::string path = nested + "/x";
  const std::string_view pieces[] = {"one ", "", "two"};
  REQUIRE(files.WriteAtomically(path, pieces).ok());
  CHECK(*files.Read(path) == "one two");
  CHECK(*files.ReadPrefix(path, 3) == "one");
  CHECK(*files.Size(path) == 7);
  {
    auto file = *files.OpenAppend(path);
    CHECK(file->Append(" three").ok());
    CHECK(file->Close().ok());
  }
  CHECK(*files.Read(path) == "one two three");
  CHECK(*files.List(nested) == std::vector<std::string>{"x"});
  CHECK(files.Rename(path, nested + "/y").ok());
  CHECK(!*files.Exists(path));
  CHECK(!*files.Exists(nested + "/y/below a file"));
  // Nobody can tell whether there is one of so long a name.
  CHECK(!files.Exists(nested + "/" + std::string(5000, 'x')).ok());
  CHECK(files.Remove(nested + "/y").ok());
  CHECK(files.List(nested)->empty());
}

TEST_CASE("posix: a file tells when it was written") {
  const Folder folder;
  FileSystem& files = FileSystem::Posix();
  const std::string path = folder.File("x");
  REQUIRE(files.WriteAtomically(path, "x").ok());
  using std::chrono::system_clock;
  const auto time =
      system_clock::from_time_t(1'234'567'890) + std::chrono::milliseconds(250);
  fs::last_write_time(path, std::chrono::file_clock::from_sys(time));
  CHECK(((*files.OpenRead(path))->written() == time));
}

TEST_CASE("posix: a file without a size is read to its end") {
  auto bytes = FileSystem::Posix().Read("/proc/self/status");
  if (!bytes.ok()) return;  // not Linux
  CHECK(bytes->size() > 100);
}

TEST_CASE("posix: errors name the path and what to do") {
  const Folder folder;
  FileSystem& files = FileSystem::Posix();
  const Status missing = files.Read(folder.File("none")).status();
  CHECK(missing.code() == Code::kNotFound);
  CHECK(Contains(missing.message(), folder.File("none")));
  CHECK(!files.Read(folder.path).ok());
  CHECK(files.WriteAtomically(folder.File("no/file"), "x").code() ==
        Code::kNotFound);
  REQUIRE(files.WriteAtomically(folder.File("file"), "x").ok());
  CHECK(!files.MakeDirectories(folder.File("file")).ok());
  CHECK(!files.MakeDirectories(folder.File("file/below")).ok());

  CHECK(FileError(ENOSPC, "write", "x").code() == Code::kResourceExhausted);
  CHECK(Contains(FileError(ENOSPC, "write", "x").message(),
                 "disk is full: cannot write 'x'"));
  CHECK(Contains(FileError(EROFS, "create", "x").message(),
                 "cannot create 'x': read-only file system"));
  CHECK(Contains(FileError(EACCES, "create", "x").message(), "permission"));
  CHECK(FileError(EXDEV, "rename to", "x").code() == Code::kInvalidArgument);
}

TEST_CASE("posix: a locked file is one holder's, until it lets go or dies") {
  const std::string path = std::filesystem::temp_directory_path() /
                           fmt::format("sluice_lock_test_{}", getpid());
  FileSystem& files = FileSystem::Posix();
  auto lock = files.Lock(path, "the first, whose text is long");
  REQUIRE(lock.ok());
  const auto refused = [&] { return files.Lock(path, "another").status(); };
  CHECK(refused().code() == Code::kFailedPrecondition);
  CHECK((*lock)->warning().empty());
  CHECK(refused().message() == "the first, whose text is long");
  // Reading the file, and closing it, does not give the lock away.
  CHECK(*files.Read(path) == "the first, whose text is long");
  CHECK(!refused().ok());
  lock = files.Lock(path + ".other", "elsewhere");  // lets go
  CHECK(refused().ok());
  CHECK(*files.Read(path) == "another");

  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto held = files.Lock(path, "a child");
    (void)!write(ready[1], held.ok() ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK(refused().message() == "a child");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(refused().ok());
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".other");
  CHECK(files.Lock("/no/such/folder/lock", "x").status().code() ==
        Code::kNotFound);
}

TEST_CASE("posix: a file system without locks warns") {
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL}) {
    CAPTURE(error);
    CHECK(WarningWithoutLocks(error, "run/lock") ==
          "the file system of 'run/lock' has no locks: nothing keeps a second "
          "run out");
  }
  // Of another holder, and of what is no matter of locks.
  for (const int error : {EAGAIN, EACCES, EBADF, EIO}) {
    CAPTURE(error);
    CHECK(WarningWithoutLocks(error, "run/lock").empty());
  }
}

TEST_CASE("posix: a full disk") {
  if (!fs::exists("/dev/full")) return;
  auto file = FileSystem::Posix().OpenAppend("/dev/full");
  REQUIRE(file.ok());
  CHECK((*file)->Append("x").code() == Code::kResourceExhausted);
}

TEST_CASE("paths") {
  CHECK(ParentDirectory("a/b/c") == "a/b");
  CHECK(ParentDirectory("a/b/") == "a");
  CHECK(ParentDirectory("a") == ".");
  CHECK(ParentDirectory("/a") == "/");
  CHECK(ParentDirectory("/") == "/");
  CHECK(ParentDirectory("") == ".");
  CHECK(JoinPath("a", "b") == "a/b");
  CHECK(JoinPath("a/", "b") == "a/b");
  CHECK(JoinPath("", "b") == "b");
  CHECK(IsTemporaryName("x.safetensors.tmp-12-3"));
  CHECK(!IsTemporaryName("x.safetensors"));
  CHECK(!IsTemporaryName("x.tmp-"));
  CHECK(!IsTemporaryName("x.tmp-notes"));
}

// Replaces "old" by "new" on a file system that faults at operation n; true
// when n lies behind the last one.
bool WriteWithFault(int n, Fault fault, Loss loss) {
  FaultFileSystem files;
  REQUIRE(files.MakeDirectories("dir").ok());
  REQUIRE(files.WriteAtomically("dir/x", "old").ok());
  files.FailAt(files.operations() + n, fault);
  const std::string_view pieces[] = {"n", "e", "w"};
  const Status status = files.WriteAtomically("dir/x", pieces);
  const bool faulted = files.failed();
  if (fault == Fault::kDiskFull) {
    CHECK(files.List("dir")->size() == 1);  // no temporary file stays
    if (!status.ok()) CHECK(status.code() == Code::kResourceExhausted);
  }
  files.Restart(loss);
  CAPTURE(n);
  REQUIRE(*files.Exists("dir/x"));
  const std::string content = *files.Read("dir/x");
  if (status.ok()) {
    CHECK(content == "new");
  } else {
    CHECK((content == "old" || content == "new"));
  }
  for (const std::string& name : files.List("dir").ValueOrThrow()) {
    CHECK((name == "x" || IsTemporaryName(name)));
  }
  return !faulted;
}

TEST_CASE("an atomic write leaves the old or the new file at every instant") {
  for (Fault fault : {Fault::kKill, Fault::kDiskFull}) {
    for (Loss loss :
         {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
      int n = 1;
      while (!WriteWithFault(n, fault, loss)) ++n;
      CHECK(n == 8);  // create, 3 appends, sync, rename, sync of the folder
    }
  }
}

TEST_CASE("the double shows what a careless write would lose") {
  FaultFileSystem files;
  auto file = *files.Create("x");
  REQUIRE(file->Append("bytes").ok());
  REQUIRE(files.SyncDirectory(".").ok());
  files.Restart(Loss::kUnsyncedData);
  CHECK(*files.Read("x") == "");
  REQUIRE(files.WriteAtomically("y", "bytes").ok());
  REQUIRE((*files.Create("z"))->Sync().ok());
  files.Restart(Loss::kUnsyncedDataAndNames);
  CHECK(*files.Exists("y"));
  CHECK(!*files.Exists("z"));
  files.SetReadOnly(true);
  CHECK(files.WriteAtomically("y", "more").code() == Code::kUnavailable);
  CHECK(*files.Read("y") == "bytes");
}

}  // namespace
}  // namespace sluice
