#include "io/files/crc32c.h"

#include <array>
#include <cstring>

// The processor's instruction: the target it needs, of 8 bytes, of one.
#if defined(__x86_64__)
#include <nmmintrin.h>
#define SLUICE_CRC32C_TARGET __attribute__((target("sse4.2")))
#define SLUICE_CRC32C_WORD _mm_crc32_u64
#define SLUICE_CRC32C_BYTE _mm_crc32_u8
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define SLUICE_CRC32C_TARGET
#define SLUICE_CRC32C_WORD __crc32cd
#define SLUICE_CRC32C_BYTE __crc32cb
#endif

namespace sluice {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

// Slicing by 8 (Kounavis and Berry 2005): tables[k][b] is the CRC of byte b
// followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#ifdef SLUICE_CRC32C_TARGET

// The instruction takes three cycles, of which it occupies the processor for
// one: long texts are cut into three at a time, of so many bytes.
constexpr size_t kStride = 1024;

// What kStride zero bytes make of a CRC, which is linear: tables[k][b] is that
// of b << 8 * k.
using Shift = std::array<std::array<uint32_t, 256>, 4>;

constexpr Shift MakeShift() {
  // Of each bit: by one byte, then by twice as many as before.
  std::array<uint32_t, 32> bits{};
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t crc = uint32_t{1} << i;
    bits[i] = (crc >> 8) ^ kTables[0][crc & 0xff];
  }
  const auto shifted = [&](uint32_t crc) {
    uint32_t sum = 0;
    for (size_t i = 0; i < 32; ++i) {
      if ((crc >> i & 1) != 0) sum ^= bits[i];
    }
    return sum;
  };
  for (size_t bytes = 1; bytes < kStride; bytes *= 2) {
    std::array<uint32_t, 32> twice{};
    for (size_t i = 0; i < 32; ++i) twice[i] = shifted(bits[i]);
    bits = twice;
  }
  Shift tables{};
  for (size_t k = 0; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) tables[k][b] = shifted(b << 8 * k);
  }
  return tables;
}

constexpr Shift kShift = MakeShift();

uint32_t Shifted(uint32_t crc) {
  return kShift[0][crc & 0xff] ^ kShift[1][(crc >> 8) & 0xff] ^
         kShift[2][(crc >> 16) & 0xff] ^ kShift[3][crc >> 24];
}

SLUICE_CRC32C_TARGET uint32_t Word(uint32_t crc, const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return static_cast<uint32_t>(SLUICE_CRC32C_WORD(crc, word));
}

SLUICE_CRC32C_TARGET uint32_t ByInstruction(const char* p, size_t n,
                                            uint32_t before) {
  uint32_t crc = ~before;
  for (; n >= 3 * kStride; n -= 3 * kStride, p += 3 * kStride) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < kStride; i += 8) {
      crc = Word(crc, p + i);
      second = Word(second, p + kStride + i);
      third = Word(third, p + 2 * kStride + i);
    }
    crc = Shifted(Shifted(crc) ^ second) ^ third;
  }
  for (; n >= 8; n -= 8, p += 8) crc = Word(crc, p);
  for (; n > 0; --n, ++p) {
    crc = SLUICE_CRC32C_BYTE(crc, static_cast<uint8_t>(*p));
  }
  return ~crc;
}

bool HasInstruction() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#else
  return true;
#endif
}

#endif

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
#ifdef SLUICE_CRC32C_TARGET
  static const bool kFast = HasInstruction();
  if (kFast) return ByInstruction(bytes.data(), bytes.size(), before);
#endif
  return Crc32cByTables(bytes, before);
}

uint32_t Crc32cByTables(std::string_view bytes, uint32_t before) {
  uint32_t crc = ~before;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    crc ^= p[0] | p[1] << 8 | p[2] << 16 | uint32_t{p[3]} << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^
          kTables[5][(crc >> 16) & 0xff] ^ kTables[4][crc >> 24] ^
          kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

}  // namespace sluice
