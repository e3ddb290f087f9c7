// Columns of CSV files: what their values become, which are inferred, and every
// error with its place.
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "io/records/csv_dataset.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using Strings = std::vector<std::string>;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<Example> Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  std::vector<Example> examples;
  Example example;
  while (iterator.Next(&example).ValueOrThrow()) examples.push_back(example);
  return examples;
}

// What a whole reading ends with.
std::string ErrorIn(const Dataset& dataset) {
  return ErrorOf([&] { Read(dataset); });
}

struct OneFile {
  TemporaryFolder dir;
  std::string path = dir / "t.csv";
  explicit OneFile(const std::string& text) { Write(path, text); }
  Dataset Csv(const CsvOptions& options) const {
    return datasets::Csv({path}, options);
  }
  std::string ErrorWith(const CsvOptions& options) const {
    return ErrorOf([&] { Csv(options); });
  }
};

TEST_CASE("a label, and a name that would be taken twice") {
  const OneFile file("a,kind,label\n1,2,3\n");
  const Example example =
      file.Csv({.columns = {{.name = "a"}}, .label = "kind"}).First();
  CHECK(example.size() == 2);
  CHECK(*example["a"].data<float>() == 1);
  CHECK(*example["label"].data<int64_t>() == 2);
  CHECK(*file.Csv({.columns = {{.name = "a", .dtype = DType::kInt8}},
                   .label = "a"})
             .First()["label"]
             .data<int8_t>() == 1);
  CHECK(Contains(
      file.ErrorWith({.columns = {{.name = "label"}}, .label = "kind"}),
      "Csv: column 'kind' is the label, and another one is called "
      "'label'"));
}

TEST_CASE("columns are inferred only where that is asked for") {
  const OneFile file(
      "whole,real,wide,text,gaps,said\n"
      "1,1,1,7,,1\n"
      "-2,2.5,1e300,x,5,2\n"
      "x,NaN,1,\"\n\",,3\n");
  CHECK(Contains(file.ErrorWith({}), "Csv: no columns: say which are read"));
  const Dataset two =
      file.Csv({.columns = {{.name = "said", .dtype = DType::kUInt8},
                            {.name = "gaps", .missing = 0}},
                .infer_rows = 2});
  const Example first = two.First();
  CHECK(first["whole"].dtype() == DType::kInt64);
  CHECK(first["real"].dtype() == DType::kFloat32);
  CHECK(first["wide"].dtype() == DType::kFloat64);
  CHECK(BytesOf(first["text"]) == "7");
  CHECK(first["gaps"].dtype() == DType::kFloat32);
  CHECK(first["said"].dtype() == DType::kUInt8);
  CHECK(ErrorIn(two) == "'" + file.path +
                            "', line 4, row 3, column 1 'whole': 'x' is no "
                            "int64");
  // More rows than there are; a value that is missing later is an error.
  const Dataset all = file.Csv({.infer_rows = 100});
  CHECK(ErrorIn(all) == "'" + file.path +
                            "', line 2, row 1, column 5 'gaps': the value is "
                            "missing, and nothing was given to stand for it");
  CHECK(Contains(file.ErrorWith({.infer_rows = 1}),
                 "column 5 'gaps': the rows to infer from have no value"));
  CHECK(Contains(file.ErrorWith({.infer_rows = -1}), "got -1 rows"));
}

TEST_CASE("rows that are too short, too long, or hold no values") {
  const auto error = [](const std::string& rows) {
    const OneFile file("\nid,age\n" + rows);
    std::string text = ErrorIn(
        file.Csv({.columns = {{.name = "age", .dtype = DType::kUInt8}}}));
    const std::string place = "'" + file.path + "', ";
    if (text.starts_with(place)) return text.substr(place.size());
    return text;
  };
  CHECK(error("1,2\n\"3\n3\",4\n5\n") ==
        "line 6, row 3: 1 values, wanted 2: none for column 2 'age'");
  CHECK(error("1,2,\n") ==
        "line 3, row 1: 3 values, wanted 2: '' is behind column 2 'age', the "
        "last");
  CHECK(error("1,300\n") ==
        "line 3, row 1, column 2 'age': '300' is beyond "
        "uint8");
  CHECK(error("1,\"2\n") == "line 3: a quote is opened and never closed");
  CHECK(error("1,2\n1,2\"3\"\n").starts_with("line 4: a quote in the middle"));
  CHECK(error("1,2\n1,\"2\"3\n") ==
        "line 4: text behind a closing quote; wanted a comma or the end of the "
        "line");
  CHECK(error("1,2") == "(no error)");
  CHECK(error("") == "(no error)");
}

TEST_CASE("bad rows may be passed over, each known by its place") {
  const OneFile file("x\n0\nbad\n2\n3,4\n\"\"\n5\n");
  for (const int threads : {1, 4}) {
    CsvOptions options = {.columns = {{.name = "x", .dtype = DType::kInt32}},
                          .values = {.bad = std::make_shared<BadExamples>(5),
                                     .threads = threads}};
    std::vector<int64_t> values;
    for (const Example& example : Read(file.Csv(options))) {
      values.push_back(example["x"].IntAt(0));
    }
    CHECK(values == std::vector<int64_t>{0, 2, 5});
    const std::string place = "'" + file.path + "', ";
    CHECK(options.values.bad->messages() ==
          Strings{place + "line 3, row 2, column 1 'x': 'bad' is no int32",
                  place + "line 5, row 4: 2 values, wanted 1: '4' is behind "
                          "column 1 'x', the last",
                  place + "line 6, row 5, column 1 'x': the value is missing, "
                          "and nothing was given to stand for it"});
    // In another order, too, which comes before.
    options.values.bad = std::make_shared<BadExamples>(5);
    options.order = [](const Dataset& rows) { return rows.Shuffle(9, 1); };
    CHECK(Read(file.Csv(options)).size() == 3);
    CHECK(options.values.bad->count() == 3);
    options.values.bad = std::make_shared<BadExamples>(2);
    CHECK(Contains(ErrorIn(file.Csv(options)), "2 bad ones were passed over"));
  }
}

TEST_CASE("files that do not fit, and options that do not") {
  const OneFile file("a,b\n1,2\n");
  const CsvOptions a = {.columns = {{.name = "a"}}};
  CHECK(Contains(ErrorOf([&] { datasets::Csv({}, a); }), "no files"));
  CHECK(Contains(ErrorOf([&] { datasets::Csv({file.dir / "none"}, a); }),
                 "none"));
  CHECK(OneFile("").ErrorWith(a).ends_with(
      "empty; wanted a row of the columns' names"));
  CHECK(OneFile("\n\na,b,a\n")
            .ErrorWith(a)
            .ends_with("line 3: two columns have the name 'a'"));
  CHECK(Contains(file.ErrorWith({.columns = {{.name = "c"}}}),
                 "', line 1: there is no column 'c'"));
  CHECK(Contains(file.ErrorWith({.label = "c"}), "there is no column 'c'"));
  CHECK(Contains(file.ErrorWith({.columns = {{.name = "a"}, {.name = "a"}}}),
                 "column 'a' is named twice"));
  CHECK(Contains(
      file.ErrorWith({.columns = {{.name = "a", .dtype = DType::kFloat16}}}),
      "column 'a': values are not read as float16"));
  CHECK(Contains(
      file.ErrorWith(
          {.columns = {{.name = "a", .dtype = DType::kUInt8, .missing = -1}}}),
      "uint8 cannot hold the number -1"));
  CHECK(Contains(
      file.ErrorWith({.columns = {{.name = "a", .missing = 1, .text = true}}}),
      "text has no words and is never missing"));
  CHECK(Contains(
      file.ErrorWith({.columns = {{.name = "a", .words = {"x", "x"}}}}),
      "the word 'x' comes twice"));
  CHECK(Contains(file.ErrorWith({.columns = {{.name = "a"}}, .separator = '"'}),
                 "the separator is a quote"));
  CHECK(ErrorIn(file.Csv({.columns = {{.name = "a", .words = {"x", "y"}}}}))
            .ends_with("column 1 'a': '1' is none of its 2 words"));
  const std::string other = file.dir / "other.csv";
  Write(other, "b,a\n1,2\n");
  CHECK(Contains(ErrorIn(datasets::Csv({file.path, other}, a)),
                 "other.csv', line 1: the columns are 'b,a'; wanted those of"));

  // Positions are of these files, read like that.
  const std::string position = file.Csv(a).MakeIterator().SavePosition();
  CHECK(file.Csv({.label = "b"}).MakeIterator().Restore(position).ok());
  CsvOptions headless = a;
  headless.header = {"a", "b"};
  CHECK(!file.Csv(headless).MakeIterator().Restore(position).ok());
  Write(file.path, "a,b\n1,22\n");
  CHECK(!file.Csv(a).MakeIterator().Restore(position).ok());
}

}  // namespace
}  // namespace sluice
