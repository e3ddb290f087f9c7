// The resnet50 program on records that `sluice data make` made of folders of
// pictures: the same figures as on the folders, under any number of threads,
// after any interruption; and what is wrong with records.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/files/record.h"
#include "io/images/jpeg.h"
#include "io/records/image_records.h"
#include "tests/places.h"
#include "tests/support/evaluation_figures.h"
#include "tests/support/last_object.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::EvaluationFigures;
using testing::LastObject;
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::SameBits;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WritePicture;

const std::vector<std::string> kClasses = {"ant", "bee", "cat", "dog"};

// 4 classes of 16 pictures in `train`, of 4 in `val`, as files and as records.
struct Pictures {
  TemporaryFolder folder;
  std::string files = folder / "files", records = folder / "records";

  Pictures() {
    testing::WriteClasses(files + "/train", kClasses, 16);
    testing::WriteClasses(files + "/val", kClasses, 4);
    Make("train", "train", "3");
    Make("val", "validation", "2");
  }
  void Make(const std::string& from, const std::string& part,
            const std::string& shards) const {
    const Outcome made = RunProgram(
        SLUICE_BIN_DIR "/sluice", {"data", "make", files + "/" + from, records,
                                   "--part", part, "--shards", shards});
    REQUIRE_MESSAGE(made.code == 0, made.err);
  }
};

Outcome Run(const std::string& command, const std::string& data,
            const std::string& log, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      command, "--data", data, "--model",   "resnet20", "--batch-size",
      "16",    "--seed", "4",  "--log-dir", log,        "--threads",
      "1"};
  if (command == "train") arguments.emplace_back("--json");
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunResNet50(arguments);
}

// It ended with that code and said why; a training may have begun.
void CheckEnd(const Outcome& outcome, int code, const std::string& part) {
  CHECK(outcome.code == code);
  CHECK(Contains(outcome.err, part));
}

std::string Figures(const std::string& data, const std::string& log) {
  return EvaluationFigures(Run("eval", data, log));
}

TEST_CASE("records are evaluated as the files that they are of") {
  const Pictures pictures;
  const std::string log = pictures.folder / "log";
  const Outcome trained = Run("train", pictures.files, log,
                              {"--steps", "60", "--base-rate", "0.2"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  REQUIRE(LastObject(trained.out)["test_accuracy"] == 1);
  CHECK(Figures(pictures.records, log) == Figures(pictures.files, log));
  CHECK(Contains(Figures(pictures.records, log), "(16 examples)"));
  // As those of classes that have other numbers there: names decide.
  fs::remove_all(pictures.records);
  fs::remove_all(pictures.files + "/val/ant");
  fs::rename(pictures.files + "/val/bee", pictures.files + "/val/zzz");
  pictures.Make("val", "test", "1");
  CheckEnd(Run("eval", pictures.records, log), 1,
           "a class 'zzz', which is none of the 4 that were trained");
  fs::rename(pictures.files + "/val/zzz", pictures.files + "/val/bee");
  fs::remove_all(pictures.records);
  pictures.Make("val", "test", "1");
  for (const char* end : {"", ".idx"}) {
    const std::string shard = "-00000-of-00001" + std::string(end);
    fs::rename(pictures.records + "/test" + shard,
               pictures.records + "/val" + shard);
  }
  CHECK(Contains(Figures(pictures.records, log),
                 "accuracy 100.00 % (12 examples)"));
  // Two of a name cannot be told apart.
  std::ofstream(pictures.records + "/labels.txt") << "dog\nbee\nbee\n";
  CheckEnd(Run("eval", pictures.records, log), 1,
           "'bee' is the name of two classes");
  // Predictions need no labels, nor their names.
  const Outcome predicted = Run("predict", pictures.records, log, {"--json"});
  CHECK(predicted.code == 0);
  for (size_t i = 0; i < kClasses.size(); ++i) {
    const std::string as = fmt::format("\"class\":{}}}", i);
    CHECK((predicted.out.find(as) == std::string::npos) == (i == 0));
  }
}

TEST_CASE("threads and interruptions change no bit of a training on records") {
  const Pictures pictures;
  const auto train = [&](const std::string& log, const char* threads,
                         const char* steps,
                         std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--steps", steps, "--input-threads", threads,
                             "--deterministic", "--schedule", "constant",
                             "--warm-up-epochs", "0"});
    const Outcome outcome =
        Run("train", pictures.records, pictures.folder / log, more);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const bool chosen = std::string(threads) == "auto";
    CHECK(Contains(outcome.out, fmt::format("\"input_threads\":{}",
                                            chosen ? "0" : threads)));
    CHECK(Contains(outcome.err,
                   fmt::format("threads: 1 to compute, {} for the input\n",
                               chosen ? "as many as help" : threads)));
    CHECK((outcome.err.find("input threads that were chosen: ") !=
           std::string::npos) == chosen);
    if (chosen) CHECK(Contains(outcome.err, " decode"));
  };
  train("one", "1", "6");
  train("four", "4", "6");
  CHECK(SameBits(pictures.folder / "one", pictures.folder / "four", 6));
  train("auto", "auto", "6");
  CHECK(SameBits(pictures.folder / "one", pictures.folder / "auto", 6));
  // Augmented it is another training, which threads do not change either.
  const std::vector<std::string> augment = {"--augment",
                                            "randaugment(2,9),erasing"};
  train("augmented", "1", "6", augment);
  train("augmented by four", "4", "6", augment);
  CHECK(SameBits(pictures.folder / "augmented",
                 pictures.folder / "augmented by four", 6));
  CHECK_FALSE(
      SameBits(pictures.folder / "one", pictures.folder / "augmented", 6));
  // What is usual may be written; another cut is another training.
  train("usual", "1", "6", {"--augment", "crop(0.08,1),flip(0.5)"});
  CHECK(SameBits(pictures.folder / "one", pictures.folder / "usual", 6));
  const std::vector<std::string> cuts = {"crop(0.9,1)", "flip(0)",
                                         "pad-crop(4)"};
  for (const std::string& cut : cuts) {
    train(cut, "1", "6", {"--augment", cut});
    CHECK_FALSE(SameBits(pictures.folder / "one", pictures.folder / cut, 6));
    train(cut + " decoded", "2", "6",
          {"--augment", cut, "--cache", "memory", "--cache-stage", "image"});
    CHECK(
        SameBits(pictures.folder / cut, pictures.folder / cut + " decoded", 6));
  }
  // In three pieces, over the end of an epoch of four steps.
  train("pieces", "3", "2");
  train("pieces", "auto", "5");
  train("pieces", "2", "6");
  CHECK(SameBits(pictures.folder / "one", pictures.folder / "pieces", 6));
  // An evaluation of what was trained on says so.
  fs::create_directory(pictures.folder / "seen");
  for (const auto& entry : fs::directory_iterator(pictures.records)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("validation")) {
      fs::copy(entry.path(), pictures.folder / "seen" + "/" + name);
    }
  }
  CHECK(Contains(Figures(pictures.folder / "seen", pictures.folder / "one"),
                 ": training loss "));
  CHECK(Contains(Figures(pictures.records, pictures.folder / "one"),
                 ": test loss "));
}

// A file of records of one picture with these labels.
void WriteRecords(const std::string& path, const std::string& picture,
                  const std::vector<int64_t>& labels) {
  std::string file;
  const std::string encoded = TextOf(picture);
  for (const int64_t label : labels) {
    AppendRecord(
        EncodeImageRecord({.encoded = encoded, .label = label}).ValueOrThrow(),
        &file);
  }
  std::ofstream(path, std::ios::binary) << file;
}

TEST_CASE("labels that begin with 1, and others") {
  const TemporaryFolder folder;
  const std::string picture = folder / "picture.png";
  WritePicture(picture, 40, 36);
  const std::string shard = folder / "train-00000-of-00001";
  const auto train = [&](const char* offset) {
    return Run("train", folder.path(), folder / "log",
               {"--steps", "2", "--classes", "4", "--label-offset", offset});
  };
  WriteRecords(shard, picture, {1, 2, 3, 4, 1, 2, 3, 4});
  CheckEnd(train("0"), 1, "label 4 is not in 0..3, of 4 classes");
  CHECK(train("1").code == 0);
  fs::remove_all(folder / "log");
  WriteRecords(shard, picture, {0, 1, 2, 3, 0, 1, 2, 3});
  CheckEnd(train("1"), 1, "label 0 is not in 1..4, of 4 classes");
  CHECK(train("0").code == 0);
  fs::remove_all(folder / "log");
  WriteRecords(shard, picture, {0, 1, -1, 3, 0, 1, 2, 3});
  CheckEnd(train("0"), 1, "label -1 is not in 0..3");
}

TEST_CASE("a training is not resumed on other labels") {
  const TemporaryFolder folder;
  const std::string picture = folder / "picture.png";
  WritePicture(picture, 40, 36);
  const auto train = [&](const char* steps, const char* offset) {
    return Run("train", folder.path(), folder / "log",
               {"--steps", steps, "--classes", "5", "--label-offset", offset});
  };
  const std::string shard = folder / "train-00000-of-00001";
  WriteRecords(shard, picture, {1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(train("2", "0").code == 0);
  CheckEnd(train("4", "1"), 1, "saved by another input pipeline");
  // Of the same sizes.
  WriteRecords(shard, picture, {4, 3, 2, 1, 4, 3, 2, 1});
  CheckEnd(train("4", "0"), 1, "saved by another input pipeline");
  WriteRecords(shard, picture, {1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(train("4", "0").code == 0);
}

TEST_CASE("balanced weights count the labels of records") {
  Pictures pictures;
  // Three quarters of the bees and cats, all but one of the dogs are gone.
  for (int i = 4; i < 16; ++i) {
    for (const char* name : {"bee", "cat"}) {
      fs::remove(fmt::format("{}/train/{}/{}.png", pictures.files, name, i));
    }
  }
  for (int i = 1; i < 16; ++i) {
    fs::remove(fmt::format("{}/train/dog/{}.png", pictures.files, i));
  }
  fs::remove_all(pictures.records);
  pictures.Make("train", "train", "2");
  pictures.Make("val", "validation", "1");
  // 16, 4, 4 and 1 of 25 pictures: 25 / (4 * count).
  const auto train = [&](const std::string& weights, const std::string& log) {
    const Outcome outcome =
        Run("train", pictures.records, log,
            {"--steps", "6", "--deterministic", "--class-weights", weights});
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  const std::string balanced = pictures.folder / "balanced";
  CHECK(Contains(train("balanced", balanced), "reading 25 labels"));
  const std::string given = pictures.folder / "given";
  train("ant=0.390625,bee=1.5625,cat=1.5625,dog=6.25", given);
  CHECK(SameBits(balanced, given, 6));
  const std::string plain = pictures.folder / "plain";
  train("ant=1", plain);
  CHECK_FALSE(SameBits(balanced, plain, 6));
  // One whose label cannot be read is an error, or passed over.
  const std::string shard = pictures.records + "/train-00001-of-00002";
  std::string bytes = TextOf(shard);
  bytes[bytes.size() / 2] ^= 0x10;
  std::ofstream(shard, std::ios::binary) << bytes;
  const std::vector<std::string> more = {"--steps", "2", "--class-weights",
                                         "balanced"};
  CheckEnd(Run("train", pictures.records, pictures.folder / "bad", more), 1,
           "train-00001-of-00002', byte ");
  std::vector<std::string> skip = more;
  skip.insert(skip.end(), {"--skip-bad", "1"});
  CheckEnd(Run("train", pictures.records, pictures.folder / "skip", skip), 0,
           "passed over");
}

TEST_CASE("what is wrong with records is said") {
  const Pictures pictures;
  const std::string log = pictures.folder / "log";
  const auto train = [&](std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--steps", "6"});
    return Run("train", pictures.records, log, more);
  };
  // Without a shard to evaluate on, no other part is.
  const std::string validation =
      pictures.records + "/validation-00001-of-00002";
  fs::rename(validation, pictures.folder / "away");
  const auto says_missing = [](const Outcome& outcome) {
    CheckEnd(outcome, 1, "missing: validation-00001-of-00002");
  };
  says_missing(train());
  says_missing(Run("eval", pictures.records, log, {"--weights", "none"}));
  fs::rename(pictures.folder / "away", validation);
  // One record is damaged.
  const std::string shard = pictures.records + "/train-00001-of-00003";
  std::string bytes = TextOf(shard);
  const std::string good = bytes;
  bytes[bytes.size() / 2] ^= 0x10;
  std::ofstream(shard, std::ios::binary) << bytes;
  CheckEnd(train(), 1, "checksum");
  CheckEnd(train(), 1, "train-00001-of-00003', byte ");
  const Outcome skipped = train({"--skip-bad", "1"});
  CHECK_MESSAGE(skipped.code == 0, skipped.err);
  CHECK(Contains(skipped.err, "train-00001-of-00003', byte "));
  fs::remove_all(log);
  // A shard is cut off, also between records, or missing.
  for (const size_t left : {size_t{0}, good.size() - 5}) {
    std::ofstream(shard, std::ios::binary) << good.substr(0, left);
    CheckEnd(train(), 1, "does not fit");
  }
  fs::remove(shard + ".idx");
  CheckEnd(train(), 1, "train-00001-of-00003', byte ");
  fs::remove(shard);
  CheckEnd(train(), 1, "missing: train-00001-of-00003");
  // What has no training part cannot be trained on.
  for (const char* other : {"train-00000-of-00003", "train-00002-of-00003"}) {
    fs::remove(pictures.records + "/" + other);
  }
  CheckEnd(train(), 1, "train");
  pictures.Make("train", "train", "1");
  CheckEnd(train({"--validation-split", "0.5"}), 2,
           "--validation-split is for");
  CheckEnd(Run("train", pictures.records, log,
               {"--steps", "1", "--label-offset", "2x"}),
           2, "--label-offset");
  CheckEnd(Run("train", "synthetic", log, {"--class-weights", "balanced"}), 1,
           "--class-weights balanced is for");
  CheckEnd(train({"--augment", "randaugmint"}), 2, "--augment");
  CheckEnd(
      train({"--augment", "crop,pad-crop"}), 2,
      "--augment: augmentation 'crop,pad-crop': crop and pad-crop exclude");
  CheckEnd(Run("train", "synthetic", log, {"--augment", "erasing"}), 2,
           "--augment");
}

#if SLUICE_HAVE_JPEG
TEST_CASE("a JPEG that ends early in a record is named, or passed over") {
  Pictures pictures;
  Tensor image(DType::kUInt8, {40, 40, 3});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>(i * i % 251);
  }
  const std::string jpeg = EncodeJpeg(image, 90).ValueOrThrow();
  std::string shard;
  for (int64_t i = 0; i < 16; ++i) {
    const bool bad = i == 11;
    AppendRecord(
        *EncodeImageRecord({.encoded = std::string_view(jpeg).substr(
                                0, bad ? jpeg.size() / 2 : jpeg.size()),
                            .label = i % 4,
                            .file = bad ? "early.jpg" : "whole.jpg"}),
        &shard);
  }
  const std::string data = pictures.folder / "jpegs";
  fs::create_directory(data);
  std::ofstream(data + "/train-00000-of-00001", std::ios::binary) << shard;
  const std::string log = pictures.folder / "log";
  const Outcome refused = Run("train", data, log, {"--steps", "1"});
  CAPTURE(refused.err);
  CheckEnd(refused, 1, "train-00000-of-00001', byte ");
  CHECK(Contains(refused.err, "early.jpg"));
  const Outcome skipped =
      Run("train", data, log, {"--steps", "1", "--skip-bad", "1"});
  CHECK_MESSAGE(skipped.code == 0, skipped.err);
  CHECK(Contains(skipped.err, "early.jpg"));
}
#endif

}  // namespace
}  // namespace sluice
#endif
