// Tables in CSV files as datasets, against tables that are written here and
// read here, a byte at a time.
#include "io/records/csv_dataset.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "io/files/file.h"
#include "tests/support/compressed.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::Once;
using testing::TemporaryFolder;
using Strings = std::vector<std::string>;
using Table = std::vector<Strings>;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<Example> Read(Iterator* iterator, size_t most = SIZE_MAX) {
  std::vector<Example> examples;
  Example example;
  while (examples.size() < most && iterator->Next(&example).ValueOrThrow()) {
    examples.push_back(example);
  }
  return examples;
}

std::vector<Example> Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

// --- An independent writer and reader ----------------------------------------

std::string WrittenRow(const Strings& row, char separator,
                       std::mt19937& random) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0) text += separator;
    const bool quoted = row[i].find_first_of("\"\r\n") != std::string::npos ||
                        row[i].find(separator) != std::string::npos ||
                        (row.size() == 1 && row[i].empty()) || Once(random, 4);
    if (!quoted) {
      text += row[i];
      continue;
    }
    text += '"';
    for (const char c : row[i]) text += c == '"' ? "\"\"" : std::string(1, c);
    text += '"';
  }
  return text + (Once(random, 2) ? "\n" : "\r\n");
}

// Of what WrittenRow writes.
Table ReadBack(const std::string& text, char separator) {
  Table table;
  Strings row;
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == separator || c == '\n') {
      row.push_back(field);
      field.clear();
      if (c == '\n') {
        table.push_back(row);
        row.clear();
      }
    } else if (c != '\r') {
      field += c;
    }
  }
  return table;
}

enum class Kind { kFloat, kDouble, kByte, kInt, kFlag, kWord, kText };

const Strings& Words() {
  static const Strings words = {"ant", "bee", "a \"cat\"", "dog, big"};
  return words;
}

std::string RandomValue(Kind kind, std::mt19937& random) {
  switch (kind) {
    case Kind::kFloat:
    case Kind::kDouble:
      return fmt::format(
          "{}.{}e{}", static_cast<int>(Below(random, 2001)) - 1000,
          Below(random, 1'000'000), static_cast<int>(Below(random, 41)) - 20);
    case Kind::kByte:
      return std::to_string(Below(random, 256));
    case Kind::kInt:
      return std::to_string(testing::RandomInt(random));
    case Kind::kFlag:
      return Once(random, 2) ? "1" : "False";
    case Kind::kWord:
      return Words()[Below(random, Words().size())];
    case Kind::kText:
      break;
  }
  static const Strings pieces = {"a", " ", ",", "\t", "\"", "\n", "\r\n", "é"};
  std::string text;
  for (size_t n = Below(random, 6); n > 0; --n) {
    text += pieces[Below(random, pieces.size())];
  }
  return text;
}

// The value in the tensor, as RandomValue wrote it.
void CheckValue(const Tensor& tensor, Kind kind, const std::string& value) {
  CAPTURE(value);
  if (kind == Kind::kText) {
    REQUIRE(tensor.shape() == Shape{static_cast<int64_t>(value.size())});
    CHECK(BytesOf(tensor) == value);
    return;
  }
  REQUIRE(tensor.shape() == Shape{});
  switch (kind) {
    case Kind::kFloat:
      CHECK(*tensor.data<float>() == std::strtof(value.c_str(), nullptr));
      break;
    case Kind::kDouble:
      CHECK(*tensor.data<double>() == std::strtod(value.c_str(), nullptr));
      break;
    case Kind::kByte:
      CHECK(*tensor.data<uint8_t>() == std::atoi(value.c_str()));
      break;
    case Kind::kInt:
      CHECK(*tensor.data<int64_t>() ==
            std::strtoll(value.c_str(), nullptr, 10));
      break;
    case Kind::kFlag:
      CHECK(*tensor.data<bool>() == (value == "1"));
      break;
    default:
      CHECK(Words()[static_cast<size_t>(*tensor.data<int64_t>())] == value);
  }
}

CsvColumn ColumnOf(const std::string& name, Kind kind) {
  switch (kind) {
    case Kind::kFloat:
      return {.name = name, .missing = -1.5};
    case Kind::kDouble:
      return {.name = name, .dtype = DType::kFloat64, .missing = -1.5};
    case Kind::kByte:
      return {.name = name, .dtype = DType::kUInt8, .missing = 7};
    case Kind::kInt:
      return {.name = name, .dtype = DType::kInt64, .missing = 7};
    case Kind::kFlag:
      return {.name = name, .dtype = DType::kBool, .missing = 1};
    case Kind::kWord:
      return {.name = name, .missing = 2, .words = Words()};
    case Kind::kText:
      break;
  }
  return {.name = name, .text = true};
}

std::string MissingAs(Kind kind) {
  switch (kind) {
    case Kind::kFloat:
    case Kind::kDouble:
      return "-1.5";
    case Kind::kByte:
    case Kind::kInt:
      return "7";
    case Kind::kFlag:
      return "1";
    case Kind::kWord:
      return Words()[2];
    case Kind::kText:
      break;
  }
  return "";
}

// A table of random columns in several files, and how it is read.
struct RandomTables {
  TemporaryFolder dir;
  Strings header, paths;
  std::vector<Kind> kinds;
  Table rows;  // of all files
  CsvOptions options;
  std::vector<size_t> read;  // columns

  explicit RandomTables(std::mt19937& random) {
    for (size_t i = 0; i < 1 + Below(random, 6); ++i) {
      header.push_back(
          fmt::format("{} {}", Once(random, 5) ? "a,\"b\"" : "c", i));
      kinds.push_back(static_cast<Kind>(Below(random, 7)));
    }
    const char separator = Once(random, 3) ? ';' : Once(random, 2) ? '\t' : ',';
    if (separator == ';') options.separator = ';';
    const bool headed = !Once(random, 4);
    if (!headed) options.header = header;
    options.missing = {"", "NA"};
    for (size_t file = 0; file < 1 + Below(random, 3); ++file) {
      AddFile(separator, headed, random);
    }
    for (size_t i = 0; i < header.size(); ++i) {
      if (!read.empty() && Once(random, 4)) continue;
      read.push_back(i);
      options.columns.push_back(ColumnOf(header[i], kinds[i]));
    }
    std::shuffle(options.columns.begin(), options.columns.end(), random);
  }

  void AddFile(char separator, bool headed, std::mt19937& random) {
    std::string text = Once(random, 4) ? "\xef\xbb\xbf" : "";
    const std::string mark = text;
    if (headed) text += WrittenRow(header, separator, random);
    Table wanted;
    for (size_t n = Below(random, 20); n > 0; --n) {
      Strings row, values;
      for (const Kind kind : kinds) {
        const bool missing = kind != Kind::kText && Once(random, 6);
        values.push_back(missing ? MissingAs(kind) : RandomValue(kind, random));
        row.push_back(!missing ? values.back() : Once(random, 2) ? " " : "NA");
      }
      text += WrittenRow(row, separator, random);
      wanted.push_back(row);
      rows.push_back(values);
    }
    if (headed) wanted.insert(wanted.begin(), header);
    REQUIRE(ReadBack(text.substr(mark.size()), separator) == wanted);
    if (Once(random, 2) && text.ends_with("\n") && !text.ends_with("\r\n")) {
      text.pop_back();
    }
    const bool compressed = Once(random, 3);
    paths.push_back(dir / fmt::format("{}.{}{}", paths.size(),
                                      separator == '\t' ? "tsv" : "csv",
                                      compressed ? ".gz" : ""));
    Write(paths.back(),
          compressed ? testing::Compressed(text, Compression::kGzip) : text);
  }

  void Check(const std::vector<Example>& examples, size_t from) const {
    REQUIRE(examples.size() == rows.size() - from);
    for (size_t i = 0; i < examples.size(); ++i) {
      REQUIRE(examples[i].size() == read.size());
      for (const size_t column : read) {
        CheckValue(examples[i][header[column]], kinds[column],
                   rows[from + i][column]);
      }
    }
  }
};

TEST_CASE("random tables in files, read whole, resumed and on threads") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    RandomTables tables(random);
    const Dataset dataset = datasets::Csv(tables.paths, tables.options);
    CHECK(dataset.cardinality() == kUnknownCardinality);
    tables.Check(Read(dataset), 0);
    tables.options.values.threads = 3;
    tables.Check(Read(datasets::Csv(tables.paths, tables.options)), 0);
    const size_t stop = Below(random, tables.rows.size() + 1);
    Iterator begun = dataset.MakeIterator();
    REQUIRE(Read(&begun, stop).size() == stop);
    Iterator resumed = dataset.MakeIterator();
    REQUIRE(resumed.Restore(begun.SavePosition()).ok());
    tables.Check(Read(&resumed), stop);
    // Behind a Shuffle, too.
    const Dataset shuffled = dataset.Shuffle(50, seed).Repeat(2);
    const std::vector<Example> all = Read(shuffled);
    REQUIRE(all.size() == 2 * tables.rows.size());
    Iterator half = shuffled.MakeIterator();
    const size_t at = Below(random, all.size() + 1);
    Read(&half, at);
    Iterator rest = shuffled.MakeIterator();
    REQUIRE(rest.Restore(half.SavePosition()).ok());
    const std::vector<Example> others = Read(&rest);
    REQUIRE(others.size() == all.size() - at);
    for (size_t i = 0; i < others.size(); ++i) {
      for (const auto& [name, tensor] : others[i]) {
        CHECK(tensor.BitEqual(all[at + i][name]));
      }
    }
  }
}

TEST_CASE("damaged tables are rows or an error that names the file") {
  int errors = 0, whole = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    RandomTables tables(random);
    for (const std::string& path : tables.paths) {
      std::string bytes = FileSystem::Posix().Read(path).ValueOrThrow();
      if (bytes.empty()) continue;
      const size_t at = Below(random, bytes.size());
      if (Once(random, 3)) {
        bytes.resize(at);
      } else {
        bytes[at] ^= static_cast<char>(1 << Below(random, 8));
      }
      Write(path, bytes);
    }
    const std::string error =
        ErrorOf([&] { Read(datasets::Csv(tables.paths, tables.options)); });
    if (error == "(no error)") {
      ++whole;
      continue;
    }
    ++errors;
    CHECK(Contains(error, tables.dir.path()));
  }
  CHECK(errors > 100);
  CHECK(whole > 20);
}

}  // namespace
}  // namespace sluice
