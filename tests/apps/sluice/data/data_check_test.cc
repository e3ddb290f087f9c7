// `sluice data check`, show and stats from outside, on records that were made
// for it: what was damaged is named and nothing else, what is said of pictures
// is what a plain loop over them finds.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "io/files/record.h"
#include "io/images/image.h"
#include "io/records/image_records.h"
#include "io/records/tf_example.h"
#include "tests/support/data_program.h"
#include "tests/support/last_object.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_JPEG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::Contains;
using testing::DataObject;
using testing::Objects;
using testing::Outcome;
using testing::RandomJpeg;
using testing::RandomPng;
using testing::RunData;
using testing::TemporaryFolder;
using testing::WriteFile;

struct Record {
  std::string picture;
  int64_t label = 0;
  // Of the payload and of the frame, where they are not as they should be.
  std::function<std::string(std::string)> payload, frame;
};

// The first of n records in a shard.
size_t Begin(size_t shard, size_t n, size_t shards) {
  return n * shard / shards;
}
bool IsLast(size_t record, size_t n, size_t shards) {
  for (size_t s = 1; s <= shards; ++s) {
    if (record + 1 == Begin(s, n, shards)) return true;
  }
  return false;
}

// Writes them as shards of `part` with their indices; returns each record's
// place as messages spell it.
Strings WriteShards(const std::string& folder, const std::string& part,
                    const std::vector<Record>& records, size_t shards) {
  Strings places;
  for (size_t s = 0; s < shards; ++s) {
    const std::string path =
        fmt::format("{}/{}-{:05}-of-{:05}", folder, part, s, shards);
    std::string bytes, index;
    for (size_t i = Begin(s, records.size(), shards);
         i < Begin(s + 1, records.size(), shards); ++i) {
      const Record& record = records[i];
      std::string payload =
          EncodeImageRecord({record.picture, record.label, {}, {}})
              .ValueOrThrow();
      if (record.payload) payload = record.payload(payload);
      std::string frame;
      AppendRecord(payload, &frame);
      if (record.frame) frame = record.frame(frame);
      places.push_back(fmt::format("'{}', byte {}:", path, bytes.size()));
      index += fmt::format("{} {}\n", bytes.size(), frame.size());
      bytes += frame;
    }
    WriteFile(path, bytes);
    WriteFile(path + ".idx", index);
  }
  return places;
}

std::vector<Record> RandomRecords(int64_t n, int64_t classes,
                                  std::mt19937& random) {
  std::vector<Record> records;
  for (int64_t i = 0; i < n; ++i) {
    records.push_back(
        {random() % 3 == 0 ? RandomJpeg(random) : RandomPng(random),
         i % classes,
         {},
         {}});
  }
  return records;
}

std::string Example(
    const std::vector<std::pair<std::string, TfFeature>>& features) {
  return EncodeTfExample(features).ValueOrThrow();
}

// Ways to spoil a record.
const std::vector<std::function<void(Record&)>>& Faults() {
  using Features = std::vector<std::pair<std::string, TfFeature>>;
  static const auto payload = [](const std::string& bytes) {
    return [bytes](const std::string&) { return bytes; };
  };
  static const auto flip = [](size_t at) {
    return [at](std::string bytes) {
      bytes[at] = static_cast<char>(bytes[at] ^ 4);
      return bytes;
    };
  };
  static const std::vector<std::function<void(Record&)>> kFaults = {
      [](Record& r) { r.frame = flip(12); },  // payload
      [](Record& r) { r.frame = flip(0); },   // length
      [](Record& r) { r.frame = flip(9); },   // the length's checksum
      [](Record& r) { r.payload = payload("\xff\xff"); },
      [](Record& r) { r.payload = payload(""); },
      [](Record& r) {
        r.payload = payload(Example(
            Features{{"image/encoded", std::vector<std::string>{r.picture}}}));
      },
      [](Record& r) {
        r.payload = payload(
            Example(Features{{"image", std::vector<std::string>{"GIF89a"}},
                             {"label", std::vector<int64_t>{1}}}));
      },
      [](Record& r) { r.picture.resize(r.picture.size() / 2); },
      [](Record& r) { r.label = 4; },
      [](Record& r) { r.label = -1; },
  };
  return kFaults;
}

TEST_CASE("check names files that hold nothing") {
  std::mt19937 random(9);
  for (const bool tar : {false, true}) {
    const TemporaryFolder folder;
    WriteShards(folder.path(), "train", RandomRecords(6, 2, random), 2);
    const std::string name = tar ? "test-000000.tar" : "test-00000-of-00001";
    WriteFile(folder / name, tar ? std::string(1024, '\0') : "");
    const Outcome outcome = RunData({"check", folder.path(), "--json"});
    CHECK(outcome.code == 1);
    const std::vector<Json> lines = Objects(outcome.out);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0]["bad"] ==
          fmt::format("'{}' holds no records", folder / name));
    CHECK(lines[1]["records"] == 6);
    CHECK(lines[1]["bad"] == 1);
  }
}

TEST_CASE("check names the records that were spoilt, and no other") {
  std::mt19937 random(1);
  for (int round = 0; round < 25; ++round) {
    const TemporaryFolder folder;
    std::vector<Record> records = RandomRecords(30, 4, random);
    const size_t shards = 1 + random() % 4;
    std::set<size_t> spoilt;
    for (int n = round % 4; n > 0; --n) {
      const size_t i = 8 + random() % 22;  // labels 0 to 3 are there anyway
      size_t fault = random() % Faults().size();
      // Without the length of its last record a file's index does not fit it.
      if (IsLast(i, records.size(), shards)) fault = 0;
      if (spoilt.insert(i).second) Faults()[fault](records[i]);
    }
    const Strings places = WriteShards(folder.path(), "train", records, shards);
    WriteFile(folder / "labels.txt", "a\nb\nc\nd\n");
    const char* threads = round % 2 == 0 ? "1" : "3";
    const Outcome outcome =
        RunData({"check", folder.path(), "--threads", threads, "--json"});
    CAPTURE(outcome.out);
    CHECK(outcome.code == (spoilt.empty() ? 0 : 1));
    CHECK(outcome.err.empty());
    const std::vector<Json> lines = Objects(outcome.out);
    REQUIRE(lines.size() == spoilt.size() + 1);
    CHECK(lines.back()["records"] == 30);
    CHECK(lines.back()["files"] == shards);
    CHECK(lines.back()["bad"] == spoilt.size());
    auto line = lines.begin();
    for (const size_t i : spoilt) {
      CHECK(Contains((line++)->at("bad"), places[i]));
    }
  }
}

TEST_CASE("the first twenty are named, the others counted") {
  std::mt19937 random(2);
  const TemporaryFolder folder;
  std::vector<Record> records = RandomRecords(40, 4, random);
  for (size_t i = 10; i < 35; ++i) Faults()[1 - i % 2](records[i]);
  const Strings places = WriteShards(folder.path(), "val", records, 2);
  const Outcome outcome = RunData({"check", folder.path(), "--threads", "3"});
  CHECK(outcome.code == 1);
  CHECK(testing::Lines(outcome.out) == 22);
  for (size_t i = 0; i < 40; ++i) {
    const bool named = outcome.out.find(places[i]) != std::string::npos;
    CHECK(named == (i >= 10 && i < 30));
  }
  CHECK(Contains(outcome.out, "\nand 5 more\n40 records in 2 files"));
  CHECK(Contains(outcome.out, "25 bad\n"));
}

TEST_CASE("a file in which records cannot be found is one that is bad") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  WriteShards(folder.path(), "train", RandomRecords(12, 3, random), 3);
  const std::string bad = folder / "train-00001-of-00003";
  std::filesystem::resize_file(bad, std::filesystem::file_size(bad) - 3);
  const Outcome outcome = RunData({"check", folder.path()});
  CHECK(outcome.code == 1);
  CHECK(testing::Lines(outcome.out) == 2);
  CHECK(Contains(outcome.out, bad));
  CHECK(Contains(outcome.out, "none of this file's records were checked\n"));
  CHECK(Contains(outcome.out, "8 records in 3 files, labels 0 to 2"));
  CHECK(Contains(outcome.out, "1 bad\n"));
  // The others alone.
  CHECK(DataObject({"check", folder / "train-00000-of-00003",
                    folder / "train-00002-of-00003"})["records"] == 8);
  std::filesystem::remove(bad);
  CheckDataError({"check", folder.path()}, 1, "train");
}

TEST_CASE("records that are missing are one fault, of what make planned") {
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    const TemporaryFolder folder;
    const std::string part = round % 2 == 0 ? "train" : "test";
    const auto n = static_cast<int64_t>(2 + random() % 9);
    WriteShards(folder.path(), part, RandomRecords(n, 3, random), 2);
    const std::string json = folder / part + ".json";
    const auto check = [&] {
      return RunData({"check", folder.path(), "--threads", "2"});
    };
    for (const auto planned : {n - 1, n, n + 1, int64_t{1} << 60}) {
      WriteFile(json,
                fmt::format(R"({{"records": {}, "shards": ["0"]}})", planned));
      const Outcome outcome = check();
      CHECK(outcome.code == (planned == n ? 0 : 1));
      CHECK(testing::Lines(outcome.out) == (planned == n ? 1 : 2));
      const std::string fault = fmt::format(
          "'{}' speaks of {} records, the files have {};", json, planned, n);
      const bool told = outcome.out.find(fault) != std::string::npos;
      CHECK(told == (planned != n));
    }
    // Another program's.
    for (const char* text : {"", "{}", R"({"records": 99})", "[1]",
                             R"({"records": "9", "shards": []})"}) {
      WriteFile(json, text);
      CHECK(check().code == 0);
    }
  }
  // A part none of whose shards is there.
  const TemporaryFolder folder;
  WriteShards(folder.path(), "train", RandomRecords(4, 2, random), 1);
  WriteFile(folder / "validation.json", R"({"records": 5, "shards": ["0"]})");
  CHECK(Contains(RunData({"check", folder.path()}).out,
                 "validation.json' speaks of 5 records, the files have 0;"));
}

TEST_CASE("a name of two classes is told and is no fault") {
  std::mt19937 random(8);
  const TemporaryFolder folder;
  WriteShards(folder.path(), "train", RandomRecords(5, 5, random), 1);
  WriteFile(folder / "labels.txt", "crane\nb\nmaillot\ncrane\nmaillot\n");
  const Outcome outcome = RunData({"check", folder.path()});
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.out,
                 "the same name of several classes: 'crane' in lines 1 and 4, "
                 "'maillot' in lines 3 and 5\n5 records"));
  CHECK(DataObject({"check", folder.path()})["repeated_names"] ==
        Json::parse(R"([{"name": "crane", "lines": [1, 4]},
                        {"name": "maillot", "lines": [3, 5]}])"));
  WriteFile(folder / "labels.txt", "a\nb\nc\nd\ne\n");
  CHECK_FALSE(DataObject({"check", folder.path()}).contains("repeated_names"));
  CHECK(testing::Lines(RunData({"check", folder.path()}).out) == 1);
}

TEST_CASE("folders of other classes are told, in whatever order they come") {
  std::mt19937 random(10);
  const TemporaryFolder folder;
  const std::string ten = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
  for (const auto& [name, classes] :
       {std::pair("a", ten), {"b", std::string("0\n1\n")}, {"c", ten}}) {
    // One of the labels is 5.
    WriteShards(folder / name, "train", RandomRecords(6, 6, random), 1);
    WriteFile(folder / name + "/labels.txt", classes);
  }
  const auto in = [&](const std::string& names) {
    Strings arguments = {"check"};
    for (const char name : names) {
      arguments.push_back(folder / std::string(1, name));
    }
    return arguments;
  };
  for (const char* names :
       {"ab", "ba", "abc", "acb", "bac", "bca", "cab", "cba"}) {
    CAPTURE(names);
    CheckDataError(in(names), 1, "different names of classes");
  }
  for (const char* names : {"ac", "ca"}) {
    CHECK(RunData(in(names)).code == 0);
  }
}

TEST_CASE("a name cannot forge a line") {
  std::mt19937 random(9);
  const TemporaryFolder folder;
  const std::string bad = folder / "x\nnone bad\n-00000-of-00001";
  WriteFile(bad, "none");
  const Outcome outcome = RunData({"check", bad});
  CHECK(outcome.code == 1);
  CHECK(testing::Lines(outcome.out) == 2);
}

TEST_CASE("labels that begin at 1 are no fault, and that is said") {
  std::mt19937 random(4);
  const TemporaryFolder folder;
  std::vector<Record> records = RandomRecords(10, 3, random);
  for (Record& record : records) ++record.label;
  WriteShards(folder.path(), "train", records, 2);
  for (const char* names : {"", "a\nb\nc\n"}) {
    if (*names != '\0') WriteFile(folder / "labels.txt", names);
    const Json checked = DataObject({"check", folder.path()});
    CHECK(checked["least_label"] == 1);
    CHECK(checked["most_label"] == 3);
    CHECK(checked["label_offset"] == 1);
    CHECK(Contains(RunData({"check", folder.path()}).out, "labels 1 to 3"));
  }
  // Of four classes the first has no pictures.
  WriteFile(folder / "labels.txt", "a\nb\nc\nd\n");
  CHECK(DataObject({"check", folder.path()})["label_offset"] == 0);
  // Of two, one label is too large.
  WriteFile(folder / "labels.txt", "a\nb\n");
  const Outcome outcome = RunData({"check", folder.path()});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.out, "label 3, wanted 0 to 1"));
}

TEST_CASE("statistics are those of a plain loop, for any threads") {
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    const TemporaryFolder folder;
    const int64_t n = 1 + static_cast<int64_t>(random() % 70);
    const std::vector<Record> records = RandomRecords(n, 3, random);
    WriteShards(folder.path(), "test", records, 1);
    WriteFile(folder / "labels.txt", "a\nb\nc\nnone of these\n");

    std::array<std::vector<double>, 3> values;
    std::map<int64_t, int64_t> by_label = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    std::vector<double> heights;
    for (const Record& record : records) {
      const Tensor image = DecodeImage(record.picture, "x").ValueOrThrow();
      for (int64_t i = 0; i < image.elements(); ++i) {
        values[i % 3].push_back(image.At(i) / 255);
      }
      heights.push_back(static_cast<double>(image.shape()[0]));
      ++by_label[record.label];
    }
    const auto stats = [&](const char* threads) {
      return RunData({"stats", folder.path(), "--part", "validation",
                      "--threads", threads, "--json"});
    };
    const Outcome outcome = stats("1");
    REQUIRE(outcome.code == 0);
    CHECK(stats("3").out == outcome.out);
    const std::vector<Json> lines = Objects(outcome.out);
    REQUIRE(lines.size() == 5);
    for (const auto& [label, count] : by_label) {
      CHECK(lines[label]["label"] == label);
      CHECK(lines[label]["pictures"] == count);
    }
    CHECK(lines[3]["name"] == "none of these");
    const Json& all = lines.back();
    CHECK(all["part"] == "test");  // there is no "validation"
    CHECK(all["pictures"] == n);
    CHECK(all["height"]["least"] ==
          *std::min_element(heights.begin(), heights.end()));
    CHECK(all["height"]["most"] ==
          *std::max_element(heights.begin(), heights.end()));
    for (size_t c = 0; c < 3; ++c) {
      const auto count = static_cast<double>(values[c].size());
      double mean = 0, variance = 0;
      for (const double x : values[c]) mean += x / count;
      for (const double x : values[c]) {
        variance += (x - mean) * (x - mean) / count;
      }
      CHECK(all["mean"][c].get<double>() ==
            doctest::Approx(mean).epsilon(1e-9));
      CHECK(all["deviation"][c].get<double>() ==
            doctest::Approx(std::sqrt(variance)).epsilon(1e-9));
    }
    const Outcome text =
        RunData({"stats", folder.path(), "--part", "validation"});
    CHECK(testing::Lines(text.out) == 9);
    CHECK(Contains(text.out, fmt::format("{}  of 'test'\n", n)));
    // Of two parts that might be meant, the one that was read.
    const Strings names = {"some-val.tfrecord", "my-data-validation",
                           "validation.tfrecord"};
    for (const std::string& name : names) {
      std::filesystem::copy_file(folder / "test-00000-of-00001",
                                 folder / name + "-00000-of-00001");
      CHECK(DataObject(
                {"stats", folder.path(), "--part", "validation"})["part"] ==
            (name == names[0] ? "val" : "validation"));
      if (name != names[0]) {
        std::filesystem::remove(folder / name + "-00000-of-00001");
      }
    }
  }
}

TEST_CASE("show prints the features of any examples") {
  std::mt19937 random(6);
  const TemporaryFolder folder;
  const std::string png =
      EncodePng(Tensor::Full(DType::kUInt8, {5, 7, 3}, 9)).ValueOrThrow();
  std::string file;
  AppendRecord(Example({{"picture", std::vector<std::string>{png}},
                        {"text", std::vector<std::string>{"two words", "x"}},
                        {"zeros", std::vector<std::string>{{"\0\n", 2}}},
                        {"ids", std::vector<int64_t>{-1, 1LL << 40}},
                        {"none", std::vector<std::string>{}},
                        {"many", std::vector<float>(20, 0.5F)}}),
               &file);
  for (int i = 0; i < 4; ++i) AppendRecord(Example({}), &file);
  WriteFile(folder / "some.tfrecord", file);
  const std::vector<Json> lines =
      Objects(RunData({"show", folder / "some.tfrecord", "--json"}).out);
  REQUIRE(lines.size() == 3);
  const Json& features = lines[0]["features"];
  CHECK(features["picture"]["kind"] == "bytes");
  CHECK(features["picture"]["values"][0]["bytes"] == png.size());
  CHECK(features["picture"]["values"][0]["format"] == "PNG");
  CHECK(features["picture"]["values"][0]["height"] == 5);
  CHECK(features["picture"]["values"][0]["width"] == 7);
  CHECK(features["text"]["values"][0]["text"] == "two words");
  CHECK(features["zeros"]["values"][0] == Json{{"bytes", 2}});
  CHECK(features["ids"]["kind"] == "int64");
  CHECK(features["ids"]["values"] == Json({-1, 1LL << 40}));
  CHECK(features["none"]["values"] == Json::array());
  CHECK(features["many"]["kind"] == "float");
  CHECK(features["many"]["values"].size() == 20);
  CHECK(lines[1]["features"].empty());
  const std::string text =
      RunData({"show", folder / "some.tfrecord", "--records", "1"}).out;
  CHECK(testing::Lines(text) == 8);
  CHECK(Contains(text, "some.tfrecord', byte 0\n"));
  CHECK(Contains(
      text, fmt::format("{} bytes, PNG, height 5, width 7\n", png.size())));
  CHECK(Contains(text, "'two words'; 'x'\n"));
  CHECK(Contains(text, " 20  0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 ...\n"));
  CHECK(Contains(text, "1 of 5 records\n"));
  // What can be shown before the damage is.
  std::string no_example;
  AppendRecord("\xff", &no_example);
  WriteFile(folder / "some.tfrecord", file.substr(0, file.size()) + no_example);
  const Outcome outcome =
      RunData({"show", folder / "some.tfrecord", "--records", "9"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.out, "record 4: "));
  CHECK(Contains(outcome.err, fmt::format("byte {}:", file.size())));
}

}  // namespace
}  // namespace sluice

#endif
