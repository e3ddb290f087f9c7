#include "io/files/record.h"

#include <fmt/format.h>

#include <cstdint>

#include "io/files/crc32c.h"

namespace sluice {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

void AppendInteger(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t ReadInteger(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

// Does the masked CRC that follows the first n bytes fit them?
bool CrcFits(std::string_view bytes, size_t n) {
  return ReadInteger(bytes.substr(n, kCrcBytes)) ==
         MaskCrc(Crc32c(bytes.substr(0, n)));
}

}  // namespace

void AppendRecord(std::string_view payload, std::string* file) {
  std::string length;
  AppendInteger(payload.size(), kLengthBytes, &length);
  *file += length;
  AppendInteger(MaskCrc(Crc32c(length)), kCrcBytes, file);
  *file += payload;
  AppendInteger(MaskCrc(Crc32c(payload)), kCrcBytes, file);
}

Result<uint64_t> RecordLength(std::string_view bytes) {
  if (bytes.size() < kRecordHeadBytes) {
    return DataLoss("the file ends within the record");
  }
  if (!CrcFits(bytes, kLengthBytes)) {
    return DataLoss("the checksum of the record's length is wrong");
  }
  return ReadInteger(bytes.substr(0, kLengthBytes));
}

Result<std::string_view> RecordPayload(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t length, RecordLength(bytes));
  const std::string_view body = bytes.substr(kRecordHeadBytes);
  if (body.size() < kCrcBytes || length > body.size() - kCrcBytes) {
    return DataLoss("the file ends within the record");
  }
  if (!CrcFits(body, length)) {
    return DataLoss("the checksum of the record is wrong");
  }
  return body.substr(0, length);
}

Result<bool> RecordReader::Next(std::string_view* payload) {
  if (rest_.empty()) return false;
  const auto next = RecordPayload(rest_);
  if (!next.ok()) {
    return next.status().WithContext(fmt::format("byte {}", position_));
  }
  *payload = *next;
  const size_t size = payload->size() + kRecordFrameBytes;
  rest_.remove_prefix(size);
  position_ += size;
  return true;
}

}  // namespace sluice
