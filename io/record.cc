#include "io/record.h"

#include <fmt/format.h>

#include <cstdint>

#include "io/crc32c.h"

namespace sluice {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
constexpr size_t kHeadBytes = kLengthBytes + kCrcBytes;

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

Result<bool> RecordReader::Next(std::string_view* payload) {
  if (rest_.empty()) return false;
  const auto bad = [&](std::string_view what) {
    return DataLoss(
        fmt::format("{} in the record at byte {}", what, position_));
  };
  if (rest_.size() < kHeadBytes) return bad("the file ends");
  if (!CrcFits(rest_, kLengthBytes)) return bad("wrong checksum of the length");
  const uint64_t length = ReadInteger(rest_.substr(0, kLengthBytes));
  std::string_view body = rest_.substr(kHeadBytes);
  if (body.size() < kCrcBytes || length > body.size() - kCrcBytes) {
    return bad("the file ends");
  }
  if (!CrcFits(body, length)) return bad("wrong checksum");
  *payload = body.substr(0, length);
  const size_t size = kHeadBytes + length + kCrcBytes;
  rest_.remove_prefix(size);
  position_ += size;
  return true;
}

}  // namespace sluice
