// Files of the user's cache folder, when disks are full and processes many; and
// NVIDIA's libraries when they are missing.
#include "kernels/cuda/runtime/user_cache.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/choice_file.h"
#include "kernels/cuda/runtime/cubin_cache.h"
#include "kernels/cuda/runtime/nvidia_library.h"
#include "tests/support/error_text.h"
#include "tests/support/notes.h"
#include "tests/support/temporary_folder.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::NotesOf;
using testing::TemporaryFolder;

// While it lives no file can grow beyond `bytes`, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit less = {bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &less) == 0);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
};

int FilesIn(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

TEST_CASE("a disk that is full is said once, and what was there stays") {
  const TemporaryFolder folder;
  const CubinCache cache(folder.path());
  cache.Store("kernel", "old");
  ChoiceFile choices(folder / "choices");
  choices.Keep("a", {1, 2});
  const std::string said = NotesOf([&] {
    const FullDisk full(2000);
    cache.Store("kernel", std::string(5000, 'x'));
    choices.Keep(std::string(5000, 'b'), {3, 4});
    cache.Store("other", std::string(5000, 'x'));
  });
  CHECK_EQ(said, "cannot write to the cache '" + folder.path() +
                     "': File too large; each run compiles and measures "
                     "anew\n");
  CHECK(cache.Load("kernel") == "old");
  CHECK(ChoiceFile(folder / "choices").Find("a") == ChoiceFile::Choice{1, 2});
  CHECK_EQ(FilesIn(folder.path()), 2);  // nothing temporary is left
  // There is room again.
  cache.Store("kernel", std::string(5000, 'x'));
  CHECK(cache.Load("kernel") == std::string(5000, 'x'));
}

TEST_CASE("a folder in the place of a file is left alone") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "kernel");
  const CubinCache cache(folder.path());
  CHECK_FALSE(cache.Load("kernel"));
  cache.Store("kernel", "new");
  CHECK_FALSE(cache.Load("kernel"));
  CHECK_EQ(FilesIn(folder.path()), 1);
}

TEST_CASE("processes that write at once each leave whole files") {
  const TemporaryFolder folder;
  constexpr int kProcesses = 4, kRounds = 40;
  const auto cubin = [](int process, int round) {
    return std::string(2000 + 100 * process + round,
                       static_cast<char>('a' + process));
  };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const CubinCache cache(folder.path());
      ChoiceFile choices(folder / "choices");
      bool whole = true;
      for (int round = 0; round < kRounds; ++round) {
        cache.Store("kernel", cubin(process, round));
        choices.Keep("conv " + std::to_string(process), {process, round});
        whole = whole && cache.Load("kernel").has_value();
      }
      ::_exit(whole ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
  }
  CHECK_EQ(FilesIn(folder.path()), 2);
  const auto last = CubinCache(folder.path()).Load("kernel");
  REQUIRE(last);
  const int writer = last->front() - 'a';
  CHECK_EQ(*last, cubin(writer, kRounds - 1));
  // One that another process overwrote in between is measured again; none is
  // another's.
  ChoiceFile choices(folder / "choices");
  int found = 0;
  for (int process = 0; process < kProcesses; ++process) {
    const auto choice = choices.Find("conv " + std::to_string(process));
    if (!choice) continue;
    ++found;
    CHECK_EQ(choice->suggestion, process);
  }
  CHECK(found > 0);
}

TEST_CASE("the user's cache folder") {
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string restored = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  CHECK(UserCacheFolder() == "/somewhere/sluice");
  unsetenv("XDG_CACHE_HOME");
  const std::string home =
      std::getenv("HOME") == nullptr ? "" : std::string(std::getenv("HOME"));
  if (!home.empty()) {
    CHECK(UserCacheFolder() == fs::path(home) / ".cache/sluice");
  }
  unsetenv("HOME");
  CHECK(UserCacheFolder().empty());
  CHECK_EQ(NotesOf([] { WriteCacheFile({}, "nothing"); }), "");
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  if (before != nullptr) setenv("XDG_CACHE_HOME", restored.c_str(), 1);
}

// --- Libraries ---------------------------------------------------------------

struct Functions {
  double (*Cosine)(double) = nullptr;
  int (*Absent)() = nullptr;
};

TEST_CASE("a library that is missing or of another version is one line") {
  std::unique_ptr<const Functions> functions;
  const auto open = [&](const char* name, bool all) {
    return NotesOf([&] {
      functions = FunctionsOrNull<Functions>(
          name, "our own are used", [&](FunctionFinder& find, Functions& f) {
            find("cos", f.Cosine);
            if (all) find("cudnnOfTomorrow", f.Absent);
          });
    });
  };
  const std::string missing = open("libcudnn.so.99", true);
  CHECK(functions == nullptr);
  CHECK(missing.starts_with("libcudnn.so.99 cannot be loaded: "));
  CHECK(missing.ends_with("; our own are used\n"));
  CHECK_EQ(missing.find('\n'), missing.size() - 1);
  CHECK_EQ(open("libm.so.6", true),
           "a library of NVIDIA's lacks cudnnOfTomorrow; install the version "
           "that Sluice was built with; our own are used\n");
  CHECK(functions == nullptr);
  CHECK_EQ(open("libm.so.6", false), "");
  REQUIRE(functions != nullptr);
  CHECK(functions->Cosine(0) == 1);
}

}  // namespace
}  // namespace sluice::cuda
