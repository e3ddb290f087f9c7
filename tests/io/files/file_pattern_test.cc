// Patterns of names against a matcher of our own, one character after another.
#include "io/files/file_pattern.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/fault_file_system.h"
#include "tests/support/random.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;
using testing::Random;
using testing::TemporaryFolder;

// Of * ? and a set in brackets, which is "[ab]" here.
bool Fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return Fits(pattern.substr(1), name) ||
           (!name.empty() && Fits(pattern, name.substr(1)));
  }
  if (name.empty()) return false;
  if (pattern.starts_with("[ab]")) {
    return (name[0] == 'a' || name[0] == 'b') &&
           Fits(pattern.substr(4), name.substr(1));
  }
  return (pattern[0] == '?' || pattern[0] == name[0]) &&
         Fits(pattern.substr(1), name.substr(1));
}

std::string Pieces(Random& random, const std::vector<std::string>& of) {
  std::string text;
  for (int64_t n = random.Between(1, 5); n > 0; --n) {
    text += of[random.Between(0, static_cast<int64_t>(of.size()) - 1)];
  }
  return text;
}

TEST_CASE("names that fit random patterns") {
  Random random(5);
  int none = 0, some = 0;
  for (int round = 0; round < 400; ++round) {
    FaultFileSystem files;
    REQUIRE(files.MakeDirectories("folder").ok());
    for (int i = 0; i < 8; ++i) {
      REQUIRE(files
                  .WriteAtomically(
                      "folder/" + Pieces(random, {"a", "b", "c", "-"}), "")
                  .ok());
    }
    const std::string pattern =
        Pieces(random, {"a", "b", "c", "*", "?", "[ab]"});
    std::vector<std::string> want = files.List("folder").ValueOrThrow();
    std::erase_if(want, [&](const auto& name) { return !Fits(pattern, name); });
    const auto got = NamesByPattern("folder/" + pattern, files);
    ++(want.empty() ? none : some);
    CAPTURE(pattern);
    if (want.empty()) {
      CHECK(got.status().code() == Code::kNotFound);
    } else {
      REQUIRE(got.ok());
      CHECK(*got == want);
    }
  }
  CHECK(none > 50);
  CHECK(some > 50);
}

TEST_CASE("a path that is there is no pattern, nor is one of plain names") {
  const TemporaryFolder folder;
  CHECK(IsFilePattern(folder / "train-*"));
  CHECK(IsFilePattern(folder / "a[12]"));
  CHECK_FALSE(IsFilePattern(folder / "train"));
  CHECK_FALSE(IsFilePattern(folder / "a*/train"));
  std::ofstream(folder / "a[12]") << "";
  std::filesystem::create_directory(folder / "b?");
  CHECK_FALSE(IsFilePattern(folder / "a[12]"));
  CHECK_FALSE(IsFilePattern(folder / "b?"));
  // Hidden files are meant only where they are named as such.
  std::ofstream(folder / ".c") << "";
  CHECK_FALSE(NamesByPattern(folder / "*c").ok());
  CHECK(NamesByPattern(folder / ".*").ValueOrThrow() ==
        std::vector<std::string>{".c"});
  CHECK(NamesByPattern(folder / "nowhere/*").status().code() ==
        Code::kNotFound);
}

}  // namespace
}  // namespace sluice
