// Tar archives by the byte: headers of all formats, damaged and hostile ones.
#include "io/records/tar.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/io/records/walked_tar.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/tar_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::Member;
using testing::PaxRecord;
using testing::RandomBytes;
using testing::TarEnd;
using testing::TarExtra;
using testing::TarFile;
using testing::TarHeader;
using testing::TarPadded;
using testing::Walk;
using testing::Walked;

std::vector<std::string> Names(std::string_view archive) {
  const Walked walked = Walk(archive);
  CHECK_MESSAGE(walked.error.ok(), walked.error.message());
  std::vector<std::string> names;
  for (const Member& member : walked.members) names.push_back(member.name);
  return names;
}

void CheckError(std::string_view archive, Code code, const std::string& part) {
  const Status error = Walk(archive).error;
  CHECK(error.code() == code);
  CHECK(Contains(error.message(), part));
}

TEST_CASE("names and sizes of members") {
  const auto end = TarEnd();
  const std::string a = TarFile("a", "1");
  CHECK(Names(a) == std::vector<std::string>{"a"});
  CHECK(Names(a + std::string(512, '\0')) == std::vector<std::string>{"a"});
  CHECK(Names(end).empty());
  CHECK(Names(a + a + end + std::string(9000, '\0')).size() == 2);
  const std::string hundred(100, 'n');
  TarHeader header = {.name = hundred, .prefix = "p/q"};
  CHECK(Names(header.Text()) == std::vector<std::string>{"p/q/" + hundred});
  // GNU tar has times there.
  header.magic = std::string("ustar  \0", 8);
  CHECK(Names(header.Text()) == std::vector<std::string>{hundred});
  header.magic = "";
  header.type = '\0';
  CHECK(Names(header.Text()) == std::vector<std::string>{hundred});
  // A folder, of before ustar.
  CHECK(Names(TarHeader{.name = "old/", .type = '\0', .magic = ""}.Text())
            .empty());
  // Signs matter where names are not ASCII.
  for (const bool with_signs : {false, true}) {
    const TarHeader umlaut = {.name = "\xc3\xa4", .signed_sum = with_signs};
    CHECK(Names(umlaut.Text()) == std::vector<std::string>{"\xc3\xa4"});
  }
  // Sizes of 64 bits.
  const std::string large("\x80\0\0\0\0\0\0\0\0\0\2\1", 12);
  CHECK(Walk(TarHeader{.name = "l", .size_field = large}.Text() +
             TarPadded(std::string(513, 'x')) + a)
            .members == std::vector<Member>{{"l", 512, 513}, {"a", 2048, 1}});
  for (const char* field : {"          1 ", "1", "00000000001", "1 \0 77"}) {
    CHECK(Walk(TarHeader{.name = "l", .size_field = field}.Text() +
               TarPadded("x"))
              .members == std::vector<Member>{{"l", 512, 1}});
  }
  // Links and folders are followed by no data, whatever their size is.
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    const TarHeader link = {.name = "l", .size = 700, .type = type};
    CHECK(Names(link.Text().append(a).append(end)) ==
          std::vector<std::string>{"a"});
  }
  // Of an unknown type, with data.
  CHECK(Names(TarHeader{.name = "v", .size = 3, .type = 'V'}.Text() +
              TarPadded("abc") + a) == std::vector<std::string>{"a"});
}

TEST_CASE("extra headers") {
  const std::string a = TarFile("a", std::string(600, 'x'));
  const std::string name(300, 'n');
  const auto x = [](const std::string& text) { return TarExtra('x', text); };
  using List = std::vector<std::string>;
  CHECK(Names(TarExtra('L', name + std::string(1, '\0')) + a + a) ==
        List{name, "a"});
  CHECK(Names(TarExtra('K', name) + a) == List{"a"});
  CHECK(Names(TarExtra('K', "k") + TarExtra('L', name) + a) == List{name});
  CHECK(Names(x(PaxRecord("path", name)) + a + a) == List{name, "a"});
  CHECK(Names(x(PaxRecord("path", "b=c d\n") + PaxRecord("mtime", "1.5")) +
              a) == List{"b=c d\n"});
  CHECK(Names(x(PaxRecord("path", "")) + a) == List{"a"});
  CHECK(Names(TarExtra('g', PaxRecord("comment", "path=z")) + a) == List{"a"});
  // For all that follow, unless they say otherwise.
  CHECK(Names(TarExtra('g', PaxRecord("path", "z")) + a +
              x(PaxRecord("path", "y")) + a) == List{"z", "y"});
  // The size that counts.
  const std::string zero = TarHeader{.name = "s", .size = 0}.Text();
  CHECK(Walk(x(PaxRecord("size", "513")) + zero +
             TarPadded(std::string(513, 'y')) + a)
            .members ==
        std::vector<Member>{{"s", 1536, 513}, {"a", 3072, 600}});
  for (const char* bad :
       {"5 path=b\n", "99 path=b\n", "0 path=b\n", "x path=b\n", "10 path=b",
        "9 path-b\n", "-9 path=b\n", " path=b\n", "18446744073709551615 a=b\n",
        "10 size=x\n", "10 size=-\n", "path=b\n", "7 a =b\n9"}) {
    CAPTURE(bad);
    CheckError(x(bad) + a, Code::kDataLoss, "'t.tar', byte 0: a pax header");
  }
  CheckError(x(PaxRecord("size", "18446744073709551615")) + a, Code::kDataLoss,
             "'t.tar', byte 1024: the archive ends within 'a'");
  CheckError(x(PaxRecord("size", "18446744073709551616")) + a, Code::kDataLoss,
             "a size '18446744073709551616'");
  CheckError(x(PaxRecord("path", "b")), Code::kDataLoss,
             "byte 1024: the archive ends behind an extra header");
  CheckError(TarExtra('L', "b") + TarEnd(), Code::kDataLoss,
             "the archive ends behind an extra header");
  CheckError(TarExtra('L', std::string((1 << 20) + 1, 'n')) + a,
             Code::kDataLoss, "an extra header of 1048577 bytes");
  CheckError(x(PaxRecord("GNU.sparse.major", "1")) + a, Code::kUnimplemented,
             "'a' is a sparse file");
}

TEST_CASE("what is no tar archive, or not all of one") {
  const std::string a = TarFile("a", "1");
  CheckError("\x1f\x8b\x08" + std::string(30, '\0'), Code::kUnimplemented,
             "'t.tar', byte 0: the archive is compressed by gzip; decompress "
             "it: gunzip");
  CheckError(std::string(600, 'x'), Code::kDataLoss,
             "'t.tar', byte 0: this is no tar archive");
  CheckError("x", Code::kDataLoss, "the archive ends within a header");
  CheckError(a + std::string(512, '\0') + a, Code::kDataLoss,
             "'t.tar', byte 1024: a block of zeros, which no other follows: "
             "wanted a header, or two such");
  CheckError(a + TarEnd() + std::string(8192, '\0') + a, Code::kDataLoss,
             "another begins behind it, at byte 10240");
  CheckError("", Code::kDataLoss, "'t.tar', byte 0: the file is empty");
  // Of a download that has not come so far yet.
  const auto zeros = [](size_t bytes) { return std::string(bytes, '\0'); };
  CHECK(Names(a + zeros(1 << 20)).size() == 1);
  CheckError(a + zeros((1 << 20) + 1), Code::kDataLoss,
             "'t.tar', byte 1024: the archive ends, but the file goes on for "
             "1048577 bytes");
  CheckError(a + zeros(3 << 20) + a, Code::kDataLoss, "goes on for");
  CheckError(zeros(2 << 20), Code::kDataLoss, "'t.tar', byte 0: the archive");
  // Others than tar have put something else there.
  CHECK(Names(a + TarEnd() + std::string(700, 'x')).size() == 1);
  CheckError(TarHeader{.name = "m", .type = 'M'}.Text(), Code::kUnimplemented,
             "'m' goes on from another volume");
  CheckError(TarHeader{.name = "\x1b[2J", .size = 9}.Text(), Code::kDataLoss,
             "the archive ends within '\\x1b[2J'");
  CheckError(a + TarHeader{.name = "b", .size_field = "12x"}.Text(),
             Code::kDataLoss, "'t.tar', byte 1024: the header's size");
  for (const std::string& field :
       {std::string("\x80\0\0\1\0\0\0\0\0\0\0\0", 12),
        std::string("\x81\0\0\0\0\0\0\0\0\0\0\1", 12), std::string(12, '\xff'),
        std::string("-1")}) {
    CheckError(TarHeader{.name = "b", .size_field = field}.Text(),
               Code::kDataLoss, "the header's size is no number");
  }
  for (const std::string& field :
       {std::string("\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12),
        std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xfe\1", 12),
        std::string("777777777777")}) {
    CheckError(TarHeader{.name = "b", .size_field = field}.Text() + a,
               Code::kDataLoss, "the archive ends within 'b'");
  }
}

TEST_CASE("flipped bits in headers") {
  std::mt19937 random(3);
  int same = 0;
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    std::string archive;
    std::vector<size_t> headers;
    for (size_t n = 1 + Below(random, 4); n > 0; --n) {
      headers.push_back(archive.size());
      archive += TarFile(fmt::format("n{}", n),
                         RandomBytes(random, Below(random, 1500)));
    }
    archive += TarEnd();
    const Walked before = Walk(archive);
    REQUIRE(before.error.ok());
    const size_t at = Below(random, headers.size()), byte = Below(random, 512);
    char& flipped = archive[headers[at] + byte];
    flipped = static_cast<char>(flipped ^ (1 << Below(random, 8)));
    const Walked walked = Walk(archive);
    if (walked.error.ok()) {
      // Blanks for noughts in the checksum, or what is behind it.
      CHECK(byte >= 148);
      CHECK(byte < 156);
      CHECK(walked.members == before.members);
      ++same;
      continue;
    }
    CHECK(walked.error.code() == Code::kDataLoss);
    CHECK(walked.members.size() == at);
    CHECK(Contains(walked.error.message(),
                   fmt::format("'t.tar', byte {}: ", headers[at])));
  }
  CHECK(same < 30);
}

// A block of fields that are mostly good, its checksum right.
std::string RandomMember(std::mt19937& random) {
  const std::string data = RandomBytes(random, Below(random, 700));
  TarHeader header = {.name = RandomBytes(random, Below(random, 100)),
                      .size = data.size()};
  if (Below(random, 3) == 0) {
    header.type = "0\0L157xxXgKSMV"[Below(random, 14)];
  }
  if (Below(random, 4) == 0) header.size_field = RandomBytes(random, 12);
  if (Below(random, 4) == 0) {
    header.size_field = "\x80" + std::string(3, '\0') + RandomBytes(random, 8);
  }
  if (Below(random, 4) == 0) header.size = uint64_t{random()} % (1u << 30);
  const std::string pax =
      PaxRecord(Below(random, 2) == 0 ? "size" : "path",
                std::to_string(uint64_t{random()} << Below(random, 33)));
  if (Below(random, 3) == 0) {
    return TarExtra("xgL"[Below(random, 3)], pax) + header.Text();
  }
  return header.Text() + TarPadded(data);
}

TEST_CASE("hostile archives: what is found is in them") {
  std::mt19937 random(4);
  int found = 0;
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    std::string archive;
    for (size_t n = Below(random, 6); n > 0; --n) {
      archive += RandomMember(random);
    }
    if (Below(random, 3) == 0 && !archive.empty()) {
      archive.resize(Below(random, archive.size()));
    }
    const Walked walked = Walk(archive);
    uint64_t end = 0;
    for (const auto& [name, offset, size] : walked.members) {
      CHECK(offset >= end + 512);
      CHECK(size <= archive.size() - offset);
      end = offset + size;
      ++found;
    }
    if (!walked.error.ok()) {
      CHECK((walked.error.code() == Code::kDataLoss ||
             walked.error.code() == Code::kUnimplemented));
    }
  }
  CHECK(found > 100);
}

}  // namespace
}  // namespace sluice
