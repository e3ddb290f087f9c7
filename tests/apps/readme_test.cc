// The program in README.md: that it compiles as a user would write it, and
// that it runs.
#define main ReadmeMain  // NOLINT: the program has a main of its own
#include "tests/apps/readme_mnist.cc"  // NOLINT
#undef main

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/support/idx_folder.h"
#include "tests/support/text_of.h"

namespace {

using sluice::testing::TextOf;

TEST_CASE("the program in the README is this one") {
  const std::string readme = TextOf(SLUICE_SOURCE_DIR "/README.md");
  const std::string program =
      TextOf(SLUICE_SOURCE_DIR "/tests/apps/readme_mnist.cc");
  REQUIRE(!program.empty());
  CHECK(readme.find(program) != std::string::npos);
}

TEST_CASE("the program in the README runs") {
  const sluice::testing::IdxFolder data(300, 100);
  std::string words[] = {"digits",   "train", "--data-dir",   data.path(),
                         "--epochs", "1",     "--batch-size", "50"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  CHECK(ReadmeMain(static_cast<int>(arguments.size()), arguments.data()) == 0);
}

}  // namespace
