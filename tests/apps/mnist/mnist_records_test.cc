// The mnist program on shards of records: the bits that MNIST's own files give,
// and what `sluice data make` writes; labels that begin with 1 or have names;
// and what is wrong with shards.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/files/record.h"
#include "io/images/png.h"
#include "io/records/image_records.h"
#include "io/sources/idx.h"
#include "tests/places.h"
#include "tests/support/compressed.h"
#include "tests/support/evaluation_figures.h"
#include "tests/support/mnist_program.h"
#include "tests/support/same_bits.h"
#include "tests/support/store_program.h"
#include "tests/support/tar_bytes.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CheckMnistError;
using testing::Contains;
using testing::EvaluationFigures;
using testing::IdxFolder;
using testing::Outcome;
using testing::RunMnist;
using testing::RunProgram;
using testing::SameBits;
using testing::TemporaryFolder;
using testing::TextOf;

struct Digit {
  std::string png;
  int64_t label;
};
std::vector<Digit> DigitsOf(const IdxFolder& data, const std::string& split) {
  const Tensor images = *ReadIdx(data / (split + "-images-idx3-ubyte"));
  const Tensor labels = *ReadIdx(data / (split + "-labels-idx1-ubyte"));
  std::vector<Digit> digits;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    digits.push_back({*EncodePng(images.Rows(i, i + 1).Reshaped({28, 28, 1})),
                      labels.IntAt(i)});
  }
  return digits;
}

std::string Records(const std::vector<Digit>& digits, int64_t offset = 0) {
  std::string file;
  for (const Digit& digit : digits) {
    AppendRecord(*EncodeImageRecord(
                     {.encoded = digit.png, .label = digit.label + offset}),
                 &file);
  }
  return file;
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Digits as MNIST's files, and as records in the same order.
struct Both {
  IdxFolder idx{300, 70};
  TemporaryFolder folder;
  std::string records = folder / "records";
  std::vector<Digit> train = DigitsOf(idx, "train");
  std::vector<Digit> test = DigitsOf(idx, "t10k");

  Both() {
    fs::create_directory(records);
    WriteShards(0);
  }
  void WriteShards(int64_t offset) const {
    const auto middle = train.begin() + 100;
    Write(records + "/train-00000-of-00002",
          Records({train.begin(), middle}, offset));
    Write(records + "/train-00001-of-00002",
          Records({middle, train.end()}, offset));
    Write(records + "/test-00000-of-00001", Records(test, offset));
  }
};

Outcome Run(const std::string& command, const std::string& data,
            const std::string& log, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      command,  "--data-dir", data,  "--log-dir",
      log,      "--threads",  "1",   "--batch-size",
      "32",     "--model",    "mlp", "--deterministic",
      "--seed", "3"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunMnist(arguments);
}

void Train(const std::string& data, const std::string& log,
           std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--steps", "25"});
  const Outcome outcome = Run("train", data, log, more);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
}

TEST_CASE("records of MNIST's digits give the bits of its own files") {
  const Both both;
  const std::string idx = both.folder / "idx log";
  Train(both.idx.path(), idx);
  const Outcome evaluated = Run("eval", both.idx.path(), idx);
  const Outcome predicted = Run("predict", both.idx.path(), idx, {"--json"});
  CHECK(Contains(evaluated.out, "(70 examples)"));
  // Epochs of ten steps, the third not whole; on several threads, too.
  for (const char* threads : {"1", "3"}) {
    CAPTURE(threads);
    const std::string log = both.folder / threads;
    Train(both.records, log,
          {"--input-threads", threads, "--input-memory", "1K"});
    CHECK(SameBits(idx, log, 25));
    const Outcome again = Run("eval", both.records, log);
    CHECK(EvaluationFigures(again) == EvaluationFigures(evaluated));
    CHECK(Contains(again.out, both.records));  // which data they are
    CHECK(Run("predict", both.records, log, {"--json"}).out == predicted.out);
  }
  // In pieces.
  const std::string pieces = both.folder / "pieces";
  for (const char* steps : {"4", "17", "25"}) {
    const Outcome outcome = Run("train", both.records, pieces,
                                {"--steps", "25", "--max-steps", steps});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
  CHECK(SameBits(idx, pieces, 25));
  // Another sequence of the same length.
  CHECK(Contains(Run("train", both.idx.path(), pieces, {"--steps", "30"}).err,
                 "saved by another input pipeline"));
  // Those of tar archives are the same.
  const std::string tars = both.folder / "tars";
  fs::create_directory(tars);
  for (const auto& [part, digits] :
       {std::pair("train", both.train), {"validation", both.test}}) {
    std::string archive;
    for (size_t i = 0; i < digits.size(); ++i) {
      archive += testing::TarFile(fmt::format("{:06}.cls", i),
                                  std::to_string(digits[i].label));
      archive += testing::TarFile(fmt::format("{:06}.png", i), digits[i].png);
    }
    Write(fmt::format("{}/{}-000000.tar", tars, part),
          archive + testing::TarEnd());
  }
  Train(tars, both.folder / "tar log");
  CHECK(SameBits(idx, both.folder / "tar log", 25));
}

TEST_CASE("compressed records of MNIST's digits give the same bits") {
  const Both both;
  const std::string idx = both.folder / "idx log", log = both.folder / "log";
  Train(both.idx.path(), idx);
  const std::string wanted =
      EvaluationFigures(Run("eval", both.idx.path(), idx));
  for (const auto& entry : fs::directory_iterator(both.records)) {
    const std::string path = entry.path();
    Write(path,
          testing::Compressed(TextOf(path), path.find("-00001-") != path.npos
                                                ? Compression::kZlib
                                                : Compression::kGzip));
  }
  const Outcome trained = Run("train", both.records, log,
                              {"--steps", "25", "--input-threads", "3"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(Contains(trained.err,
                 "2 shards of 'train', 300 pictures, compressed, "
                 "so that they are held in memory"));
  CHECK(SameBits(idx, log, 25));
  CHECK(EvaluationFigures(Run("eval", both.records, log)) == wanted);
  const std::string pieces = both.folder / "pieces";
  for (const char* steps : {"4", "17", "25"}) {
    Train(both.records, pieces, {"--max-steps", steps});
  }
  CHECK(SameBits(idx, pieces, 25));
  // What is wrong with one picture, and with a shard.
  const std::string shard = both.records + "/train-00001-of-00002";
  const std::string good = TextOf(shard);
  std::vector<Digit> digits(both.train.begin() + 100, both.train.end());
  digits[7].png.resize(50);
  Write(shard, testing::Compressed(Records(digits), Compression::kGzip));
  fs::remove_all(log);
  const Outcome skips =
      Run("train", both.records, log, {"--steps", "25", "--skip-bad", "1"});
  CHECK(skips.code == 0);
  CHECK(Contains(skips.err, "passed over as they cannot be read: 1"));
  CHECK(Contains(skips.err, "train-00001-of-00002', decompressed byte "));
  fs::remove_all(log);
  Write(shard, good.substr(0, good.size() / 2));
  const Outcome cut = Run("train", both.records, log, {"--skip-bad", "300"});
  CHECK(cut.code == 1);
  CHECK(Contains(cut.err, "train-00001-of-00002'"));
  // An evaluation of what was trained on says so.
  Write(shard, good);
  fs::remove(both.records + "/test-00000-of-00001");
  CHECK(Contains(Run("eval", both.records, pieces).out, ": training loss "));
}

TEST_CASE("compressed records are read once, however often they are opened") {
  if (!testing::KnowsStores()) return;
  const Both both;
  testing::ObjectStore store;
  const testing::StoreSettings settings(store);
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002"}) {
    store.Put(std::string("digits/") + name,
              testing::Compressed(TextOf(both.records + "/" + name),
                                  Compression::kGzip));
  }
  std::atomic<int> asked = 0;
  store.Fail([&](const testing::ServedRequest& request, int) {
    asked += request.method == "GET" &&
             request.target.starts_with("/b/digits/train-00001");
    return testing::StoreFault::kNone;
  });
  // There are no others to evaluate on.
  const std::string log = both.folder / "log";
  for (const char* command : {"train", "eval"}) {
    CAPTURE(command);
    asked = 0;
    const Outcome outcome = Run(command, "s3://b/digits", log);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(Contains(outcome.out, ": training loss "));
    CHECK(asked > 0);
    CHECK(asked <= 2);  // its first bytes, and all
  }
}

TEST_CASE("a folder of pictures becomes records that mnist reads") {
  const Both both;
  const std::string log = both.folder / "log";
  Train(both.idx.path(), log);
  const std::string want = EvaluationFigures(Run("eval", both.idx.path(), log));
  // Folders that are named after digits, of which some have none: numbers are
  // those of labels.txt.
  const std::string files = both.folder / "files";
  const std::string made = both.folder / "made";
  std::vector<Digit> some;
  for (size_t i = 0; i < both.test.size(); ++i) {
    const Digit& digit = both.test[i];
    if (digit.label == 2 || digit.label == 5) continue;
    some.push_back(digit);
    const std::string name = fmt::format("{}/{}", files, digit.label);
    fs::create_directories(name);
    Write(fmt::format("{}/{}.png", name, i), digit.png);
  }
  const Outcome make = RunProgram(
      SLUICE_BIN_DIR "/sluice",
      {"data", "make", files, made, "--part", "validation", "--shards", "2"});
  REQUIRE_MESSAGE(make.code == 0, make.err);
  CHECK(TextOf(made + "/labels.txt") == "0\n1\n3\n4\n6\n7\n8\n9\n");
  Write(both.records + "/test-00000-of-00001", Records(some));
  CHECK(EvaluationFigures(Run("eval", made, log)) ==
        EvaluationFigures(Run("eval", both.records, log)));
  CHECK(EvaluationFigures(Run("eval", made, log)) != want);
  // Other names say nothing.
  Write(made + "/labels.txt", "a\nb\nc\nd\ne\nf\ng\nh\n");
  CHECK(EvaluationFigures(Run("eval", made, log)) !=
        EvaluationFigures(Run("eval", both.records, log)));
}

TEST_CASE("labels of digits that begin with 1") {
  const Both both;
  const std::string idx = both.folder / "idx log", log = both.folder / "log";
  Train(both.idx.path(), idx);
  both.WriteShards(1);
  const Outcome wrong =
      Run("train", both.records, log, {"--steps", "25", "--label-offset", "0"});
  CHECK(wrong.code == 1);
  CHECK(Contains(wrong.err,
                 "label 10 is not in 0..9, of 10 classes; "
                 "--label-offset says which label the first has"));
  fs::remove_all(log);
  Train(both.records, log, {"--label-offset", "1"});
  CHECK(SameBits(idx, log, 25));
  fs::remove_all(log);
  const Outcome found = Run("train", both.records, log, {"--steps", "25"});
  CHECK(Contains(found.err, "labels begin at 1: 1 is the first class"));
  CHECK(SameBits(idx, log, 25));
  CHECK(EvaluationFigures(Run("eval", both.records, log)) ==
        EvaluationFigures(Run("eval", both.idx.path(), idx)));
  // A record of it does not hinder predictions for files.
  fs::remove_all(log);
  Train(both.records, log, {"--label-offset", "1"});
  Write(both.folder / "3.png", both.train[3].png);
  const Outcome file =
      RunMnist({"predict", "--log-dir", log, both.folder / "3.png"});
  CHECK_MESSAGE(file.code == 0, file.err);
}

TEST_CASE("what is wrong with shards of digits is said") {
  const Both both;
  const std::string log = both.folder / "log";
  const std::string shard = both.records + "/train-00001-of-00002";
  const auto ends = [&](int code, const std::string& part,
                        std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--steps", "25"});
    const Outcome outcome = Run("train", both.records, log, more);
    CHECK(outcome.code == code);
    CHECK(Contains(outcome.err, part));
    fs::remove_all(log);
  };
  const auto with = [&](const Tensor& image) {
    std::vector<Digit> digits(both.train.begin() + 100, both.train.end());
    digits[7].png = *EncodePng(image);
    Write(shard, Records(digits));
  };
  with(Tensor::Full(DType::kUInt8, {28, 29, 1}, 0));
  ends(1, "train-00001-of-00002', byte ");
  ends(1, "'picture' has 29 x 28 pixels, wanted 28 x 28", {"--skip-bad", "1"});
  Tensor coloured = Tensor::Full(DType::kUInt8, {28, 28, 3}, 9);
  with(coloured);  // equal ones are none
  Train(both.records, log);
  fs::remove_all(log);
  coloured.data<uint8_t>()[28 * 28 * 3 - 1] = 8;
  with(coloured);
  ends(1, "'picture' has colours, wanted grey");
  // One that cannot be read is passed over.
  std::vector<Digit> digits(both.train.begin() + 100, both.train.end());
  digits[7].png.resize(50);
  Write(shard, Records(digits));
  ends(1, "train-00001-of-00002', byte ");
  ends(0, "passed over as they cannot be read: 1", {"--skip-bad", "1"});
  digits[7] = {both.train[107].png, 12};
  Write(shard, Records(digits));
  ends(1, "label 12 is not in 0..9");
  // An evaluation of what was trained on says so.
  digits[7] = both.train[107];
  Write(shard, Records(digits));
  fs::remove(both.records + "/test-00000-of-00001");
  Train(both.records, log);
  CHECK(Contains(Run("eval", both.records, log).out, ": training loss "));
  fs::remove_all(log);
  fs::remove(shard);
  ends(1, "missing: train-00001-of-00002");
  // With others beside them it is not clear which are meant.
  fs::copy(both.idx / "train-images-idx3-ubyte", both.records);
  ends(2, "holds shards and 'train-images-idx3-ubyte': keep one of them");
  CheckMnistError(Run("train", both.idx.path(), log, {"--label-offset", "1"}),
                  2, "--label-offset is for --data-dir with a folder of");
}

}  // namespace
}  // namespace sluice
#endif
