// Records read in order, plain and compressed by zlib, gzip and Python, against
// what was written; damaged, cut off, shrinking and hostile files.
#include "io/records/record_stream.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>

#include "io/files/crc32c.h"
#include "io/files/record.h"
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

constexpr size_t kMiB = size_t{1} << 20;
constexpr std::array kFormats = {Compression::kNone, Compression::kGzip,
                                 Compression::kZlib};

// Records, and the file of them before it is compressed.
struct Records {
  std::vector<std::string> payloads;
  std::vector<uint64_t> begins;
  std::string file;

  void Add(std::string payload) {
    begins.push_back(file.size());
    AppendRecord(payload, &file);
    payloads.push_back(std::move(payload));
  }
  std::string Place(size_t i, Compression format) const {
    return fmt::format("'f', {}byte {}",
                       format == Compression::kNone ? "" : "decompressed ",
                       begins[i]);
  }
};

Records RandomRecords(std::mt19937& random, size_t count, size_t longest) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    const size_t size =
        Once(random, 3) ? 0 : Below(random, 1 + (longest >> i % 12));
    // Every other one is hard to compress.
    records.Add(Once(random, 2) ? RandomBytes(random, size)
                                : std::string(size, static_cast<char>(i)));
  }
  return records;
}

Records SmallRecords(std::mt19937& random) {
  Records records;
  for (const size_t size : {20, 0, 60, 1, 12}) {
    records.Add(RandomBytes(random, size));
  }
  return records;
}

std::string Stored(const std::string& file, Compression format,
                   std::mt19937& random) {
  if (format == Compression::kNone) return file;
  return Pieces(file, 1 + Below(random, 4), format, random).bytes;
}

std::unique_ptr<RecordFileStream> Opened(FileSystem& files) {
  return RecordFileStream::Open("f", files).ValueOrThrow();
}

// What is read until the end or the first error.
struct Outcome {
  std::vector<std::string> payloads;
  Status error;

  explicit Outcome(RecordFileStream& stream) {
    std::string payload;
    for (;;) {
      const auto more = stream.Next(&payload);
      error = more.status();
      if (!more.ok() || !*more) return;
      payloads.push_back(payload);
    }
  }

  bool IsStartOf(std::span<const std::string> all) const {
    return payloads.size() <= all.size() &&
           std::equal(payloads.begin(), payloads.end(), all.begin());
  }
};

Outcome Read(FileSystem& files) {
  auto stream = RecordFileStream::Open("f", files);
  REQUIRE_MESSAGE(stream.ok(), stream.status().message());
  Outcome outcome(**stream);
  // It stays so.
  std::string payload;
  const auto again = (*stream)->Next(&payload);
  CHECK(again.status().message() == outcome.error.message());
  if (again.ok()) CHECK(!*again);
  return outcome;
}

// An error that names the file, and what was read before it is right.
void CheckLoss(const Outcome& outcome, const Records& records) {
  CHECK(outcome.error.code() == Code::kDataLoss);
  CHECK(outcome.error.message().starts_with("'f', "));
  CHECK(outcome.IsStartOf(records.payloads));
}

TEST_CASE("records come back, plain and compressed, in morsels and whole") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const size_t longest = Once(random, 4) ? 300'000 : 3'000;
    const Records records =
        RandomRecords(random, Below(random, 40), longest + 1);
    WatchedFiles files(Once(random, 2) ? SIZE_MAX : 1 + Below(random, 10'000));
    const Compression format = kFormats[seed % kFormats.size()];
    files.Write("f", Stored(records.file, format, random));
    const Outcome outcome = Read(files);
    REQUIRE_MESSAGE(outcome.error.ok(), outcome.error.message());
    CHECK((outcome.payloads == records.payloads));
    CHECK(files.most < kMiB);
  }
}

TEST_CASE("every level, and thousands of records of no bytes") {
  std::mt19937 random(1);
  Records records = RandomRecords(random, 20, 500);
  for (int i = 0; i < 5000; ++i) records.Add("");
  for (const Compression format : {Compression::kGzip, Compression::kZlib}) {
    for (int level = 0; level <= 9; ++level) {
      CAPTURE(level);
      WatchedFiles files;
      files.Write("f", Compressed(records.file, format, level));
      const Outcome outcome = Read(files);
      CHECK(outcome.error.ok());
      CHECK((outcome.payloads == records.payloads));
    }
  }
}

TEST_CASE("skipping and reading in turn give what reading alone gives") {
  for (unsigned seed = 0; seed < 90; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Compression format = kFormats[seed % kFormats.size()];
    const Records records = RandomRecords(random, Below(random, 60),
                                          Once(random, 3) ? 50'000 : 3'000);
    WatchedFiles files(Once(random, 2) ? SIZE_MAX : 1 + Below(random, 5'000));
    files.Write("f", Stored(records.file, format, random));
    const auto stream = Opened(files);
    const size_t size = records.payloads.size();
    std::string payload;
    for (size_t at = 0;;) {
      if (Once(random, 2)) {
        const size_t n = Below(random, 6);
        const size_t there = std::min(n, size - at);
        REQUIRE(*stream->Skip(static_cast<int64_t>(n)) ==
                static_cast<int64_t>(there));
        at += there;
        if (there > 0)
          REQUIRE(stream->Place() == records.Place(at - 1, format));
      }
      REQUIRE(*stream->Next(&payload) == (at < size));
      if (at == size) break;
      REQUIRE(payload == records.payloads[at]);
      REQUIRE(stream->Place() == records.Place(at, format));
      ++at;
    }
    CHECK(*stream->Skip(INT64_MAX) == 0);
    CHECK(files.most < kMiB);
  }
}

TEST_CASE("large records are passed over without being read") {
  Records large, small;
  for (int i = 0; i < 100; ++i) large.Add(std::string(100'000, 'x'));
  for (int i = 0; i < 20'000; ++i) small.Add(std::string(100, 'x'));
  WatchedFiles files;
  files.Write("f", large.file);
  CHECK(*Opened(files)->Skip(INT64_MAX) == 100);
  CHECK(files.bytes < large.file.size() / 20);
  files.Write("f", small.file);
  files.reads = files.bytes = 0;
  CHECK(*Opened(files)->Skip(INT64_MAX) == 20'000);
  CHECK(files.bytes <= small.file.size());
  CHECK(files.reads < 20);
}

TEST_CASE("a file cut off at any byte") {
  std::mt19937 random(2);
  for (const Compression format : kFormats) {
    const Records records = SmallRecords(random);
    // In the second file the first piece ends where a record does.
    for (const bool at_border : {false, true}) {
      const std::string_view all = records.file;
      const size_t split =
          at_border ? records.begins[2] : records.begins[2] + 5;
      std::string first(all.substr(0, split)), second(all.substr(split));
      if (format != Compression::kNone) {
        first = Compressed(first, format);
        second = Compressed(second, format);
      }
      const std::string whole = first + second;
      for (size_t n = 0; n <= whole.size(); ++n) {
        CAPTURE(n);
        WatchedFiles files(1 + Below(random, 50));
        files.Write("f", whole.substr(0, n));
        const Outcome outcome = Read(files);
        size_t records_end = SIZE_MAX;  // records before a border that is at n
        if (n == 0) records_end = 0;
        if (n == first.size() && at_border) records_end = 2;
        if (n == whole.size()) records_end = records.payloads.size();
        if (format == Compression::kNone) {
          const auto& begins = records.begins;
          const auto found = std::find(begins.begin(), begins.end(), n);
          if (found != begins.end()) records_end = found - begins.begin();
        }
        if (records_end == SIZE_MAX) {
          CheckLoss(outcome, records);
        } else {
          REQUIRE_MESSAGE(outcome.error.ok(), outcome.error.message());
          CHECK(outcome.payloads.size() == records_end);
          CHECK(outcome.IsStartOf(records.payloads));
        }
        // Skipping finds the same end.
        const auto skipped = Opened(files)->Skip(INT64_MAX);
        CHECK(skipped.ok() == outcome.error.ok());
        if (skipped.ok()) {
          CHECK(*skipped == static_cast<int64_t>(records_end));
        } else {
          CHECK(skipped.status().message() == outcome.error.message());
        }
      }
    }
  }
}

TEST_CASE("a flipped bit of a compressed file is an error or harmless") {
  std::mt19937 random(3);
  for (const Compression format : {Compression::kGzip, Compression::kZlib}) {
    const Records records = SmallRecords(random);
    const std::string whole = Pieces(records.file, 2, format, random).bytes;
    int harmless = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      CAPTURE(bit);
      std::string bad = whole;
      bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
      WatchedFiles files;
      files.Write("f", bad);
      const Outcome outcome = Read(files);
      if (outcome.error.ok()) {
        CHECK((outcome.payloads == records.payloads));
        ++harmless;
      } else {
        CheckLoss(outcome, records);
      }
    }
    // Of each of the two members: what fills the bytes behind blocks; gzip's
    // time stamp, extra flags, system and whether it is a text.
    const int fill = 7 + 7;
    const int header = format == Compression::kGzip ? 8 * (4 + 1 + 1) + 1 : 0;
    CHECK(harmless <= 2 * (header + fill));
  }
}

TEST_CASE("behind a wrong payload one may go on, behind a wrong length not") {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const Compression format = kFormats[static_cast<size_t>(round) % 3];
    const Records records = SmallRecords(random);
    const size_t last = records.payloads.size() - 1;
    const size_t bad = 1 + Below(random, last);
    const uint64_t end =
        bad < last ? records.begins[bad + 1] : records.file.size();
    const uint64_t offset = Below(random, end - records.begins[bad]);
    std::string file = records.file;
    file[records.begins[bad] + offset] ^=
        static_cast<char>(1 << Below(random, 8));
    WatchedFiles files;
    files.Write("f", Stored(file, format, random));
    const auto stream = Opened(files);
    const Outcome before(*stream);
    CheckLoss(before, records);
    CHECK(before.payloads.size() == bad);
    const std::string wrong =
        records.Place(bad, format) + ": the checksum of the record";
    CHECK(before.error.message().starts_with(wrong));
    CHECK(stream->Place() == records.Place(bad, format));
    const Outcome behind(*stream);
    if (offset < kRecordHeadBytes) {
      CHECK(behind.error.message() == before.error.message());
      CHECK(stream->Skip(1).status().message() == before.error.message());
    } else {
      CHECK(behind.error.ok());
      CHECK(behind.payloads.size() == last - bad);
      CHECK(behind.IsStartOf(std::span(records.payloads).subspan(bad + 1)));
      CHECK(*Opened(files)->Skip(INT64_MAX) == static_cast<int64_t>(last + 1));
    }
  }
}

TEST_CASE("garbage behind the end") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const Compression format = kFormats[static_cast<size_t>(round) % 3];
    const Records records = SmallRecords(random);
    std::string file = Stored(records.file, format, random);
    const size_t whole = file.size();
    const size_t size = 1 + Below(random, 100);
    const bool zeros = Once(random, 3);
    file += zeros ? std::string(size, '\0') : RandomBytes(random, size);
    WatchedFiles files;
    files.Write("f", file);
    const Outcome outcome = Read(files);
    if (zeros && format == Compression::kGzip) {  // as gunzip has it: padding
      CHECK((outcome.error.ok() && outcome.payloads == records.payloads));
      continue;
    }
    CheckLoss(outcome, records);
    if (format == Compression::kNone) {
      CHECK(outcome.payloads.size() == records.payloads.size());
      CHECK(Contains(outcome.error.message(), fmt::format("byte {}: ", whole)));
    } else {
      CHECK(Contains(outcome.error.message(), " data "));
    }
  }
}

TEST_CASE("a large file, in which errors name the byte") {
  std::mt19937 random(6);
  Records records;
  for (int i = 0; i < 30; ++i) records.Add(RandomBytes(random, 100'000));
  // Stored, so that nothing but the checksum at the end is wrong.
  std::string file = Compressed(records.file, Compression::kZlib, 0);
  const size_t whole = file.size();
  file.back() ^= 1;
  WatchedFiles files;
  files.Write("f", file);
  CHECK(Read(files).error.message() ==
        fmt::format("'f', byte {}: the zlib data are corrupt (incorrect data "
                    "check)",
                    whole));
  files.Write("f", file.substr(0, 2'000'000));
  CHECK(Read(files).error.message() ==
        "'f', byte 2000000: the zlib data stop early; the file is truncated");
  files.Write("f", records.file);
  CHECK(Read(files).error.ok());
  CHECK(files.most < kMiB);
}

TEST_CASE("a file that shrinks while it is read") {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const Compression format = kFormats[static_cast<size_t>(round) % 3];
    Records records;
    for (int i = 0; i < 12; ++i) {
      records.Add(RandomBytes(random, Below(random, 6'000)));
    }
    const std::string file = Stored(records.file, format, random);
    WatchedFiles files;
    files.Write("f", file);
    const auto stream = Opened(files);
    std::string payload;
    const size_t before = Below(random, 4);
    for (size_t i = 0; i < before; ++i) REQUIRE(*stream->Next(&payload));
    files.Write("f", file.substr(0, Below(random, file.size())));
    const Outcome outcome(*stream);
    // What had been read of a small file may have been all.
    CHECK(outcome.IsStartOf(std::span(records.payloads).subspan(before)));
    if (outcome.error.ok()) {
      CHECK(outcome.payloads.size() + before == records.payloads.size());
      CHECK(file.size() < 2 * 64 * 1024);
    } else {
      CHECK(outcome.error.code() == Code::kDataLoss);
      CHECK(outcome.error.message().starts_with("'f', byte "));
      CHECK(Contains(
          outcome.error.message(),
          fmt::format("it had {} bytes when it was opened", file.size())));
    }
  }
}

// A head whose checksum is right.
std::string HeadOf(uint64_t length) {
  std::string head;
  for (int shift = 0; shift < 64; shift += 8) {
    head += static_cast<char>(length >> shift);
  }
  const uint32_t crc = MaskCrc(Crc32c(head));
  for (int shift = 0; shift < 32; shift += 8) {
    head += static_cast<char>(crc >> shift);
  }
  return head;
}

TEST_CASE("lengths beyond the end take no memory") {
  std::mt19937 random(8);
  for (const uint64_t length :
       {uint64_t{101}, uint64_t{105}, uint64_t{1} << 40, uint64_t{1} << 60,
        UINT64_MAX - 20, UINT64_MAX - 4, UINT64_MAX - 3, UINT64_MAX}) {
    for (const Compression format : kFormats) {
      CAPTURE(length);
      Records records;
      records.Add("first");
      const std::string file =
          records.file + HeadOf(length) + std::string(104, 'x');
      WatchedFiles files;
      files.Write("f", Stored(file, format, random));
      const auto stream = Opened(files);
      std::string payload;
      REQUIRE(*stream->Next(&payload));
      const Status error = stream->Next(&payload).status();
      CHECK(error.code() == Code::kDataLoss);
      CHECK(Contains(error.message(), "byte 21: the file ends within"));
      CHECK(payload.capacity() < 1000);
      CHECK(Opened(files)->Skip(2).status().message() == error.message());
      CHECK(files.most < kMiB);
    }
  }
}

TEST_CASE("lengths that look like the start of a compressed file") {
  for (const size_t size : {0x8b1f, 0x088b1f, 0x0178, 0x9c78, 0xda78, 0x5e78}) {
    WatchedFiles files;
    Records records;
    records.Add(std::string(size, 'x'));
    CHECK(CompressionOf(records.file) != Compression::kNone);
    files.Write("f", records.file);
    const Outcome outcome = Read(files);
    CHECK(outcome.error.ok());
    CHECK((outcome.payloads == records.payloads));
  }
}

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(
        std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST_CASE("files that Python and gzip made") {
  // Framed by a program of Python's, then gzip.compress, zlib.compress and
  // gzip(1), which writes the file's name into the header.
  const std::string plain = FromHex(
      "0300000000000000b099490e6f6e6501405508000000000000000029039807d8ea82a206"
      "000000000000007369d537736c75696365707d3ddb");
  const std::string deflated =
      "636680800d333df9f2f352191d4239a0220c9acc33d86fbc6a5ac406e517675e352fce29"
      "cd4c4e2da8b5bd0d00";
  const std::string trailer = "f7e0c45e39000000";
  for (const std::string& file :
       {plain,
        FromHex(fmt::format("1f8b08000100000002ff{}{}", deflated, trailer)),
        FromHex("789c" + deflated + "2db80dad"),
        FromHex(fmt::format("1f8b08088784046b00037265637300{}{}", deflated,
                            trailer))}) {
    const TemporaryFolder folder;
    const std::string path = JoinPath(folder.path(), "f");
    ThrowIfError(FileSystem::Posix().WriteAtomically(path, file));
    const auto stream = RecordFileStream::Open(path).ValueOrThrow();
    const Outcome outcome(*stream);
    CHECK(outcome.error.ok());
    CHECK((outcome.payloads == std::vector<std::string>{"one", "", "sluice"}));
  }
}

TEST_CASE("what cannot be opened") {
  const TemporaryFolder folder;
  CHECK(
      RecordFileStream::Open(JoinPath(folder.path(), "none")).status().code() ==
      Code::kNotFound);
  CHECK(RecordFileStream::Open(folder.path()).status().code() ==
        Code::kDataLoss);
}

}  // namespace
}  // namespace sluice
