// --label-offset auto of the resnet50 program: what it makes of records whose
// labels begin with 0 or with 1, of few and of many, and in evaluations.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/files/record.h"
#include "io/records/image_records.h"
#include "io/records/tf_example.h"
#include "tests/support/random.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Outcome;
using testing::Random;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::TextOf;

constexpr const char* kFromOne = "labels begin at 1: 1 is the first class";
constexpr const char* kNotKnown = "is among ";
constexpr const char* kGiven = "labels begin at {}, as --label-offset says";
constexpr const char* kAsTrained = "labels are taken to begin at {}, as in the";

using Labels = std::vector<int64_t>;
using Strings = std::vector<std::string>;

// Records of one picture.
class Records {
 public:
  Records() {
    testing::WritePicture(folder_ / "picture.png", 40, 36);
    picture_ = TextOf(folder_ / "picture.png");
    fs::create_directory(data_);
  }

  void Write(const std::string& part, const Labels& labels) const {
    std::string file;
    for (const int64_t label : labels) {
      AppendRecord(EncodeImageRecord({.encoded = picture_, .label = label})
                       .ValueOrThrow(),
                   &file);
    }
    Put(part, file);
  }
  // Such as are none before the records of a part and behind them.
  void Spoil(const std::string& part) const {
    std::string none;
    AppendRecord("no example", &none);
    const std::string good = TextOf(Path(part));
    Put(part, none + good + none);
  }

  void AddWithTextLabel(const std::string& part) const {
    const std::vector<std::pair<std::string, TfFeature>> features = {
        {"image/encoded", Strings{picture_}},
        {"image/class/label", Strings{"2"}}};
    std::string bad;
    AppendRecord(EncodeTfExample(features).ValueOrThrow(), &bad);
    Put(part, TextOf(Path(part)) + bad);
  }

  Outcome Run(const std::string& command, const std::string& log,
              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        command,  "--data",       data_, "--model",   "resnet20", "--log-dir",
        Log(log), "--batch-size", "4",   "--threads", "1",        "--classes",
        "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  }
  // Trains to a step; the notes say so of labels, empty: nothing.
  void Train(const std::string& log, const std::string& says,
             std::vector<std::string> more = {},
             const char* steps = "2") const {
    more.insert(more.end(), {"--deterministic", "--steps", steps});
    const Outcome outcome = Run("train", log, more);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    for (const std::string note : {kFromOne, kNotKnown}) {
      CHECK_MESSAGE(
          (outcome.err.find(note) != std::string::npos) == (says == note),
          outcome.err);
    }
  }
  std::string Log(const std::string& log) const { return folder_ / log; }
  const std::string& data() const { return data_; }
  void NameClasses(const std::string& lines) const {
    std::ofstream(data_ + "/labels.txt") << lines;
  }
  // Of a record of that label.
  size_t FrameBytes(int64_t label) const {
    std::string frame;
    AppendRecord(
        EncodeImageRecord({.encoded = picture_, .label = label}).ValueOrThrow(),
        &frame);
    return frame.size();
  }
  bool SameBits(const std::string& a, const std::string& b) const {
    return testing::SameBits(Log(a), Log(b), 2);
  }

 private:
  std::string Path(const std::string& part) const {
    return data_ + "/" + part + "-00000-of-00001";
  }
  void Put(const std::string& part, const std::string& bytes) const {
    std::ofstream(Path(part), std::ios::binary) << bytes;
  }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "data", picture_;
};

TEST_CASE("labels that begin with 1 are trained on as those with 0") {
  const Records records;
  records.Write("train", {2, 0, 3, 1, 2, 0, 3, 1});
  records.Train("zero", "");
  records.Train("told zero", "", {"--label-offset", "0"});
  CHECK(records.SameBits("zero", "told zero"));
  records.Write("train", {3, 1, 4, 2, 3, 1, 4, 2});
  records.Train("one", kFromOne);
  records.Train("told one", "", {"--label-offset", "1"});
  CHECK(records.SameBits("one", "told one"));
  CHECK(records.SameBits("zero", "one"));
  // A run goes on, whichever of these names it.
  records.Train("one", "", {"--label-offset", "1"}, "4");
  records.Train("told one", kFromOne, {"--label-offset", "auto"}, "4");
  const Outcome other =
      records.Run("train", "one", {"--steps", "6", "--label-offset", "0"});
  CHECK(other.code == 1);
  // What cannot be read is not looked at.
  records.Spoil("train");
  records.Train("spoilt", kFromOne, {"--skip-bad", "4"});
}

TEST_CASE("random labels of few classes") {
  Random random(3);
  const Records records;
  for (int round = 0; round < 9; ++round) {
    Labels labels;
    for (int64_t n = random.Between(8, 20); n > 0; --n) {
      labels.push_back(
          random.Between(round % 3 == 0 ? 0 : 1, round % 3 == 1 ? 4 : 3));
    }
    const auto has = [&](int64_t label) {
      return std::find(labels.begin(), labels.end(), label) != labels.end();
    };
    CAPTURE(fmt::format("{}", fmt::join(labels, ",")));
    records.Write("train", labels);
    records.Train(fmt::format("log {}", round), has(4)   ? kFromOne
                                                : has(0) ? ""
                                                         : kNotKnown);
  }
}

TEST_CASE("both of the labels that tell are an error") {
  const Records records;
  int runs = 0;  // each anew, since flags are recorded
  const auto fails = [&](const Labels& labels, const std::string& why,
                         const std::vector<std::string>& more = {}) {
    records.Write("train", labels);
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--steps", "2"});
    const Outcome outcome =
        records.Run("train", fmt::format("log {}", runs++), arguments);
    CHECK(outcome.code == 1);
    CHECK_MESSAGE(Contains(outcome.err, why), outcome.err);
  };
  fails({1, 2, 4, 0, 1}, "label 0, and ");
  fails({1, 2, 4, 0, 1}, "label 4, which cannot both be of 4 classes");
  fails({1, 2, 4, 0, 1}, "--label-offset which label the first has");
  fails({1, 2, 4, 0, 1}, "label 4 is not in 0..3", {"--label-offset", "0"});
  fails({1, 2, 4, 0, 1}, "label 0 is not in 1..4", {"--label-offset", "1"});
  fails({5, 1, 2, 4, 5}, "label 5 is not in 1..4");
  fails({0, 1, 2, -1, 0}, "label -1 is not in 0..3");
}

TEST_CASE("evaluations begin as the training did") {
  const Records records;
  const auto eval = [&](const std::string& log, const Labels& labels,
                        const std::vector<std::string>& more = {}) {
    records.Write("validation", labels);
    const Outcome outcome = records.Run("eval", log, more);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(outcome.err.find(kNotKnown) == std::string::npos);
    return outcome.out.substr(0, outcome.out.find(" examples)"));
  };
  for (const int64_t first : {0, 1}) {
    records.Write("train", {first, first + 1, first + 2, first + 3});
    records.Write("validation", {first, first + 3});
    const std::string log = fmt::format("log {}", first);
    records.Train(log, first == 1 ? kFromOne : "");
    // 1, 2 and 3 may be of either numbering.
    const std::string undecided = eval(log, {1, 2, 3, 3});
    CHECK(undecided == eval(log, {1, 2, 3, 3},
                            {"--label-offset", fmt::format("{}", first)}));
    CHECK(undecided != eval(log, {1, 2, 3, 3},
                            {"--label-offset", fmt::format("{}", 1 - first)}));
    // The training found out, which its record says.
    CHECK(Contains(TextOf(records.Log(log) + "/run.json"),
                   fmt::format("\"label-offset\": \"{}\"", first)));
    CHECK(Contains(records.Run("eval", log).err,
                   fmt::format(fmt::runtime(kGiven), first)));
    CHECK(Contains(records.Run("eval", log, {"--label-offset", "auto"}).err,
                   fmt::format(fmt::runtime(kAsTrained), first)));
    const std::string own = eval(log, {first, first + 1, first + 2, first + 3});
    // The same classes, numbered otherwise, are not taken for others.
    const Labels others = {1 - first, 2 - first, 3 - first, 4 - first};
    CHECK(own ==
          eval(log, others, {"--label-offset", fmt::format("{}", 1 - first)}));
    const Outcome contradicts = records.Run("eval", log);
    CHECK(contradicts.code == 1);
    CHECK(Contains(contradicts.err, "validation-00000-of-00001', byte "));
    CHECK(Contains(contradicts.err,
                   fmt::format(": label {} is not in {}..{}, of 4 classes",
                               first == 1 ? 0 : 4, first, first + 3)));
    const Outcome refused =
        records.Run("eval", log, {"--label-offset", "auto"});
    CHECK(refused.code == 1);
    CHECK(Contains(
        refused.err,
        fmt::format(": label {}, so that labels begin at {} here, but those of "
                    "the training were taken to begin at {}; give "
                    "--label-offset here",
                    first == 1 ? 0 : 4, 1 - first, first)));
    CHECK(Contains(refused.err, "validation-00000-of-00001', byte "));
    // Predictions need no labels.
    records.Write("validation", {7, 0, 4});
    CHECK(records.Run("predict", log).code == 0);
  }
}

TEST_CASE("where those to train on do not tell, those to validate on may") {
  const Records records;
  records.Write("train", {1, 2, 3, 3, 2, 1});
  records.Train("alone", kNotKnown);
  records.Write("validation", {2, 4});
  records.Train("one", kFromOne);
  records.Train("told one", "", {"--label-offset", "1"});
  CHECK(records.SameBits("one", "told one"));
  // Of the training that has seen none of these.
  const Outcome eval = records.Run("eval", "alone", {"--label-offset", "auto"});
  CHECK(eval.code == 1);
  CHECK(Contains(eval.err,
                 "labels begin at 1 here, but those of the training "
                 "were taken to begin at 0"));
  records.Write("validation", {2, 0});
  records.Train("zero", "");
  CHECK(records.SameBits("zero", "alone"));
}

TEST_CASE("a label of another kind is not passed over") {
  const Records records;
  Labels labels(500, 2);
  labels[0] = 4;
  records.Write("train", labels);
  records.Train("good", kFromOne);
  records.AddWithTextLabel("train");
  const Outcome outcome = records.Run("train", "bad", {"--steps", "1"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "image/class/label"));
}

TEST_CASE("among many records a few tell") {
  // Only the picture at one place tells, within the first thousand in order of
  // number or not.
  const Records records;
  records.Write("validation", {1, 4});
  Labels labels(9000, 2);
  for (const size_t place : {size_t{0}, size_t{7654}, labels.size() - 1}) {
    labels[place] = 4;
    records.Write("train", labels);
    records.Train(fmt::format("log {}", place), kFromOne);
    labels[place] = 2;
  }
}

TEST_CASE("only records have labels to begin with 1") {
  const TemporaryFolder folder;
  testing::WriteClasses(folder / "files", {"ant", "bee"}, 4);
  const auto train = [&](const char* offset) {
    return RunResNet50({"train", "--data", folder / "files", "--model",
                        "resnet20", "--batch-size", "4", "--steps", "1",
                        "--label-offset", offset});
  };
  CHECK(train("auto").code == 0);
  CHECK(train("0").code == 0);
  testing::CheckResNet50Error(train("1"), 2, "--label-offset is for --data");
  testing::CheckResNet50Error(train("2"), 2, "--label-offset is for --data");
  for (const char* none : {"", "one", "1x", "1.5", "99999999999999999999"}) {
    testing::CheckResNet50Error(
        train(none), 2, "--label-offset: wanted auto or a whole number");
  }
}

TEST_CASE("labels may begin anywhere, and the same goes for evaluations") {
  const Records records;
  records.Write("train", {0, 1, 2, 3, 3, 0});
  records.Write("validation", {1, 2, 3, 3});
  records.Train("zero", "");
  for (const int64_t first : {-7, 5, 1001}) {
    records.Write("train",
                  {first, first + 1, first + 2, first + 3, first + 3, first});
    records.Write("validation", {first + 1, first + 2, first + 3, first + 3});
    const std::string log = fmt::format("log {}", first);
    records.Train(log, "", {"--label-offset", fmt::format("{}", first)});
    CHECK(records.SameBits("zero", log));
    const Outcome evaluated = records.Run("eval", log);
    CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
    CHECK(Contains(evaluated.err, fmt::format(fmt::runtime(kGiven), first)));
    // Where it is not in the record, the checkpoint has it.
    const Outcome found = records.Run("eval", log, {"--label-offset", "auto"});
    CHECK_MESSAGE(found.code == 0, found.err);
    CHECK(Contains(found.err, fmt::format(fmt::runtime(kAsTrained), first)));
    // One before the first, one behind the last.
    for (const int64_t wrong : {first - 1, first + 4}) {
      records.Write("validation", {first + 1, wrong});
      const Outcome refused = records.Run("eval", log);
      CHECK(refused.code == 1);
      CHECK(Contains(
          refused.err,
          fmt::format("validation-00000-of-00001', byte {}: label "
                      "{} is not in {}..{}, of 4 classes",
                      records.FrameBytes(first + 1), wrong, first, first + 3)));
    }
  }
}

TEST_CASE("other data begin as they say") {
  const Records records, others;
  records.Write("train", {1, 2, 3, 4});
  records.Write("validation", {1, 4});
  records.NameClasses("a\nb\nc\nd\n");
  records.Train("log", kFromOne);
  // Their names number them.
  others.NameClasses("b\na\nc\nd\n");
  others.Write("validation", {0, 3});
  const Outcome outcome = RunResNet50(
      {"eval", "--log-dir", records.Log("log"), "--data", others.data()});
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(Contains(outcome.err, "labels begin at 0: 0 is the first class"));
}

TEST_CASE("a training repeated on other data begins as they do") {
  const Records records, others;
  records.Write("train", {1, 2, 3, 4});
  records.Train("log", kFromOne);
  others.Write("train", {0, 1, 2, 3});
  const Outcome outcome =
      RunResNet50({"train", "--config", records.Log("log") + "/run.json",
                   "--data", others.data(), "--log-dir", others.Log("log")});
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(Contains(TextOf(others.Log("log") + "/run.json"),
                 "\"label-offset\": \"0\""));
}

}  // namespace
}  // namespace sluice
#endif
