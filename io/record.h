// TFRecord framing.
//
//   file   := record*
//   record := length masked_crc(length) payload masked_crc(payload)
//   length := uint64, little-endian
//   masked_crc(x) := uint32, little-endian: MaskCrc(Crc32c(x))
#ifndef SLUICE_IO_RECORD_H_
#define SLUICE_IO_RECORD_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace sluice {

void AppendRecord(std::string_view payload, std::string* file);

// Walks the records of a file in memory, which must outlive it.
class RecordReader {
 public:
  explicit RecordReader(std::string_view file) : rest_(file) {}

  // The next payload, or false at the end. kDataLoss, with the byte position,
  // when the file ends within a record or a checksum is wrong.
  Result<bool> Next(std::string_view* payload);

 private:
  std::string_view rest_;
  size_t position_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORD_H_
