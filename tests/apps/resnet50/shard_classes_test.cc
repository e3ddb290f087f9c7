// resnet50 --shard-classes from outside.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "io/checkpoints/checkpoint.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::LastObject;
using testing::Launched;
using testing::Outcome;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::Words;

const std::string kResNet50 = SLUICE_BIN_DIR "/resnet50";

Words Training(const std::string& log_dir, int steps, const Words& more) {
  Words words = {
      "train",        "--model", "resnet20",           "--classes", "11",
      "--batch-size", "7",       "--base-rate",        "0.1",       "--log-dir",
      log_dir,        "--steps", std::to_string(steps)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome TrainBy(int size, const Words& arguments) {
  return RunProgram(testing::kLauncher, Launched(size, kResNet50, arguments));
}

std::map<std::string, Tensor> SavedIn(const std::string& folder) {
  std::map<std::string, Tensor> tensors;
  const auto saved =
      CheckpointManager::ForReading(folder).RestoreNewest().ValueOrThrow();
  REQUIRE(saved.has_value());
  for (const NamedTensor& tensor : saved->checkpoint.tensors) {
    tensors[tensor.name] = tensor.tensor;
  }
  return tensors;
}

// Three processes, then two, with the classes cut and without.
void CheckTrained(const Words& flags) {
  const TemporaryFolder whole, parts;
  Words in_parts = flags;
  in_parts.push_back("--shard-classes");
  for (const auto& [size, steps] : {std::pair{3, 2}, std::pair{2, 4}}) {
    const Outcome one = TrainBy(size, Training(whole.path(), steps, flags));
    CHECK_MESSAGE(one.code == 0, one.err);
    const Outcome cut = TrainBy(size, Training(parts.path(), steps, in_parts));
    CHECK_MESSAGE(cut.code == 0, cut.err);
  }
  const auto wanted = SavedIn(whole.path());
  const auto got = SavedIn(parts.path());
  REQUIRE(got.size() == wanted.size());
  for (const auto& [name, tensor] : wanted) {
    CAPTURE(name);
    const Tensor& mine = got.at(name);
    REQUIRE(mine.shape() == tensor.shape());
    double apart = 0, largest = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      apart = std::max(apart, std::abs(mine.At(i) - tensor.At(i)));
      largest = std::max(largest, std::abs(tensor.At(i)));
    }
    CHECK(apart <= 2e-3 * (1 + largest));
  }
  const auto eval = [](const TemporaryFolder& folder) {
    return LastObject(
        RunProgram(kResNet50, {"eval", "--log-dir", folder.path(), "--json"})
            .out);
  };
  // Of 256 examples a few may be as good as rated alike.
  CHECK(std::abs(eval(parts)["test_accuracy"].get<double>() -
                 eval(whole)["test_accuracy"].get<double>()) <= 0.02);
}

TEST_CASE("a classifier in parts is trained as a whole one is") {
  CheckTrained({});
}

#if SLUICE_HAVE_PNG
TEST_CASE("a classifier in parts is of pictures that are mixed, too") {
  const TemporaryFolder pictures;
  Words classes;
  for (int i = 0; i < 11; ++i) classes.push_back("class" + std::to_string(i));
  for (const char* part : {"/train", "/val"}) {
    testing::WriteClasses(pictures.path() + part, classes, 3);
  }
  CheckTrained({"--data", pictures.path(), "--augment", "mixup(1),cutmix(1)"});
}
#endif

TEST_CASE("who has no part of its own has no part of a classifier") {
  const TemporaryFolder folder;
  const Outcome virtual_ones =
      TrainBy(2, Training(folder.path(), 1,
                          {"--shard-classes", "--virtual-workers", "2"}));
  CHECK(virtual_ones.code == 1);
  CHECK(Contains(virtual_ones.err, "which is not for virtual workers"));
  const auto in_common = [&](Words words, const char* strategy) {
    const Words training =
        Training(folder.path(), 1, {"--shard-classes", "--strategy", strategy});
    words.push_back(kResNet50);
    words.insert(words.end(), training.begin(), training.end());
    const Outcome outcome = RunProgram(testing::kLauncher, words);
    CHECK(outcome.code == 1);
    CHECK(Contains(outcome.err,
                   "which is not for variables on parameter servers or elastic "
                   "jobs"));
  };
  in_common({"-n", "2", "--ps", "1"}, "ps");
  in_common({"-n", "2", "--elastic", "1"}, "ring");
  in_common({"-n", "1", "--elastic", "1"}, "ring");
}

}  // namespace
}  // namespace sluice
