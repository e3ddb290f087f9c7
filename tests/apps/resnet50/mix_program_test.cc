// The resnet50 program with mixup and cutmix: on files, records and CIFAR-sized
// pictures, over interruptions; what they leave alone.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/support/evaluation_figures.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

using testing::Contains;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;

const std::vector<std::string> kClasses = {"ant", "bee", "cat", "dog"};
constexpr const char* kBoth = "mixup(0.4),erasing(0.1),cutmix(1)";

// 4 classes of 16 pictures in `train`, of 4 in `val`.
struct Pictures {
  TemporaryFolder folder;
  std::string files = folder / "files";

  Pictures() {
    testing::WriteClasses(files + "/train", kClasses, 16);
    testing::WriteClasses(files + "/val", kClasses, 4);
  }

  Outcome Run(const std::string& command, const std::string& log,
              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        command,    "--data",    files,        "--model",
        "resnet20", "--log-dir", folder / log, "--batch-size",
        "16",       "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Outcome outcome = RunResNet50(arguments);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome;
  }
  // Deterministically, to a step.
  void Train(const std::string& log, const char* steps,
             const std::string& augment,
             const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "--steps",        steps,      "--augment",        augment,
        "--schedule",     "constant", "--warm-up-epochs", "0",
        "--deterministic"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Run("train", log, arguments);
  }
  bool SameBits(const std::string& a, const std::string& b) const {
    return testing::SameBits(folder / a, folder / b, 6);
  }
};

TEST_CASE("a training with mixed batches goes on to the same bits") {
  const Pictures pictures;
  pictures.Train("whole", "6", kBoth);
  // In three pieces, over the end of an epoch of four steps, and by threads.
  pictures.Train("pieces", "2", kBoth);
  pictures.Train("pieces", "5", kBoth, {"--input-threads", "3"});
  pictures.Train("pieces", "6", kBoth);
  CHECK(pictures.SameBits("whole", "pieces"));
  // Other ways are other trainings.
  pictures.Train("mixup", "6", "mixup(0.4),erasing(0.1)");
  pictures.Train("cutmix", "6", "erasing(0.1),cutmix(1)");
  pictures.Train("neither", "6", "erasing(0.1)");
  CHECK_FALSE(pictures.SameBits("whole", "neither"));
  CHECK_FALSE(pictures.SameBits("mixup", "neither"));
  CHECK_FALSE(pictures.SameBits("cutmix", "neither"));
  CHECK_FALSE(pictures.SameBits("cutmix", "mixup"));
  // With so small an alpha a mixup is one of its pictures, whole, nearly so.
  const Outcome weighted =
      pictures.Run("train", "weighted",
                   {"--steps", "3", "--augment", "mixup(1e-300)",
                    "--class-weights", "bee=2", "--label-smoothing", "0.1"});
  CHECK(Contains(weighted.out + weighted.err, "test loss "));
}

TEST_CASE("mixed pictures teach what the classes are") {
  const Pictures pictures;
  pictures.Run("train", "log",
               {"--steps", "80", "--base-rate", "0.2", "--augment", kBoth});
  const auto figures = [&](const std::vector<std::string>& more = {}) {
    return testing::EvaluationFigures(pictures.Run("eval", "log", more));
  };
  // Evaluations and predictions see no mixtures, whatever is written.
  const std::string plain = figures({"--augment", ""});
  CHECK_MESSAGE(Contains(plain, "accuracy 100.00 % (16 examples)"), plain);
  CHECK(figures() == plain);
  CHECK(figures({"--augment", "mixup(100)"}) == plain);
  const Outcome predicted = pictures.Run("predict", "log", {"--json"});
  for (size_t i = 0; i < kClasses.size(); ++i) {
    CHECK(Contains(predicted.out, fmt::format("\"class\":{}}}", i)));
  }
}

TEST_CASE("mixed batches in every kind of training") {
  const Pictures pictures;
  pictures.Run("train", "few",
               {"--steps", "3", "--augment", kBoth, "--overfit-batches", "1"});
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",   "--data",   pictures.files,
                                          "--model", "resnet20", "--augment",
                                          kBoth};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = RunResNet50(arguments);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  };
  train({"--batch-size", "16", "--fast-dev-run"});
  // One picture in a batch has no other.
  train({"--batch-size", "1", "--steps", "2", "--evaluate-every", "0"});
  const Outcome wrong =
      RunResNet50({"train", "--data", pictures.files, "--model", "resnet20",
                   "--augment", "mixup(0)"});
  testing::CheckResNet50Error(wrong, 2,
                              "wanted a finite number greater than 0");
}

}  // namespace
}  // namespace sluice
#endif
