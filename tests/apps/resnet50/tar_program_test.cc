// The resnet50 program on tar archives of the same pictures, in the same order,
// as in records: the same bits; and what is wrong with archives.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/records/image_records.h"
#include "tests/places.h"
#include "tests/support/evaluation_figures.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"
#include "tests/support/tar_bytes.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CheckResNet50Error;
using testing::Contains;
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::TarEnd;
using testing::TarFile;
using testing::TemporaryFolder;
using testing::TextOf;

// 4 classes of 8 pictures in `train`, of 2 in `validation`, as records and as
// tar archives, labelled by cls in one part, by json in the other.
struct Pictures {
  TemporaryFolder folder;
  std::string records = folder / "records", tars = folder / "tars";

  Pictures() {
    const std::string files = folder / "files";
    testing::WriteClasses(files + "/train", {"ant", "bee", "cat", "dog"}, 8);
    testing::WriteClasses(files + "/val", {"ant", "bee", "cat", "dog"}, 2);
    fs::create_directory(tars);
    Make(files + "/train", "train", 3, "cls", "{}");
    Make(files + "/val", "validation", 1, "json", R"({{"label":{}}})");
    fs::copy(records + "/labels.txt", tars + "/labels.txt");
  }

  void Make(const std::string& from, const std::string& part, int shards,
            const char* extension, const char* label) const {
    const Outcome made = RunProgram(SLUICE_BIN_DIR "/sluice",
                                    {"data", "make", from, records, "--part",
                                     part, "--shards", std::to_string(shards)});
    REQUIRE_MESSAGE(made.code == 0, made.err);
    int number = 0, shard = 0;
    for (const std::string& path : FindShards(records, part)) {
      const auto file = RecordFiles::Open({path}).ValueOrThrow();
      std::string archive;
      for (int64_t i = 0; i < file->size(); ++i) {
        const std::string bytes = file->Read(i).ValueOrThrow();
        const auto record = ParseImageRecord(bytes).ValueOrThrow();
        const std::string key = fmt::format("{:06}.", number++);
        archive += TarFile(key + extension,
                           fmt::format(fmt::runtime(label), record.label));
        archive += TarFile(key + "png", std::string(record.encoded));
      }
      std::ofstream(Shard(part, shard++), std::ios::binary)
          << archive + TarEnd();
    }
  }
  std::string Shard(const std::string& part, int number) const {
    return fmt::format("{}/{}-{:06}.tar", tars, part, number);
  }
};

Outcome Run(const std::string& command, const std::string& data,
            const std::string& log, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      command, "--data", data, "--model",   "resnet20", "--batch-size",
      "8",     "--seed", "4",  "--log-dir", log,        "--threads",
      "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunResNet50(arguments);
}

TEST_CASE("tar archives give the bits that records give") {
  const Pictures pictures;
  std::vector<std::string> evaluated, predicted;
  for (const std::string& data : {pictures.records, pictures.tars}) {
    const std::string log = data + " log";
    const Outcome trained =
        Run("train", data, log,
            {"--steps", "2", "--deterministic", "--input-threads", "2"});
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    evaluated.push_back(testing::EvaluationFigures(Run("eval", data, log)));
    CHECK(Contains(evaluated.back(), "(8 examples)"));
    const Outcome predict = Run("predict", data, log, {"--json"});
    REQUIRE_MESSAGE(predict.code == 0, predict.err);
    predicted.push_back(predict.out);
  }
  CHECK(
      testing::SameBits(pictures.records + " log", pictures.tars + " log", 2));
  CHECK(evaluated[0] == evaluated[1]);
  CHECK(predicted[0] == predicted[1]);
  // Predictions need no labels.
  const std::string log = pictures.tars + " log";
  std::ofstream(pictures.Shard("validation", 0), std::ios::binary)
      << TarFile("a.png", TextOf(pictures.folder / "files/val/ant/0.png"));
  CHECK(Run("predict", pictures.tars, log, {"--json"}).code == 0);
  CheckResNet50Error(Run("eval", pictures.tars, log), 1,
                     "validation-000000.tar', sample 'a': no label");
  // What was trained on is known again.
  fs::remove(pictures.Shard("validation", 0));
  const Outcome seen = Run("eval", pictures.tars, log);
  CHECK(Contains(seen.out, ": training loss "));
  CHECK(Contains(seen.err, "no shards of \"validation\""));
}

TEST_CASE("what is wrong with tar archives is said") {
  const Pictures pictures;
  const auto fails = [&](const std::string& part, int code = 1) {
    const std::string log = pictures.folder / "log";
    fs::remove_all(log);
    const Outcome outcome = Run("train", pictures.tars, log, {"--steps", "4"});
    CHECK(outcome.code == code);
    CHECK(Contains(outcome.err, part));
  };
  const std::string shard = pictures.Shard("train", 1);
  const std::string good = TextOf(shard);
  const auto write = [&](const std::string& bytes) {
    std::ofstream(shard, std::ios::binary) << bytes;
  };
  write(good.substr(0, 1700));
  fails("train-000001.tar', byte 1024: the archive ends within '");
  write("\x1f\x8b\x08" + good);
  fails("train-000001.tar', byte 0: the archive is compressed by gzip");
  write(TarFile("x.cls", "7") + good);
  fails("train-000001.tar', sample 'x': no picture");
  write(TarFile("x.png", "no picture") + TarFile("x.cls", "1"));
  fails("train-000001.tar', sample 'x': 'x.png': this is no image");
  write(TarFile("x.png", "") + TarFile("x.cls", "9"));
  fails("train-000001.tar', sample 'x': label 9 is not in 0..3");
  write(TarFile("x.png", "") + TarFile("x.cls", "dog"));
  fails("sample 'x': cls: wanted a whole number, got 'dog'");
  fs::remove(shard);
  fails("missing: train-000001.tar");
  write(good);
  fs::copy(pictures.records + "/validation-00000-of-00001",
           pictures.tars + "/test-00000-of-00001");
  fails("holds shards of records and of tar archives", 2);
  fs::remove(pictures.tars + "/test-00000-of-00001");
  for (int i = 0; i < 3; ++i) fs::remove(pictures.Shard("train", i));
  fails("no tar shards of \"train\" in '");
}

TEST_CASE("bad samples can be passed over, links cannot") {
  const Pictures pictures;
  const std::string shard = pictures.Shard("train", 1), good = TextOf(shard);
  const auto train = [&](const std::string& more, const char* skip) {
    std::ofstream(shard, std::ios::binary) << more + good;
    const std::string log = pictures.folder / "log";
    fs::remove_all(log);
    return Run("train", pictures.tars, log,
               {"--steps", "6", "--skip-bad", skip});
  };
  const std::string bad = TarFile("x.png", "") + TarFile("y.cls", "1");
  CHECK(train("", "0").code == 0);
  CheckResNet50Error(train(bad, "1"), 1, "1 bad ones were passed over");
  const Outcome passed = train(bad, "2");
  CHECK_MESSAGE(passed.code == 0, passed.err);
  CHECK(train(TarFile("README.md", "x") + TarFile("dataset.json", "{}"), "0")
            .code == 0);
  const std::string link =
      testing::TarHeader{.name = "l.png", .type = '1'}.Text();
  CheckResNet50Error(train(link, "9"), 1, "'l.png' is a link");
}

TEST_CASE("archives beside pictures, and of other names") {
  const TemporaryFolder folder;
  const std::string data = folder / "data",
                    archive = data + "/train-000000.tar";
  testing::WriteClasses(data, {"ant", "bee"}, 4);
  const std::string picture = TextOf(data + "/ant/0.png");
  const std::string samples =
      TarFile("a.png", picture) + TarFile("a.cls", "1") + TarEnd();
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  };
  int runs = 0;
  const auto train = [&] {
    return Run("train", data, folder / fmt::format("log {}", runs++),
               {"--steps", "1", "--classes", "2"});
  };
  const auto begin_with = [&](const std::string& path,
                              const std::string& text) {
    fs::remove_all(data);
    write(data + "/" + path, text);
  };
  const auto refused = "holds tar shards and folders of pictures: keep one";
  write(data + "/backup.tar", samples);  // no shard
  CHECK(train().code == 0);
  write(archive, samples);
  CheckResNet50Error(train(), 2, refused);
  for (const char* path :
       {"labels.csv", "val/ant/0.png", "train/x", "ant/0.JPG"}) {
    begin_with(path, picture);
    write(archive, samples);
    CheckResNet50Error(train(), 2, refused);
  }
  // Neither of these is of a folder of pictures.
  begin_with("notes/a.txt", "x");
  write(data + "/sample.png", picture);
  write(archive, samples);
  const Outcome trained = train();
  CHECK_MESSAGE(trained.code == 0, trained.err);
  for (const char* name : {"train.tar", "000000.tar", "train-000000.tar.gz",
                           "train-000000.tgz", "trains-000000.tar"}) {
    begin_with(name, samples);
    CheckResNet50Error(
        train(), 2,
        fmt::format("tar shards must be called train-000000.tar (or "
                    "train-00000-of-00010.tar) and not be compressed; got '{}'",
                    name));
  }
}

}  // namespace
}  // namespace sluice
#endif
