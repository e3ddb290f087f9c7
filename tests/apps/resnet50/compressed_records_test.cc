// resnet50 on records that are compressed: the figures of the same records as
// they are, trainings of the same bits in pieces, and what is wrong with them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/train/hooks/scalar_log.h"
#include "tests/places.h"
#include "tests/support/compressed.h"
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
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::SameBits;
using testing::TemporaryFolder;
using testing::TextOf;
using Strings = std::vector<std::string>;

const Strings kClasses = {"ant", "bee", "cat", "dog"};

// 4 classes of 16 pictures in `train`, of 4 in `val`, as records, and the same
// compressed, one shard by zlib, the others by gzip.
struct Records {
  TemporaryFolder folder;
  std::string plain = folder / "plain", compressed = folder / "compressed";

  Records() {
    testing::WriteClasses(folder / "files/train", kClasses, 16);
    testing::WriteClasses(folder / "files/val", kClasses, 4);
    for (const auto& [from, part] :
         {std::pair("train", "train"), {"val", "validation"}}) {
      const Outcome made = RunProgram(SLUICE_BIN_DIR "/sluice",
                                      {"data", "make", folder / "files/" + from,
                                       plain, "--part", part, "--shards", "3"});
      REQUIRE_MESSAGE(made.code == 0, made.err);
    }
    fs::create_directory(compressed);
    for (const auto& entry : fs::directory_iterator(plain)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(".idx") || name == "data.lock") continue;
      std::string bytes = TextOf(entry.path());
      if (name.find("-of-") != name.npos) {
        bytes = testing::Compressed(bytes, name.find("-00001-") != name.npos
                                               ? Compression::kZlib
                                               : Compression::kGzip);
      }
      std::ofstream(compressed + "/" + name, std::ios::binary) << bytes;
    }
  }
};

Outcome Run(const std::string& command, const std::string& data,
            const std::string& log, const Strings& more = {}) {
  Strings arguments = {command,    "--data",       data, "--model",
                       "resnet20", "--batch-size", "16", "--seed",
                       "4",        "--log-dir",    log,  "--threads",
                       "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunResNet50(arguments);
}

Outcome MustRun(const std::string& command, const std::string& data,
                const std::string& log, const Strings& more = {}) {
  Outcome outcome = Run(command, data, log, more);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return outcome;
}

std::string Figures(const std::string& data, const std::string& log) {
  return EvaluationFigures(Run("eval", data, log));
}

TEST_CASE("compressed records are trained on, evaluated and predicted for") {
  const Records records;
  const std::string log = records.folder / "log";
  const Outcome trained =
      MustRun("train", records.compressed, log,
              {"--epochs", "15", "--base-rate", "0.2", "--json"});
  CHECK(Contains(trained.err,
                 "3 shards of 'train', 64 pictures, compressed, so that they "
                 "are read in order"));
  const auto last = testing::LastObject(trained.out);
  CHECK(last["steps"] == 60);  // 15 epochs of the 64 that the manifest says
  CHECK(last["test_accuracy"] == 1);
  const std::string figures = Figures(records.compressed, log);
  CHECK(Contains(figures, "(16 examples)"));
  CHECK(figures == Figures(records.plain, log));
  const auto predicted = [&](const std::string& data) {
    return MustRun("predict", data, log, {"--json"}).out;
  };
  CHECK(predicted(records.compressed) == predicted(records.plain));
  // An evaluation of what was trained on says so.
  for (const auto& entry : fs::directory_iterator(records.compressed)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("validation-")) fs::remove(entry.path());
  }
  CHECK(Contains(Figures(records.compressed, log), ": training loss "));
}

TEST_CASE("pieces of a training on compressed records make its bits") {
  const Records records;
  const auto train = [&](const std::string& log, const char* threads,
                         const char* steps, Strings more = {}) {
    more.insert(more.end(), {"--steps", steps, "--input-threads", threads,
                             "--deterministic", "--schedule", "constant",
                             "--warm-up-epochs", "0", "--augment", "erasing"});
    MustRun("train", records.compressed, records.folder / log, more);
  };
  train("whole", "1", "6");
  train("threads", "3", "6");
  CHECK(SameBits(records.folder / "whole", records.folder / "threads", 6));
  // Over the end of an epoch of four steps.
  train("pieces", "3", "2");
  train("pieces", "1", "5");
  train("pieces", "auto", "6");
  CHECK(SameBits(records.folder / "whole", records.folder / "pieces", 6));
  train("weighted", "2", "6", {"--class-weights", "balanced"});
  CHECK(SameBits(records.folder / "whole", records.folder / "weighted", 6));
  // Other files of these names are others.
  const std::string shard = records.compressed + "/train-00002-of-00003";
  std::ofstream(shard, std::ios::binary) << testing::Compressed(
      TextOf(records.plain + "/train-00002-of-00003"), Compression::kGzip, 1);
  const Outcome other =
      Run("train", records.compressed, records.folder / "pieces",
          {"--steps", "8", "--schedule", "constant", "--warm-up-epochs", "0",
           "--deterministic", "--augment", "erasing"});
  CHECK(other.code == 1);
  CHECK(Contains(other.err, "saved by another input pipeline"));
}

TEST_CASE("what is decoded of compressed records is kept") {
  const Records records;
  const std::string cache = records.folder / "cache";
  const auto train = [&](const std::string& log, Strings more = {}) {
    more.insert(more.end(),
                {"--steps", "6", "--deterministic", "--schedule", "constant",
                 "--warm-up-epochs", "0", "--augment", "erasing"});
    fs::remove_all(records.folder / log);
    return MustRun("train", records.compressed, records.folder / log, more).err;
  };
  const auto same = [&](const std::string& log) {
    return SameBits(records.folder / "plain", records.folder / log, 6);
  };
  const Strings kept = {"--cache", cache, "--cache-stage", "image"};
  train("plain");
  CHECK(Contains(train("fills", kept), "; 0 are there"));
  CHECK(same("fills"));
  CHECK(Contains(train("kept", kept), "; 80 are there"));  // of both parts
  CHECK(same("kept"));
  train("memory", {"--cache", "memory", "--cache-stage", "image"});
  CHECK(same("memory"));
  // The same pictures under other labels, at the same places.
  const std::string shard = "/train-00002-of-00003";
  testing::TemporaryFolder folder;
  const Outcome made =
      RunProgram(SLUICE_BIN_DIR "/sluice",
                 {"data", "make", records.folder / "files/val",
                  folder / "other", "--part", "train", "--shards", "3"});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  fs::remove(records.compressed + "/train.json");
  std::ofstream(records.compressed + shard, std::ios::binary)
      << testing::Compressed(TextOf(folder / ("other" + shard)),
                             Compression::kGzip);
  train("plain");
  train("kept", kept);
  CHECK(same("kept"));
}

TEST_CASE("where nothing says how many there are") {
  const Records records;
  fs::remove(records.compressed + "/train.json");
  const Strings constant = {"--schedule", "constant", "--warm-up-epochs", "0"};
  const auto with = [&](Strings more) {
    more.insert(more.end(), constant.begin(), constant.end());
    return more;
  };
  const Outcome by_end =
      MustRun("train", records.compressed, records.folder / "ends",
              with({"--epochs", "2", "--json"}));
  CHECK(Contains(by_end.err, "3 shards of 'train', pictures, compressed"));
  CHECK(testing::LastObject(by_end.out)["steps"] == 8);
  const Outcome by_steps =
      MustRun("train", records.compressed, records.folder / "steps",
              with({"--steps", "6", "--json"}));
  CHECK(testing::LastObject(by_steps.out)["steps"] == 6);
  const Outcome falling = Run("train", records.compressed,
                              records.folder / "falling", {"--epochs", "2"});
  CHECK(falling.code != 0);
  CHECK(Contains(falling.err, "--steps"));
}

// Nor are the steps then an epoch of which anything is told.
TEST_CASE("epochs of nobody knows how many pictures") {
  const Records records;
  fs::remove(records.compressed + "/train.json");
  const auto train = [&](const char* log, Strings more) {
    more.insert(more.end(), {"--log-every", "1", "--evaluate-every", "0"});
    return Run("train", records.compressed, records.folder / log, more);
  };
  const auto rates = [&](const char* log) {
    std::vector<double> values;
    for (const ScalarRow& row :
         ReadScalars(records.folder / log).ValueOrThrow()) {
      if (row.name == "learning_rate") values.push_back(row.value);
    }
    return values;
  };
  // By default the rate rises over 2 of 15 epochs.
  const Outcome warmed =
      train("default", {"--steps", "30", "--schedule", "constant"});
  REQUIRE_MESSAGE(warmed.code == 0, warmed.err);
  CHECK(Contains(warmed.err, "the rate rises over 4 of 30 steps"));
  std::vector<double> wanted(30, 0.4 * 16 / 256);
  for (int step = 0; step < 4; ++step) wanted[step] *= step / 4.0;
  const std::vector<double> got = rates("default");
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-5));
  }
  const auto fails = [&](const Strings& more, const char* part) {
    testing::CheckResNet50Error(train("none", more), 1, part);
  };
  fails({"--steps", "6", "--warm-up-epochs", "2"},
        "--warm-up-epochs 2: how many pictures an epoch has is not known; give "
        "0, or have train.json");
  fails({"--steps", "6", "--learning-rate", "1:0.1,2:0.01,4:0.001"},
        "learning rate '1:0.1,2:0.01,4:0.001': how many steps an epoch has is "
        "not known");
  fails({"--epochs", "2", "--learning-rate", "1:0.1->0.01"}, "give one rate");
  // What the rate would have to know is nothing to one that takes its place.
  for (const Strings& flags :
       {Strings{"--steps", "8", "--learning-rate", "0.1"},
        {"--epochs", "2", "--learning-rate", "0.1"},
        {"--epochs", "2", "--optimizer", "sgd"}}) {
    fs::remove_all(records.folder / "given");
    const Outcome outcome = train("given", flags);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK_FALSE(Contains(outcome.err, "the rate rises"));
    CHECK(rates("given") == std::vector<double>(8, 0.1f));
  }
}

TEST_CASE("what is wrong with compressed records is said") {
  const Records records;
  const std::string log = records.folder / "log";
  const auto fails = [&](const std::string& part, const Strings& more = {}) {
    Strings arguments = {"--steps", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = Run("train", records.compressed, log, arguments);
    CHECK(outcome.code != 0);
    CHECK_MESSAGE(Contains(outcome.err, part), outcome.err);
    fs::remove_all(log);
  };
  fails("their bytes need not be kept", {"--cache", "memory"});
  fails("label ", {"--label-offset", "1"});
  // The manifest speaks of more.
  const std::string manifest = records.compressed + "/train.json";
  const std::string text = TextOf(manifest);
  std::string more = text;
  more.replace(more.find("64"), 2, "65");
  std::ofstream(manifest) << more;
  fails("the input has 64 elements, where 65 were expected by '" + manifest);
  std::ofstream(manifest) << text;
  // Cut off, empty, missing.
  const std::string shard = records.compressed + "/train-00001-of-00003";
  const std::string good = TextOf(shard);
  std::ofstream(shard, std::ios::binary) << good.substr(0, good.size() / 2);
  fails("train-00001-of-00003'");
  std::ofstream(shard, std::ios::binary)
      << testing::Compressed("", Compression::kGzip);
  fails("train-00001-of-00003' holds nothing");
  fs::remove(shard);
  fails("train-00001-of-00003");
}

}  // namespace
}  // namespace sluice
#endif  // SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
