// The IDX reader on good, truncated, damaged and hostile files, plain and
// gzip, and on the real MNIST.
#include "io/sources/idx.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "io/files/gzip.h"
#include "tests/support/compressed.h"
#include "tests/support/real_data.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

std::string Idx(uint8_t type, const std::vector<uint32_t>& dims,
                const std::string& data) {
  std::string bytes = {'\0', '\0', static_cast<char>(type),
                       static_cast<char>(dims.size())};
  for (uint32_t d : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(d >> shift);
    }
  }
  return bytes + data;
}

std::string Gzip(const std::string& bytes) {
  return testing::Compressed(bytes, Compression::kGzip);
}

std::string Bytes(int n) {
  std::string bytes;
  for (int i = 0; i < n; ++i) bytes += static_cast<char>(i * 7);
  return bytes;
}

const std::string kGood = Idx(0x08, {3, 2, 2}, Bytes(12));

TEST_CASE("every element type") {
  auto u8 = *ParseIdx(kGood, "f");
  CHECK(u8.dtype() == DType::kUInt8);
  CHECK(u8.shape() == Shape{3, 2, 2});
  CHECK(u8.data<uint8_t>()[11] == 77);
  auto i8 = *ParseIdx(Idx(0x09, {2}, "\xff\x02"), "f");
  CHECK(i8.data<int8_t>()[0] == -1);
  auto i32 = *ParseIdx(
      Idx(0x0C, {2}, std::string("\0\0\1\2\xff\xff\xff\xfe", 8)), "f");
  CHECK(i32.data<int32_t>()[0] == 258);
  CHECK(i32.data<int32_t>()[1] == -2);
  // 1.5f is 3fc00000; -2.0 is c000000000000000.
  auto f32 = *ParseIdx(Idx(0x0D, {1}, std::string("\x3f\xc0\0\0", 4)), "f");
  CHECK(f32.data<float>()[0] == 1.5f);
  auto f64 =
      *ParseIdx(Idx(0x0E, {1}, std::string("\xc0\0\0\0\0\0\0\0", 8)), "f");
  CHECK(f64.data<double>()[0] == -2.0);
  CHECK(ParseIdx(Idx(0x0B, {1}, "ab"), "f").status().code() ==
        Code::kUnimplemented);
}

TEST_CASE("a scalar and empty dimensions") {
  CHECK(ParseIdx(Idx(0x08, {}, "a"), "f")->shape() == Shape{});
  CHECK(ParseIdx(Idx(0x08, {0, 28}, ""), "f")->elements() == 0);
  CHECK(ParseIdx(Gzip(Idx(0x08, {0, 28}, "")), "f")->elements() == 0);
  CHECK(!ParseIdx(Idx(0x08, {0, 28}, "a"), "f").ok());
}

TEST_CASE("a plain file truncated at every byte is an error") {
  for (size_t n = 0; n < kGood.size(); ++n) {
    const Status status = ParseIdx(kGood.substr(0, n), "name.idx").status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().find("name.idx") != std::string::npos);
  }
  CHECK(ParseIdx(kGood + "x", "f").status().code() == Code::kDataLoss);
}

TEST_CASE("a gzip file truncated at every byte is an error") {
  const std::string gz = Gzip(kGood);
  CHECK(ParseIdx(gz, "f")->BitEqual(*ParseIdx(kGood, "f")));
  for (size_t n = 0; n < gz.size(); ++n) {
    CHECK(ParseIdx(gz.substr(0, n), "f").status().code() == Code::kDataLoss);
  }
  CHECK(!ParseIdx(gz + "x", "f").ok());
  CHECK(!ParseIdx(Gzip(kGood + "x"), "f").ok());
}

TEST_CASE("a gzip file of two members is one file") {
  const std::string gz = Gzip(kGood.substr(0, 7)) + Gzip(kGood.substr(7));
  CHECK(ParseIdx(gz, "f")->BitEqual(*ParseIdx(kGood, "f")));
}

TEST_CASE("a flipped bit in a gzip file is an error or harmless") {
  const std::string gz = Gzip(kGood);
  const Tensor good = *ParseIdx(kGood, "f");
  int errors = 0;
  for (size_t i = 0; i < gz.size() * 8; ++i) {
    std::string bad = gz;
    bad[i / 8] ^= static_cast<char>(1 << (i % 8));
    const auto tensor = ParseIdx(bad, "f");
    if (!tensor.ok()) ++errors;
    if (tensor.ok()) CHECK(tensor->BitEqual(good));  // time stamp and such
  }
  CHECK(errors > static_cast<int>(gz.size()) * 5);
}

TEST_CASE("wrong magic numbers") {
  for (const char* start :
       {"\x89PNG", "<htm", "PK\3\4", "\0\0\x0f\1", "\0\1\x08\1"}) {
    const std::string bytes = std::string(start, 4) + Bytes(40);
    const Status status = ParseIdx(bytes, "f").status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().find("magic") != std::string::npos);
  }
}

TEST_CASE("dimensions larger than the file take no memory") {
  for (const auto& dims :
       std::vector<std::vector<uint32_t>>{{0xffffffff, 0xffffffff, 0xffffffff},
                                          {0x7fffffff},
                                          {0x10000, 0x10000, 0x10000, 0x10000},
                                          {0, 0xffffffff, 0xffffffff},
                                          {0xffffffff, 0, 0xffffffff},
                                          {1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
    for (const std::string& data : {Bytes(64), std::string()}) {
      const std::string bytes = Idx(0x0E, dims, data);
      CHECK(ParseIdx(bytes, "f").status().code() != Code::kResourceExhausted);
      CHECK(!ParseIdx(bytes, "f").ok());
      CHECK(!ParseIdx(Gzip(bytes), "f").ok());
    }
  }
}

TEST_CASE("the gzip reader delivers in pieces of any size") {
  const std::string bytes = Bytes(1000);
  const std::string gz = Gzip(bytes);
  for (size_t piece : {1, 7, 999, 1000, 5000}) {
    GzipReader reader(gz);
    std::string got;
    std::string buffer(piece, '\0');
    for (;;) {
      const auto n = reader.Read(buffer.data(), piece);
      REQUIRE(n.ok());
      got.append(buffer, 0, *n);
      if (*n < piece) break;
    }
    CHECK(got == bytes);
    CHECK(*reader.Read(buffer.data(), piece) == 0);
  }
}

// The four files as they were before compression, by their known MD5.
TEST_CASE("the real MNIST") {
  const auto folder = testing::RealData("mnist");
  if (!folder) return;
  struct Known {
    const char* name;
    std::vector<uint32_t> dims;
    const char* md5;
  };
  const Known files[] = {
      {"train-images-idx3-ubyte",
       {60000, 28, 28},
       "6bbc9ace898e44ae57da46a324031adb"},
      {"train-labels-idx1-ubyte", {60000}, "a25bea736e30d166cdddb491f175f624"},
      {"t10k-images-idx3-ubyte",
       {10000, 28, 28},
       "2646ac647ad5339dbf082846283269ea"},
      {"t10k-labels-idx1-ubyte", {10000}, "27ae3e4e09519cfbb04c329615203637"},
  };
  for (const Known& known : files) {
    const auto tensor = ReadIdx(*folder + "/" + known.name + ".gz");
    REQUIRE_MESSAGE(tensor.ok(), tensor.status().message());
    const std::string data(static_cast<const char*>(tensor->raw()),
                           tensor->bytes());
    const testing::TemporaryFolder written;
    const std::string copy = written / known.name;
    REQUIRE(FileSystem::Posix()
                .WriteAtomically(copy, Idx(0x08, known.dims, data))
                .ok());
    FILE* md5sum = popen(("md5sum < " + copy).c_str(), "r");
    REQUIRE(md5sum != nullptr);
    char digest[33] = {};
    CHECK(std::fread(digest, 1, 32, md5sum) == 32);
    pclose(md5sum);
    CHECK(std::string(digest) == known.md5);
  }
}

}  // namespace
}  // namespace sluice
