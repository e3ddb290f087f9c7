// The CSV reader: each rule and each error by itself, random tables written in
// random ways, and damaged ones.
#include "io/files/csv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "tests/support/compressed.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using Table = std::vector<std::vector<std::string>>;

// Requires that the text is well-formed.
Table Fields(std::string_view text, char separator = ',') {
  Table table;
  for (CsvRow& row : ParseCsv(text, "f", separator).ValueOrThrow()) {
    table.push_back(std::move(row.fields));
  }
  return table;
}

TEST_CASE("rows and fields") {
  CHECK(Fields("").empty());
  CHECK((Fields("a") == Table{{"a"}}));
  CHECK((Fields("a,b\nc,d\n") == Table{{"a", "b"}, {"c", "d"}}));
  CHECK((Fields("a,b\nc,d") == Table{{"a", "b"}, {"c", "d"}}));
  CHECK((Fields(",\n,,") == Table{{"", ""}, {"", "", ""}}));
  CHECK((Fields(" a , b ") == Table{{" a ", " b "}}));
  CHECK((Fields("\xff\x80,\xc3\xa9") == Table{{"\xff\x80", "\xc3\xa9"}}));
}

TEST_CASE("lines end in LF, CR LF or CR, and empty ones are no rows") {
  const Table want = {{"a"}, {"b"}};
  for (const char* text :
       {"a\nb\n", "a\r\nb\r\n", "a\rb\r", "a\n\nb", "\na\r\n\r\n\nb\n\n",
        "\r\r\na\r\r\nb", "a\n\rb\n\r"}) {
    CAPTURE(text);
    CHECK((Fields(text) == want));
  }
  CHECK(Fields("\n\r\n\r").empty());
  CHECK((Fields(" \n") == Table{{" "}}));
}

TEST_CASE("quotes hold commas, line ends and quotes") {
  CHECK((Fields("\"a,b\",c") == Table{{"a,b", "c"}}));
  CHECK((Fields("\"\",\"\"\n\"\"") == Table{{"", ""}, {""}}));
  CHECK((Fields("\"\"\"\"") == Table{{"\""}}));
  CHECK((Fields("\"\"\"a\"\"\"\"\",b") == Table{{"\"a\"\"", "b"}}));
  CHECK((Fields("\"a\r\nb\rc\nd\"\r\ne") == Table{{"a\r\nb\rc\nd"}, {"e"}}));
  CHECK((Fields("a,\"b\"\r\n") == Table{{"a", "b"}}));
}

TEST_CASE("between tabs commas are text, between commas tabs") {
  CHECK((Fields("a,b\tc\r\n\t\n", '\t') == Table{{"a,b", "c"}, {"", ""}}));
  CHECK((Fields("\"a\tb\"\t\"c\"\"\"", '\t') == Table{{"a\tb", "c\""}}));
  CHECK((Fields("a\tb,c") == Table{{"a\tb", "c"}}));
  const auto error = [](char separator) {
    return ParseCsv("\"a\"x", "f", separator).status().message();
  };
  CHECK(error('\t').ends_with("wanted a tab or the end of the line"));
  CHECK(error(',').ends_with("wanted a comma or the end of the line"));
  CHECK(!ParseCsv("\"a\",b", "f", '\t').ok());
  CHECK(!ParseCsv("\"a\"\tb", "f", ',').ok());
}

TEST_CASE("a byte order mark at the start is dropped, others are text") {
  const std::string mark = "\xef\xbb\xbf";
  CHECK(Fields(mark).empty());
  CHECK((Fields(mark + "a") == Table{{"a"}}));
  CHECK((Fields(mark + "\"a,b\"\n" + mark) == Table{{"a,b"}, {mark}}));
  CHECK((Fields(mark + mark) == Table{{mark}}));
  CHECK((Fields("\xef\xbb") == Table{{"\xef\xbb"}}));
}

TEST_CASE("rows know their lines and their text") {
  const std::string text = "\n\"a\n\r\r\nb\",1\r\rc , 2\n\n\"d\"\n";
  const auto rows = *ParseCsv(text, "f");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].line == 2);
  CHECK(rows[0].text == "\"a\n\r\r\nb\",1");
  CHECK(rows[1].line == 7);
  CHECK(rows[1].text == "c , 2");
  CHECK(rows[2].line == 9);
  CHECK(rows[2].text == "\"d\"");
  CHECK(ParseCsv("\xef\xbb\xbf"
                 "a",
                 "f")
            ->front()
            .text == "a");
}

TEST_CASE("what is malformed is told with its line") {
  constexpr std::string_view kOpen = "a quote is opened and never closed";
  constexpr std::string_view kBehind = "text behind a closing quote";
  constexpr std::string_view kMiddle = "a quote in the middle of a field";
  constexpr std::string_view kNul = "a NUL byte";
  struct Case {
    std::string_view text;
    int line;
    std::string_view what;
  };
  using namespace std::string_view_literals;
  for (const Case& bad : std::vector<Case>{{"\"", 1, kOpen},
                                           {"a,\"b", 1, kOpen},
                                           {"a\r\n\"b\n\nc\n", 2, kOpen},
                                           {"\"a\n\"\"\n", 1, kOpen},
                                           {"\"\"\"", 1, kOpen},
                                           {"\"a\"b", 1, kBehind},
                                           {"\"a\" ,b", 1, kBehind},
                                           {"x\n\"a\nb\" \"c\"", 3, kBehind},
                                           {"\"a\"\xef\xbb\xbf", 1, kBehind},
                                           {"a\"b\"", 1, kMiddle},
                                           {"a\rb, \"c\"", 2, kMiddle},
                                           {"a\"", 1, kMiddle},
                                           {"\0"sv, 1, kNul},
                                           {"a\r\nb\r\"\0\""sv, 3, kNul},
                                           {"\xff\xfe"
                                            "a\0,\0"sv,
                                            1, kNul}}) {
    CAPTURE(bad.text);
    const Status status = ParseCsv(bad.text, "x.csv").status();
    CHECK(status.code() == Code::kDataLoss);
    const std::string start = "'x.csv', line " + std::to_string(bad.line) +
                              ": " + std::string(bad.what);
    CAPTURE(status.message());
    CHECK(status.message().starts_with(start));
    CHECK(status.message().find('\n') == std::string::npos);
  }
}

// --- Random tables -----------------------------------------------------------

// A table, how it was written, and what is to be known of its rows.
struct Written {
  char separator = ',';
  Table table;
  std::string text;
  std::vector<int64_t> lines;
  std::vector<std::string> rows;
};

constexpr std::array<const char*, 13> kPieces = {
    "a",  "b",  "Z",  "7",    " ",        ",",           "\t",
    "\"", "\r", "\n", "\r\n", "\xc3\xa9", "\xe6\x97\xa5"};

std::string RandomField(CounterRandom& random) {
  std::string field;
  for (uint32_t n = random.Below(7); n > 0; --n) {
    field += kPieces[random.Below(kPieces.size())];
  }
  return field;
}

// In quotes where that is needed, and sometimes where it is not.
std::string WrittenField(const std::string& field, char separator, bool alone,
                         CounterRandom& random) {
  const bool needed = field.find(separator) != std::string::npos ||
                      field.find_first_of("\"\r\n") != std::string::npos ||
                      (alone && field.empty());
  if (!needed && random.Below(3) != 0) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// The line of what is behind the text. LF ends one; CR does unless LF follows.
int64_t LineBehind(const std::string& text) {
  int64_t line = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool pair = text.compare(i, 2, "\r\n") == 0;
    if (text[i] == '\n' || (text[i] == '\r' && !pair)) ++line;
  }
  return line;
}

Written RandomTable(CounterRandom& random) {
  Written all;
  if (random.Below(2) == 0) all.separator = '\t';
  const auto line_end = [&] { return random.Below(2) == 0 ? "\n" : "\r\n"; };
  for (uint32_t rows = random.Below(7); rows > 0; --rows) {
    while (random.Below(8) == 0) all.text += line_end();  // empty lines
    all.lines.push_back(LineBehind(all.text));
    const uint32_t width = 1 + random.Below(4);
    std::vector<std::string> fields;
    std::string row;
    for (uint32_t i = 0; i < width; ++i) {
      if (i > 0) row += all.separator;
      fields.push_back(RandomField(random));
      row += WrittenField(fields.back(), all.separator, width == 1, random);
    }
    all.text += row;
    all.rows.push_back(row);
    all.table.push_back(std::move(fields));
    if (rows > 1 || random.Below(2) == 0) all.text += line_end();
  }
  if (random.Below(4) == 0) all.text.insert(0, "\xef\xbb\xbf");
  return all;
}

TEST_CASE("random tables come back as they were written") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CounterRandom random(HashKey(1, seed));
    const Written written = RandomTable(random);
    CAPTURE(seed);
    CAPTURE(written.text);
    const auto rows = ParseCsv(written.text, "f", written.separator);
    REQUIRE(rows.ok());
    REQUIRE(rows->size() == written.table.size());
    for (size_t i = 0; i < rows->size(); ++i) {
      const CsvRow& row = (*rows)[i];
      REQUIRE((row.fields == written.table[i]));
      REQUIRE(row.line == written.lines[i]);
      REQUIRE(row.text == written.rows[i]);
    }
  }
}

// As ParseCsv says, of bytes that come in pieces of any size.
TEST_CASE("pieces of a table are the whole table") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CounterRandom random(HashKey(3, seed));
    Written written = RandomTable(random);
    if (random.Below(3) == 0)
      written.text += random.Below(2) == 0 ? "\"" : "\r";
    CAPTURE(seed);
    CAPTURE(written.text);
    const auto whole = ParseCsv(written.text, "f", written.separator);
    CsvParser parser("f", written.separator);
    std::vector<CsvRow> rows;
    Status error;
    std::string_view rest = written.text;
    while (error.ok() && !rest.empty()) {
      const std::string piece(rest.substr(0, 1 + random.Below(4)));
      const auto used = parser.Take(piece);
      error = used.status();
      if (!error.ok()) break;
      REQUIRE((*used > 0 && *used <= piece.size()));
      rest.remove_prefix(*used);
      if (parser.whole()) rows.push_back(parser.row());
    }
    if (error.ok()) error = parser.End();
    if (error.ok() && parser.whole()) rows.push_back(parser.row());
    CHECK(error.message() == whole.status().message());
    if (!whole.ok()) continue;
    REQUIRE(rows.size() == whole->size());
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i].fields == (*whole)[i].fields);
      CHECK(rows[i].line == (*whole)[i].line);
    }
  }
}

TEST_CASE("a file's rows, plain and compressed, passed over or read") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CounterRandom random(HashKey(4, seed));
    const Written written = RandomTable(random);
    const testing::TemporaryFolder dir;
    const std::string path = dir / "f";
    const bool compressed = random.Below(2) == 0;
    REQUIRE(FileSystem::Posix()
                .WriteAtomically(
                    path, compressed ? testing::Compressed(written.text,
                                                           Compression::kGzip)
                                     : written.text)
                .ok());
    const auto size = static_cast<int64_t>(written.table.size());
    const int64_t passed = random.Below(static_cast<uint32_t>(size + 2));
    auto stream = CsvStream::Open(path, written.separator).ValueOrThrow();
    CHECK(stream->Skip(passed).ValueOrThrow() == std::min(passed, size));
    CsvRow row;
    for (int64_t i = passed; i < size; ++i) {
      REQUIRE(stream->Next(&row).ValueOrThrow());
      CHECK(row.fields == written.table[static_cast<size_t>(i)]);
      CHECK(row.line == written.lines[static_cast<size_t>(i)]);
      CHECK(row.text.empty());
    }
    CHECK(!stream->Next(&row).ValueOrThrow());
  }
}

TEST_CASE("a row has a longest length, a file has none") {
  const testing::TemporaryFolder dir;
  const std::string path = dir / "f";
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "1234567,\"8\n\"\n";
  REQUIRE(FileSystem::Posix().WriteAtomically(path, text).ok());
  CsvRow row;
  auto fits =
      CsvStream::Open(path, ',', FileSystem::Posix(), 12).ValueOrThrow();
  CHECK(fits->Skip(200'000).ValueOrThrow() == 100'000);
  for (const uint64_t longest : {11, 8, 1}) {
    auto stream =
        CsvStream::Open(path, ',', FileSystem::Posix(), longest).ValueOrThrow();
    const Status error = stream->Next(&row).status();
    CHECK(error.code() == Code::kDataLoss);
    CHECK(error.message() == "'" + path + "', line 1: the row is longer than " +
                                 std::to_string(longest) + " bytes");
  }
}

// Some bytes changed, put in or taken out, or the end cut off.
std::string Damaged(std::string text, CounterRandom& random) {
  for (uint32_t n = 1 + random.Below(3); n > 0 && !text.empty(); --n) {
    const auto size = static_cast<uint32_t>(text.size());
    const uint32_t at = random.Below(size);
    switch (random.Below(5)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random.Below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random.Below(256));
        break;
      case 2:
        text.insert(at, kPieces[random.Below(kPieces.size())]);
        break;
      case 3:
        text.erase(at, 1 + random.Below(3));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

TEST_CASE("a field that begins as files do keeps its mark at the beginning") {
  const std::string mark = "\xef\xbb\xbf";
  for (const std::string& field :
       {mark, mark + "a", mark + mark, "a" + mark, std::string("\xef\xbb")}) {
    for (const std::string& before : {std::string(), mark}) {
      const auto rows =
          ParseCsv(before + CsvField(field) + "," + CsvField(field), "x.csv");
      REQUIRE(rows.ok());
      REQUIRE(rows->size() == 1);
      CHECK((*rows)[0].fields == std::vector<std::string>{field, field});
    }
  }
}

TEST_CASE("damaged tables are rows or an error") {
  int errors = 0, tables = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CounterRandom random(HashKey(2, seed));
    const Written whole = RandomTable(random);
    for (int i = 0; i < 5; ++i) {
      const std::string text = Damaged(whole.text, random);
      CAPTURE(text);
      const auto rows = ParseCsv(text, "x.csv", whole.separator);
      if (!rows.ok()) {
        ++errors;
        REQUIRE(rows.status().code() == Code::kDataLoss);
        REQUIRE(rows.status().message().starts_with("'x.csv', line "));
        continue;
      }
      ++tables;
      int64_t line = 0;
      for (const CsvRow& row : *rows) {
        REQUIRE(row.line > line);
        REQUIRE(!row.fields.empty());
        REQUIRE(!row.text.empty());
        line = row.line;
      }
      REQUIRE(line <= LineBehind(text));
    }
  }
  CHECK(errors > 1000);
  CHECK(tables > 1000);
}

}  // namespace
}  // namespace sluice
