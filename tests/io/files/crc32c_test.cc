// CRC-32C by instruction and by tables, against one bit after the other.
#include "io/files/crc32c.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::RandomBytes;

// The polynomial as RFC 3720 has it, its bits reversed as there.
uint32_t NextByBits(uint32_t crc, char byte) {
  crc ^= static_cast<uint8_t>(byte);
  for (int bit = 0; bit < 8; ++bit) {
    crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return crc;
}

TEST_CASE("CRC-32C: every length and alignment") {
  std::mt19937 random(1);
  const std::string bytes = RandomBytes(random, 1100);
  int wrong = 0;
  for (size_t begin = 0; begin < 17; ++begin) {
    uint32_t expected = ~0u;
    for (size_t n = 0; n <= 1000; ++n) {
      const std::string_view part = std::string_view(bytes).substr(begin, n);
      wrong += Crc32c(part) != ~expected;
      wrong += Crc32cByTables(part) != ~expected;
      expected = NextByBits(expected, bytes[begin + n]);
    }
  }
  CHECK(wrong == 0);
}

// Long texts are cut into three at a time.
TEST_CASE("CRC-32C: lengths around some thousands") {
  std::mt19937 random(3);
  const std::string bytes = RandomBytes(random, 10'001);
  int wrong = 0;
  uint32_t expected = ~0u;
  for (size_t n = 0; n < 10'000; ++n) {
    wrong += Crc32c(std::string_view(bytes).substr(0, n)) != ~expected;
    expected = NextByBits(expected, bytes[n]);
  }
  CHECK(wrong == 0);
}

TEST_CASE("CRC-32C of much") {
  std::mt19937 random(2);
  const std::string bytes = RandomBytes(random, 300'001);
  uint32_t expected = ~0u;
  for (const char byte : bytes) expected = NextByBits(expected, byte);
  CHECK(Crc32c(bytes) == ~expected);
  CHECK(Crc32cByTables(bytes) == ~expected);
}

TEST_CASE("CRC-32C of pieces, one after the other") {
  std::mt19937 random(4);
  const std::string bytes = RandomBytes(random, 20'000);
  const uint32_t whole = Crc32c(bytes);
  CHECK(Crc32c("", whole) == whole);
  for (int i = 0; i < 300; ++i) {
    uint32_t crc = 0, by_tables = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = testing::Below(random, i % 2 == 0 ? 20 : 9000);
      const std::string_view piece = std::string_view(bytes).substr(at, n);
      crc = Crc32c(piece, crc);
      by_tables = Crc32cByTables(piece, by_tables);
      at += piece.size();
    }
    REQUIRE(crc == whole);
    REQUIRE(by_tables == whole);
  }
}

}  // namespace
}  // namespace sluice
