// Lines against a loop over the bytes; plain and gzip, damaged and shrinking
// files, lines that are too long.
#include "io/files/line_stream.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/support/compressed.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/watched_files.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Compressed;
using testing::Contains;
using testing::Once;
using testing::Pieces;
using testing::RandomBytes;
using testing::TemporaryFolder;
using testing::WatchedFiles;

using Lines = std::vector<std::string>;

constexpr size_t kMiB = size_t{1} << 20;
const std::string kMark = "\xef\xbb\xbf";

// Byte by byte.
Lines LinesOf(const std::string& text) {
  Lines lines;
  std::string line;
  bool open = false;
  for (size_t i = text.compare(0, 3, kMark) == 0 ? 3 : 0; i < text.size();
       ++i) {
    const bool pair = text.compare(i, 2, "\r\n") == 0;
    if (text[i] == '\n' || pair) {
      lines.push_back(line);
      line.clear();
      open = false;
      if (pair) ++i;
    } else {
      line += text[i];
      open = true;
    }
  }
  if (open) lines.push_back(line);
  return lines;
}

// Lines of all lengths, those around the reader's pieces too.
std::string RandomText(std::mt19937& random, size_t pieces) {
  constexpr std::array<const char*, 10> kPieces = {
      "a", " ", "\r", "\n", "\r\n", "\n", "\xc3\xa9", "\xff", "xyz", "\r\r\n"};
  std::string text;
  if (Once(random, 3)) text += kMark;
  while (pieces-- > 0) {
    text += kPieces[Below(random, kPieces.size())];
    if (Once(random, 20)) text += kMark;
    if (Once(random, 10)) text += '\0';
    if (Once(random, 40)) text += std::string(4080 + Below(random, 30), 'l');
  }
  return text;
}

std::unique_ptr<LineStream> Opened(FileSystem& files,
                                   size_t longest = LineStream::kLongest) {
  return LineStream::Open("f", files, longest).ValueOrThrow();
}

// What is read until the end or the first error.
struct Outcome {
  Lines lines;
  Status error;

  explicit Outcome(LineStream& stream) {
    std::string line;
    for (;;) {
      const auto more = stream.Next(&line);
      error = more.status();
      if (!more.ok() || !*more) return;
      lines.push_back(line);
    }
  }
};

Lines ReadAll(const std::string& file, size_t morsel = SIZE_MAX) {
  WatchedFiles files(morsel);
  files.Write("f", file);
  const auto stream = Opened(files);
  const Outcome outcome(*stream);
  REQUIRE_MESSAGE(outcome.error.ok(), outcome.error.message());
  CHECK(files.most < kMiB);
  std::string line;
  CHECK(!*stream->Next(&line));  // it stays at the end
  return outcome.lines;
}

TEST_CASE("ends of lines, the last line and byte order marks") {
  CHECK(ReadAll("").empty());
  CHECK((ReadAll("a") == Lines{"a"}));
  CHECK((ReadAll("a\n") == Lines{"a"}));
  CHECK((ReadAll("\n") == Lines{""}));
  CHECK((ReadAll("a\r\n\r\nb\n\nc") == Lines{"a", "", "b", "", "c"}));
  CHECK((ReadAll("a\rb\r\r\nc\r") == Lines{"a\rb\r", "c\r"}));
  CHECK(ReadAll(kMark).empty());
  CHECK((ReadAll(kMark + "\n") == Lines{""}));
  CHECK((ReadAll(kMark + kMark + "a\n" + kMark) == Lines{kMark + "a", kMark}));
  CHECK((ReadAll("\xef\xbb\n") == Lines{"\xef\xbb"}));
  CHECK((ReadAll(Compressed("", Compression::kGzip)).empty()));
}

TEST_CASE("random texts, plain and gzip, in morsels and whole") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::string text = RandomText(random, Below(random, 300));
    const size_t morsel = Once(random, 2) ? SIZE_MAX : 1 + Below(random, 500);
    CHECK((ReadAll(text, morsel) == LinesOf(text)));
    const Pieces gzip(text, 1 + Below(random, 4), Compression::kGzip, random);
    CHECK((ReadAll(gzip.bytes, morsel) == LinesOf(text)));
  }
}

TEST_CASE("ends at every place around the end of a piece") {
  for (const size_t piece : {4'096, 12'288, 258'048, 520'192}) {
    for (size_t at = piece - 3; at <= piece + 1; ++at) {
      for (const std::string end : {"\n", "\r\n", "\r\r\n", "\r"}) {
        const std::string text = fmt::format("{:a<{}}{}b{}", "", at, end, end);
        CAPTURE(at);
        CHECK((ReadAll(text) == LinesOf(text)));
        CHECK((ReadAll(Compressed(text, Compression::kGzip, 1)) ==
               LinesOf(text)));
      }
    }
  }
}

TEST_CASE("skipping and reading in turn give what reading alone gives") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::string text = RandomText(random, Below(random, 200));
    const Lines lines = LinesOf(text);
    WatchedFiles files;
    files.Write("f", seed % 2 == 0
                         ? text
                         : Pieces(text, 2, Compression::kGzip, random).bytes);
    const auto stream = Opened(files);
    std::string line;
    for (size_t at = 0;;) {
      const size_t n = Below(random, 4);
      const size_t there = std::min(n, lines.size() - at);
      REQUIRE(*stream->Skip(static_cast<int64_t>(n)) ==
              static_cast<int64_t>(there));
      at += there;
      REQUIRE(*stream->Next(&line) == (at < lines.size()));
      if (at == lines.size()) break;
      REQUIRE(line == lines[at]);
      ++at;
      REQUIRE(stream->Place() == fmt::format("'f', line {}", at));
    }
  }
}

TEST_CASE("a line of as many bytes as are allowed, and of one more") {
  // Around the end of the reader's first piece, too.
  for (const size_t longest : {0, 1, 5, 4'091, 4'092, 4'093, 4'095, 5'000}) {
    for (const std::string end : {"", "\n", "\r\n"}) {
      for (const std::string& mark : {std::string(), kMark}) {
        for (const bool gzip : {false, true}) {
          CAPTURE(longest);
          const auto read = [&](const std::string& text) {
            WatchedFiles files(3);
            files.Write("f",
                        gzip ? Compressed(text, Compression::kGzip) : text);
            return Outcome(*Opened(files, longest));
          };
          const std::string text =
              fmt::format("{}{:x<{}}{}", mark, "", longest, end);
          CHECK(read(text).error.ok());
          CHECK((read(text).lines == LinesOf(text)));
          const Outcome over = read(mark + "\nx" + text.substr(mark.size()));
          CHECK((over.lines == Lines{""}));
          CHECK(over.error.code() == Code::kDataLoss);
          CHECK(over.error.message() ==
                fmt::format("'f', line 2: the line is longer than {} bytes",
                            longest));
        }
      }
    }
  }
  WatchedFiles files;
  files.Write("f", "some text\n");
  CHECK((Outcome(*Opened(files, SIZE_MAX)).lines == Lines{"some text"}));
}

TEST_CASE("a line without end takes little memory") {
  const std::string endless(20 * kMiB, 'x');
  for (const bool gzip : {false, true}) {
    WatchedFiles files;
    files.Write("f",
                gzip ? Compressed(endless, Compression::kGzip, 1) : endless);
    const auto stream = Opened(files, 1000);
    std::string line;
    CHECK(Contains(stream->Next(&line).status().message(), "'f', line 1: "));
    CHECK(line.capacity() < kMiB);
    CHECK(files.bytes < kMiB);
    CHECK(Opened(files, 1000)->Skip(1).status().code() == Code::kDataLoss);
  }
}

TEST_CASE("a gzip file cut off at any byte, and with a flipped bit") {
  std::mt19937 random(1);
  const std::string text = RandomText(random, 60);
  const Lines lines = LinesOf(text);
  const Pieces gzip(text, 2, Compression::kGzip, random);
  for (size_t n = 2; n < gzip.bytes.size(); ++n) {
    CAPTURE(n);
    WatchedFiles files(1 + Below(random, 50));
    files.Write("f", gzip.bytes.substr(0, n));
    const Outcome outcome(*Opened(files));
    if (n == gzip.begins[1]) {
      CHECK((outcome.lines == LinesOf(text.substr(0, gzip.from[1]))));
      continue;
    }
    CHECK(outcome.error.message() ==
          fmt::format("'f', byte {}: the gzip data stop early; the file is "
                      "truncated",
                      n));
    CHECK(outcome.lines.size() <= lines.size());
    CHECK(
        std::equal(outcome.lines.begin(), outcome.lines.end(), lines.begin()));
  }
  // In the magic number a flipped bit makes a text of it.
  for (size_t bit = 16; bit < 8 * gzip.bytes.size(); ++bit) {
    CAPTURE(bit);
    std::string bad = gzip.bytes;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WatchedFiles files;
    files.Write("f", bad);
    const Outcome outcome(*Opened(files));
    if (outcome.error.ok()) {
      CHECK((outcome.lines == lines));
    } else {
      CHECK(outcome.error.code() == Code::kDataLoss);
      CHECK(outcome.error.message().starts_with("'f', byte "));
    }
  }
}

TEST_CASE("garbage behind a gzip file") {
  for (const std::string garbage : {"x", "\n", "more\n"}) {
    WatchedFiles files;
    files.Write("f", Compressed("a\nb\n", Compression::kGzip) + garbage);
    const Outcome outcome(*Opened(files));
    CHECK(outcome.error.code() == Code::kDataLoss);
    CHECK(Contains(outcome.error.message(), "the gzip data "));
  }
}

TEST_CASE("a file that shrinks while it is read") {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::string text;
    while (text.size() < 30'000) text += RandomText(random, 20) + "\n";
    const bool gzip = Once(random, 2);
    const std::string file =
        gzip ? Compressed(text, Compression::kGzip, 0) : text;
    WatchedFiles files;
    files.Write("f", file);
    const auto stream = Opened(files);
    std::string line;
    REQUIRE(*stream->Next(&line));
    const size_t n = Below(random, 10'000);
    files.Write("f", file.substr(0, n));
    const Outcome outcome(*stream);
    CHECK(outcome.error.code() == Code::kDataLoss);
    CHECK(
        Contains(outcome.error.message(),
                 fmt::format("the file ends here; it had {} bytes when it was "
                             "opened",
                             file.size())));
  }
}

TEST_CASE("a file on the disk that Python's gzip made") {
  const std::string file(
      "\x1f\x8b\x08\x00\x01\x00\x00\x00\x02\xff\xcb\xcf\x4b\xe5\xe5\x2a\x29\xcf"
      "\xe7\x02\x00\x07\x57\x41\x38\x09\x00\x00\x00",
      29);
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "f");
  ThrowIfError(FileSystem::Posix().WriteAtomically(path, file));
  const auto stream = LineStream::Open(path).ValueOrThrow();
  CHECK((Outcome(*stream).lines == Lines{"one", "two"}));
  CHECK(LineStream::Open(path + ".none").status().code() == Code::kNotFound);
  CHECK(LineStream::Open(folder.path()).status().code() == Code::kDataLoss);
}

}  // namespace
}  // namespace sluice
