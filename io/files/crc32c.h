// CRC-32C (Castagnoli), the checksum of TFRecord files.
#ifndef SLUICE_IO_FILES_CRC32C_H_
#define SLUICE_IO_FILES_CRC32C_H_

#include <cstdint>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// The checksum, by the processor's own instruction where it has one. For bytes
// that follow others, `before` is the checksum of those, and the result that of
// all.
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);
// The checksum by tables, as on processors without the instruction: some four
// times slower.
uint32_t Crc32cByTables(std::string_view bytes, uint32_t before = 0);

// The form TFRecord stores: a CRC of data that contain CRCs would be weak.
inline uint32_t MaskCrc(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace sluice

#endif  // SLUICE_IO_FILES_CRC32C_H_
