// Choices kept in a file between runs.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/cuda/runtime/choice_file.h"
#include "tests/support/temporary_folder.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;
using Choice = ChoiceFile::Choice;

TEST_CASE("a choice is found again, by another process too") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "new/choices";
  ChoiceFile first(path), second(path);
  CHECK(!first.Find("a convolution"));
  CHECK(!second.Find("a convolution"));
  first.Keep("a convolution", {3, 62});
  second.Keep("another", {0, 1});
  CHECK(first.Find("a convolution") == Choice{3, 62});
  ChoiceFile third(path);
  CHECK(third.Find("a convolution") == Choice{3, 62});
  CHECK(third.Find("another") == Choice{0, 1});
  // Nothing temporary is left.
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
}

TEST_CASE("what makes no sense in the file is ignored") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "choices";
  std::ofstream(path) << "sluice choices 1\n"
                         "good\t1\t2\n"
                         "no numbers\tx\t2\n"
                         "one number\t5\n"
                         "negative\t-1\t2\n"
                         "too large\t99999999999999999999\t2\n"
                         "\t1\t2\n"
                         "\n"
                         "cut short\t1\t";
  ChoiceFile file(path);
  CHECK(file.Find("good") == Choice{1, 2});
  for (const char* key :
       {"no numbers", "one number", "negative", "too large", "", "cut short"}) {
    CHECK(!file.Find(key));
  }
  std::ofstream(path) << "another format\ngood\t1\t2\n";
  CHECK(!ChoiceFile(path).Find("good"));
  // And is written anew.
  ChoiceFile(path).Keep("better", {3, 4});
  CHECK(ChoiceFile(path).Find("better") == Choice{3, 4});
}

TEST_CASE("without a folder to write to choices are kept in memory") {
  ChoiceFile nowhere{fs::path()};
  nowhere.Keep("a", {1, 2});
  CHECK(nowhere.Find("a") == Choice{1, 2});
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "file") << "";
  ChoiceFile below_a_file(folder / "file/choices");
  below_a_file.Keep("a", {1, 2});
  CHECK(below_a_file.Find("a") == Choice{1, 2});
}

}  // namespace
}  // namespace sluice::cuda
