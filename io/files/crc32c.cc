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

SLUICE_CRC32C_TARGET uint32_t ByInstruction(const char* p, size_t n) {
  uint32_t crc = ~0u;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    crc = static_cast<uint32_t>(SLUICE_CRC32C_WORD(crc, word));
  }
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

uint32_t Crc32c(std::string_view bytes) {
#ifdef SLUICE_CRC32C_TARGET
  static const bool kFast = HasInstruction();
  if (kFast) return ByInstruction(bytes.data(), bytes.size());
#endif
  return Crc32cByTables(bytes);
}

uint32_t Crc32cByTables(std::string_view bytes) {
  uint32_t crc = ~0u;
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
