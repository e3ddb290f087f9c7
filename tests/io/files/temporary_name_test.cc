// Names of files that are not whole yet: no two alike, and none too long.
#include "io/files/temporary_name.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "io/files/file.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

// A process that is number 1, as the first one of a container is. It has given
// a temporary name, and lives as long as this.
class FirstProcess {
 public:
  FirstProcess() {
    int name[2], end[2];
    REQUIRE(pipe(name) == 0);
    REQUIRE(pipe(end) == 0);
    outer_ = fork();
    REQUIRE(outer_ >= 0);
    if (outer_ == 0) {
      close(name[0]);
      close(end[1]);
      if (unshare(CLONE_NEWPID) != 0 &&
          unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        _exit(1);
      }
      const pid_t inner = fork();
      if (inner != 0) {
        close(name[1]);
        waitpid(inner, nullptr, 0);
        _exit(0);
      }
      const std::string given = TemporaryName("x");
      (void)!write(name[1], given.data(), given.size());
      close(name[1]);
      char none = 0;
      (void)!read(end[0], &none, 1);  // until the other end is closed
      _exit(0);
    }
    close(name[1]);
    close(end[0]);
    end_ = end[1];
    for (char c = 0; read(name[0], &c, 1) == 1;) name_ += c;
    close(name[0]);
  }
  ~FirstProcess() {
    close(end_);
    waitpid(outer_, nullptr, 0);
  }
  FirstProcess(const FirstProcess&) = delete;
  FirstProcess& operator=(const FirstProcess&) = delete;

  // Empty where the system lets nobody have processes of his own.
  const std::string& name() const { return name_; }

 private:
  pid_t outer_ = 0;
  int end_ = -1;
  std::string name_;
};

TEST_CASE("two containers give no file the same name") {
  const FirstProcess one, two;
  if (one.name().empty() || two.name().empty()) {
    MESSAGE("skipped: no processes of one's own here");
    return;
  }
  CHECK(one.name().starts_with("x.tmp-1-"));
  CHECK(two.name().starts_with("x.tmp-1-"));
  CHECK(one.name() != two.name());
  for (const std::string& name : {one.name(), two.name()}) {
    const auto parts = PartsOfTemporaryName(name);
    REQUIRE(parts.has_value());
    CHECK(parts->beginning == "x");
    CHECK(parts->process == "1");
    CHECK(parts->space != ProcessSpace());
  }
}

TEST_CASE("a temporary name says whose it is") {
  const std::string name = TemporaryName("folder.tmp-7-8-9/x.tmp-1");
  CHECK(name != TemporaryName("folder.tmp-7-8-9/x.tmp-1"));
  const auto parts = PartsOfTemporaryName(name);
  REQUIRE(parts.has_value());
  CHECK(parts->beginning == "folder.tmp-7-8-9/x.tmp-1");
  CHECK(parts->process == std::to_string(getpid()));
  CHECK(parts->space == ProcessSpace());
  CHECK(PartsOfTemporaryName("x.tmp-12-3")->process == "12");
  CHECK(PartsOfTemporaryName("x.tmp-12-3")->space.empty());
  CHECK(PartsOfTemporaryName("x.tmp-12")->process == "12");
  CHECK(PartsOfTemporaryName("x.tmp--7")->process.empty());
  CHECK_FALSE(PartsOfTemporaryName("x").has_value());
  CHECK_FALSE(PartsOfTemporaryName("x.tmp-1-y").has_value());
  CHECK(IsTemporaryNameOf("x.tmp-1-2-3", "x"));
  CHECK_FALSE(IsTemporaryNameOf("x.tmp-1-2-3", "xy"));
  CHECK_FALSE(IsTemporaryNameOf("x.tmp-1-2-3", ""));
  CHECK_FALSE(IsTemporaryNameOf("x", "x"));
}

TEST_CASE("a folder has room for the temporary name of any name it takes") {
  constexpr size_t kMostBytes = 255;
  const testing::TemporaryFolder folder;
  for (const std::string letter : {"x", "é", "日", "😀", "\x80"}) {
    CAPTURE(letter);
    std::string file;
    while (file.size() + letter.size() <= kMostBytes) {
      file += letter;
      const std::string path = TemporaryName(folder / file);
      REQUIRE(path.starts_with(folder.path() + "/"));
      const std::string name = path.substr(folder.path().size() + 1);
      CHECK(name.size() <= kMostBytes);
      CHECK(IsTemporaryName(name));
      CHECK(IsTemporaryNameOf(name, file));
      const std::string beginning(PartsOfTemporaryName(name)->beginning);
      CHECK(file.starts_with(beginning));
      CHECK(beginning.size() % letter.size() == 0);
      CHECK(beginning.size() >= std::min<size_t>(file.size(), 200));
      CHECK_FALSE(IsTemporaryNameOf(name, "y" + file));
    }
    REQUIRE(FileSystem::Posix().WriteAtomically(folder / file, letter).ok());
    CHECK(*FileSystem::Posix().Read(folder / file) == letter);
  }
  CHECK(FileSystem::Posix().List(folder.path())->size() == 5);
}

}  // namespace
}  // namespace sluice
