// The header of safetensors files, as text. Internal to io/checkpoints, and to
// what reads such files row by row.
#ifndef SLUICE_IO_CHECKPOINTS_SAFETENSORS_HEADER_H_
#define SLUICE_IO_CHECKPOINTS_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"
#include "io/files/without_query.h"

namespace sluice {

// Bytes of the length field before the header.
inline constexpr size_t kLengthBytes = 8;
// The header's key for metadata, which is no tensor.
inline constexpr char kMetadataKey[] = "__metadata__";

// The one spelling of a checksum: damage that turned "a" into "A" shows.
std::string ChecksumText(uint32_t crc);

// Errors of the functions below are without the file's name.

// The length of the header, in bytes, from a file's first bytes.
Result<size_t> HeaderLength(std::string_view bytes);

struct ParsedHeader {
  SafetensorsHeader header;
  uint32_t header_crc = 0;
};
// Parses the header `text`; `data_bytes` follow it in the file.
Result<ParsedHeader> ParseHeader(std::string_view text, size_t data_bytes);

// Reads all of `n` bytes from `offset` on; kDataLoss where the file ends
// before.
Status ReadAll(const ReadableFile& file, uint64_t offset, void* out, size_t n);

// Reads the header of an open file, whatever its path has become meanwhile; the
// tensors' data begin at byte `*data`.
Result<ParsedHeader> ReadHeader(const ReadableFile& file, uint64_t* data);

// The length field and the header of a file whose data are those tensors',
// padded so that the data are aligned. `with_data` continues the header's
// checksum with the data's.
Result<std::string> FileHead(
    std::span<const TensorInfo> tensors, const Metadata& metadata,
    const std::function<Result<uint32_t>(uint32_t crc)>& with_data);

// kDataLoss where a bool is neither 0 nor 1: any other byte is undefined
// behaviour in C++.
Status CheckBools(const NamedTensor& tensor);

template <typename T>
Result<T> WithPath(Result<T> result, const std::string& path) {
  if (result.ok()) return result;
  const std::string shown = WithoutQuery(path);
  // What the file system says names the path already.
  if (result.status().message().find(shown) != std::string::npos) return result;
  return result.status().WithContext("'" + shown + "'");
}

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_SAFETENSORS_HEADER_H_
