// TFRecord framing.
//
//   file   := record*
//   record := length masked_crc(length) payload masked_crc(payload)
//   length := uint64, little-endian
//   masked_crc(x) := uint32, little-endian: MaskCrc(Crc32c(x))
#ifndef SLUICE_IO_FILES_RECORD_H_
#define SLUICE_IO_FILES_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Bytes of a record before its payload, and around it.
inline constexpr size_t kRecordHeadBytes = 8 + 4;
inline constexpr size_t kRecordFrameBytes = kRecordHeadBytes + 4;

void AppendRecord(std::string_view payload, std::string* file);

// The length of the payload of the record that `bytes` begin with. kDataLoss
// where they end before it, or where its checksum is wrong.
Result<uint64_t> RecordLength(std::string_view bytes);
// The payload of that record. kDataLoss also where the bytes end within it or
// its checksum is wrong.
Result<std::string_view> RecordPayload(std::string_view bytes);

// Walks the records of a file in memory, which must outlive it.
class RecordReader {
 public:
  explicit RecordReader(std::string_view file) : rest_(file) {}

  // The next payload, or false at the end. Errors of RecordPayload, with the
  // byte position.
  Result<bool> Next(std::string_view* payload);

 private:
  std::string_view rest_;
  size_t position_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_FILES_RECORD_H_
