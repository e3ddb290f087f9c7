// `sluice data make NAME.csv` from outside: records of pictures in a table, in
// parts, taken up again, and as those of a folder; what is wrong with them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "io/files/csv.h"
#include "io/files/file.h"
#include "io/files/record.h"
#include "io/records/tf_example.h"
#include "tests/support/data_program.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::Contains;
using testing::DataObject;
using testing::RandomPng;
using testing::RunData;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteFile;

struct Labelled {
  std::string bytes, label;
  bool operator==(const Labelled&) const = default;
};
// By their names from the table's folder on.
using Pictures = std::map<std::string, Labelled>;

// What is in the shards of a part; labels as numbers, or by their names.
Pictures Made(const std::string& out, const std::string& part, bool named) {
  Pictures pictures;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(part + "-") || name.ends_with(".idx")) continue;
    const std::string file = TextOf(entry.path());
    RecordReader reader(file);
    for (std::string_view payload; reader.Next(&payload).ValueOrThrow();) {
      const auto example = TfExample::Parse(payload).ValueOrThrow();
      const std::string label =
          named
              ? std::string(example.Bytes("image/class/text").ValueOrThrow())
              : std::to_string(example.Int("image/class/label").ValueOrThrow());
      const bool added =
          pictures
              .emplace(
                  example.Bytes("image/filename").ValueOrThrow(),
                  Labelled{std::string(
                               example.Bytes("image/encoded").ValueOrThrow()),
                           label})
              .second;
      CHECK(added);
    }
  }
  return pictures;
}

std::string Table(const Pictures& pictures, const std::string& end) {
  std::string csv;
  for (const auto& [name, picture] : pictures) {
    csv += CsvField(name) + "," + CsvField(picture.label) + end;
  }
  return csv;
}

TEST_CASE("each picture of a table is in one record, with its label") {
  std::mt19937 random(1);
  const Strings names = {"a.png",          "b c.png",   "d, e.png",
                         "\"f\".png",      "日本.png",  "sub/g.png",
                         "two\nlines.png", "../up.png", "no ending"};
  for (const auto& [end, mark] :
       {std::pair("\n", ""), {"\r\n", ""}, {"\r\n", "\xef\xbb\xbf"}}) {
    for (const bool named : {false, true}) {
      const TemporaryFolder folder;
      Pictures pictures;
      for (const std::string& name : names) {
        Labelled& picture = pictures[name];
        picture.bytes = RandomPng(random);
        picture.label = named ? Strings{"cat", "ant, red", "Dog"}[random() % 3]
                              : std::to_string(random() % 5);
        WriteFile(folder / "in/" + name, picture.bytes);
      }
      const std::string table = folder / "in/list.csv", out = folder / "out";
      WriteFile(table, mark + ("file,label" + std::string(end)) +
                           Table(pictures, end));
      const Strings make = {"make", table, out, "--shards", "3"};
      const auto made = RunData(make);
      REQUIRE_MESSAGE(made.code == 0, made.err);
      CHECK(Contains(made.err, "'file,label' is the heading"));
      CHECK(Made(out, "train", named) == pictures);
      std::set<std::string> classes;
      std::string lines;
      for (const auto& [name, picture] : pictures) {
        classes.insert(picture.label);
      }
      for (const std::string& name : classes) lines += name + "\n";
      CHECK(fs::exists(out + "/labels.txt") == named);
      if (named) CHECK(TextOf(out + "/labels.txt") == lines);
      CHECK(DataObject({"check", out})["records"] == names.size());
      // Taken up: what is there is kept, what is not is written.
      const std::string shard = out + "/train-00001-of-00003";
      const std::string bytes = TextOf(shard);
      CHECK(DataObject(make)["kept"] == 3);
      fs::remove(shard);
      CHECK(DataObject(make)["kept"] == 2);
      CHECK(TextOf(shard) == bytes);
      // A label that has changed is another picture.
      pictures["a.png"].label = named ? "Dog" : "9";
      pictures["b c.png"].label = named ? "cat" : "8";
      WriteFile(table, Table(pictures, end));
      const Strings anew = {"make", table, out, "--shards", "3"};
      CheckDataError(anew, 1, "was made from other pictures");
    }
  }
}

TEST_CASE("a table of a folder's labels.csv makes the same records") {
  std::mt19937 random(2);
  const TemporaryFolder folder;
  std::string csv;
  for (int i = 0; i < 12; ++i) {
    WriteFile(folder / fmt::format("in/{}.png", i), RandomPng(random));
    csv += fmt::format("{}.png,{}\n", i, i % 4);
  }
  WriteFile(folder / "in/labels.csv", csv);
  const auto files = [&](const std::string& out) {
    std::map<std::string, std::string> bytes;
    for (const auto& entry : fs::directory_iterator(folder / out)) {
      bytes[entry.path().filename()] = TextOf(entry.path());
    }
    CHECK(bytes.erase("data.lock") == 1);
    return bytes;
  };
  DataObject({"make", folder / "in", folder / "a"});
  DataObject({"make", folder / "in/labels.csv", folder / "b"});
  CHECK(files("a") == files("b"));
}

TEST_CASE("a second part's names are numbered by the first's") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  for (const char* name : {"1.png", "2.png", "3.png"}) {
    WriteFile(folder / name, RandomPng(random));
  }
  WriteFile(folder / "train.csv", "1.png,bee\n2.png,ant\n3.png,cat\n");
  WriteFile(folder / "val.csv", "1.png,cat\n");
  const std::string out = folder / "out";
  DataObject({"make", folder / "train.csv", out});
  DataObject({"make", folder / "val.csv", out, "--part", "validation"});
  CHECK(TextOf(out + "/labels.txt") == "ant\nbee\ncat\n");
  CHECK(Made(out, "validation", false).at("1.png").label == "2");
  WriteFile(folder / "test.csv", "1.png,dog\n");
  CheckDataError({"make", folder / "test.csv", out, "--part", "test"}, 1,
                 "test.csv', line 1: training had no class of the name 'dog'; "
                 "the classes of training are those of");
}

TEST_CASE("what is wrong with a table ends the run before it writes") {
  std::mt19937 random(4);
  const TemporaryFolder folder;
  WriteFile(folder / "a.png", RandomPng(random));
  WriteFile(folder / "none.png", "GIF");
  const std::string table = folder / "list.csv", out = folder / "out";
  for (const auto& [csv, said] :
       {std::pair("a.png,cat\ngone.png,cat\n", "gone.png"),
        {"a.png,cat\ngone.png,cat\n", "1 of 2 pictures in '"},
        {"a.png,cat\nnone.png,cat\n", "none.png"},
        {"a.png,cat\n/a.png,cat\n", "line 2: '/a.png' begins at the root"},
        {"a.png,cat\n./a.png,dog\n", "line 2: './a.png' is in line 1 already"},
        {"a.png,cat\nb.png,3\n", "line 2: got the number '3'"},
        {"a.png,\"two\nlines\"\n", "a line ends within the name of the class"},
        {"a.png\n", "line 1: wanted FILE,LABEL"},
        {"", "no images in"}}) {
    CAPTURE(csv);
    WriteFile(table, csv);
    CheckDataError({"make", table, out}, 1, said);
    CHECK_FALSE(fs::exists(out));
  }
  CheckDataError({"make", folder / "gone.csv", out}, 1, "gone.csv");
}

}  // namespace
}  // namespace sluice

#endif  // SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
