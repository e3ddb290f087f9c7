// --exif of the resnet50 program: pictures that were stored turned are trained
// on, evaluated and predicted for as the same ones stored upright; and what is
// remembered of it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "tests/places.h"
#include "tests/support/evaluation_figures.h"
#include "tests/support/exif_bytes.h"
#include "tests/support/last_object.h"
#include "tests/support/random.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CheckResNet50Error;
using testing::Contains;
using testing::EvaluationFigures;
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::SameBits;
using testing::TemporaryFolder;
using testing::TextOf;

// Pictures of two classes, as they were stored, with Exif data, and upright,
// without.
struct Pictures {
  TemporaryFolder folder;
  std::string stored = folder / "stored", upright = folder / "upright";

  Pictures() {
    testing::Random random(1);
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"ant", "bee"}) {
        const std::string inside = fmt::format("/{}/{}", part, name);
        fs::create_directories(stored + inside);
        fs::create_directories(upright + inside);
        for (int i = 1; i <= 8; ++i) {
          Add(fmt::format("{}/{}.png", inside, i), i, random);
        }
      }
    }
  }
  void Add(const std::string& path, int exif, testing::Random& random) const {
    Tensor image(DType::kUInt8, {random.Between(30, 50), 40, 3});
    for (uint8_t& value : image.values<uint8_t>()) {
      value = static_cast<uint8_t>(random.Between(0, 255));
    }
    const std::string bytes =
        testing::PngWithExif(*EncodePng(image), testing::ExifData(exif));
    std::ofstream(stored + path, std::ios::binary) << bytes;
    std::ofstream(upright + path, std::ios::binary)
        << *EncodePng(*DecodeImage(bytes, path, {.exif = true}));
  }
};

Outcome Run(const std::string& command, const std::string& log,
            std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      command, "--log-dir", log, "--threads", "1", "--deterministic"};
  if (command == "train") {
    arguments.insert(arguments.end(),
                     {"--model", "resnet20", "--batch-size", "8"});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunResNet50(arguments);
}

void Train(const std::string& data, const std::string& log,
           const char* steps = "4", std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--data", data, "--steps", steps, "--schedule",
                           "constant", "--warm-up-epochs", "0"});
  const Outcome outcome = Run("train", log, more);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
}

TEST_CASE("with --exif turned pictures are the upright ones") {
  const Pictures pictures;
  const auto log = [&](const char* name) { return pictures.folder / name; };
  Train(pictures.upright, log("upright"));
  Train(pictures.upright, log("without data"), "4", {"--exif"});
  Train(pictures.stored, log("exif"), "4", {"--exif"});
  Train(pictures.stored, log("stored"));
  CHECK(SameBits(log("upright"), log("exif"), 4));
  CHECK(SameBits(log("upright"), log("without data"), 4));
  CHECK_FALSE(SameBits(log("upright"), log("stored"), 4));

  // The evaluation has it from the training's record.
  const std::string want = EvaluationFigures(Run("eval", log("upright")));
  CHECK(EvaluationFigures(Run("eval", log("exif"))) == want);
  CHECK(EvaluationFigures(Run("eval", log("upright"),
                              {"--exif", "--data", pictures.stored})) == want);
  const Outcome other = Run("eval", log("exif"), {"--exif=false"});
  CHECK(EvaluationFigures(other) != want);
  CHECK(Contains(other.err, "--exif is false, the training in"));

  // Of files, in which there is no record to take it from.
  const auto predicted = [&](const std::string& data, const char* name,
                             const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {data + "/val/ant/3.png",
                                          data + "/val/bee/6.png"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = Run("predict", log(name), arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    std::string text = outcome.out;
    for (size_t at = 0; (at = text.find(data)) != std::string::npos;) {
      text.erase(at, data.size());
    }
    return text;
  };
  const std::string upright = predicted(pictures.upright, "upright", {});
  CHECK(predicted(pictures.stored, "upright", {"--exif"}) == upright);
  CHECK(predicted(pictures.stored, "exif", {}) == upright);
  CHECK(predicted(pictures.stored, "exif",
                  {"--data", "synthetic", "--classes", "2"}) == upright);
  CHECK(predicted(pictures.stored, "upright", {}) != upright);
}

TEST_CASE("an exported model has --exif, and says of which size pictures are") {
  const Pictures pictures;
  const std::string log = pictures.folder / "log";
  const std::string exported = pictures.folder / "exported";
  Train(pictures.stored, log, "4", {"--exif"});
  REQUIRE(Run("export", log, {"--output", exported}).code == 0);
  const auto predict = [&](const std::string& data,
                           std::vector<std::string> more) {
    more.insert(more.begin(),
                {"predict", "--from", exported, "--threads", "1",
                 data + "/val/ant/3.png", data + "/val/bee/6.png"});
    return RunResNet50(more);
  };
  const auto predicted = [&](const std::string& data,
                             const std::vector<std::string>& more) {
    const Outcome outcome = predict(data, more);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    std::string text = outcome.out;
    for (size_t at = 0; (at = text.find(data)) != std::string::npos;) {
      text.erase(at, data.size());
    }
    return text;
  };
  const std::string upright = predicted(pictures.upright, {});
  CHECK(predicted(pictures.stored, {}) == upright);
  // What is given holds, and is said where it differs.
  const std::string as_stored = predicted(pictures.stored, {"--exif=false"});
  CHECK(as_stored != upright);
  CHECK(Contains(predict(pictures.stored, {"--exif=false"}).err,
                 "--exif is false, the model in '" + exported + "' had true"));
  // One from before is read as before.
  auto manifest = nlohmann::json::parse(TextOf(exported + "/model.json"));
  CHECK(manifest["flags"]["exif"] == "true");
  CHECK(manifest["flags"]["model"] == "resnet20");
  manifest["flags"] = {{"exif", true}};
  std::ofstream(exported + "/model.json") << manifest;
  CheckResNet50Error(predict(pictures.stored, {}), 1, "model.json");
  manifest.erase("flags");
  std::ofstream(exported + "/model.json") << manifest;
  CHECK(predicted(pictures.stored, {"--model", "resnet20"}) == as_stored);
}

TEST_CASE("a training with --exif goes on with it alone, records too") {
  const Pictures pictures;
  const std::string log = pictures.folder / "log";
  const std::string records = pictures.folder / "records";
  for (const char* part : {"train", "validation"}) {
    const std::string from = part == std::string("train") ? "/train" : "/val";
    for (const auto& [data, kind] :
         {std::pair(pictures.stored, ""), {pictures.upright, " upright"}}) {
      const Outcome made = RunProgram(
          SLUICE_BIN_DIR "/sluice",
          {"data", "make", data + from, records + kind, "--part", part});
      REQUIRE_MESSAGE(made.code == 0, made.err);
    }
  }
  Train(records + " upright", log + " upright");
  for (const std::string& data : {pictures.stored, records}) {
    CAPTURE(data);
    fs::remove_all(log);
    Train(data, log, "2", {"--exif"});
    const Outcome without = Run("train", log, {"--steps", "4", "--exif=false"});
    CHECK(without.code == 1);
    CHECK(Contains(without.err, "saved by another input pipeline"));
    const Outcome on = Run("train", log, {"--steps", "4"});
    CHECK_MESSAGE(on.code == 0, on.err);
    CHECK(Contains(TextOf(log + "/run.json"), "\"exif\": \"true\""));
  }
  CHECK(SameBits(log, log + " upright", 4));
  CHECK(EvaluationFigures(Run("eval", log)) ==
        EvaluationFigures(Run("eval", log + " upright")));
  // What was trained on is known by its files, be they turned or not.
  fs::remove_all(pictures.stored + "/val");
  const std::string files = pictures.folder / "files";
  Train(pictures.stored, files, "2", {"--exif"});
  CHECK(Contains(Run("eval", files).out, ": training loss "));
}

TEST_CASE("--exif is for pictures of files") {
  const TemporaryFolder folder;
  CheckResNet50Error(Run("train", folder / "log", {"--exif"}), 2,
                     "--exif is for --data with a folder");
  CheckResNet50Error(Run("train", folder / "log", {"--exif=perhaps"}), 2,
                     "--exif");
}

}  // namespace
}  // namespace sluice
#endif
