// Reader and writer of safetensors files (huggingface.co/docs/safetensors).
//
//   file    := header_length header data
//   header_length := uint64, little-endian, at most 100 MB
//   header  := JSON object, padded with spaces:
//              { "__metadata__": { string: string, ... },       optional
//                name: { "dtype": "F32", "shape": [2,3],
//                        "data_offsets": [begin, end] }, ... }
//   data    := the tensors' bytes, row-major, little-endian; offsets count
//              from its start, without holes or overlaps
//
// Files written here carry a CRC-32 of header and data in their metadata
// ("sluice.crc32", eight hexadecimal digits in small letters); the reader
// checks it where it is present.
#ifndef SLUICE_IO_CHECKPOINTS_SAFETENSORS_H_
#define SLUICE_IO_CHECKPOINTS_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// A tensor that need not be whole in memory: it is elsewhere, or in a file. Its
// shape has rows.
struct RowsTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  // Reads rows from `begin` on into `rows`, which has the right type: as many
  // as it has.
  std::function<Status(int64_t begin, Tensor* rows)> read;
};
// Calls fn with all rows, some at a time.
Status ForRows(
    const RowsTensor& tensor,
    const std::function<Status(int64_t begin, const Tensor& rows)>& fn);

using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  std::vector<NamedTensor> tensors;  // in the order of their data
  std::vector<RowsTensor> by_rows;   // that were left in the file
  Metadata metadata;                 // without the checksum
  bool checksummed = false;          // had one, and it was right
};

// What the header says of one tensor.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t begin = 0;  // bytes from the start of the data
  size_t end = 0;
};
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  Metadata metadata;                // without the checksum
  size_t data_bytes = 0;
  // The checksum of header and data, as the file states it; nullopt: it states
  // none.
  std::optional<std::string> checksum = {};
};

// Writes a file atomically (FileSystem::WriteAtomically). kInvalidArgument for
// a name that is empty, reserved or given twice. Strings must be UTF-8. Tensors
// `by_rows` are read twice; kFailedPrecondition where the two differ.
Status WriteSafetensors(const std::string& path,
                        std::span<const NamedTensor> tensors,
                        std::span<const RowsTensor> by_rows,
                        const Metadata& metadata,
                        FileSystem& files = FileSystem::Default());
inline Status WriteSafetensors(const std::string& path,
                               std::span<const NamedTensor> tensors,
                               const Metadata& metadata = {},
                               FileSystem& files = FileSystem::Default()) {
  return WriteSafetensors(path, tensors, {}, metadata, files);
}

// Reads a file. kDataLoss, naming the file and what is wrong, for anything
// malformed; kUnimplemented for a dtype that DType lacks. The tensors own their
// memory, and no more memory of their size is taken. Tensors with rows for
// which `leave`, unless null, holds are left in the file, by_rows: it stays
// open, and is as it was checked as long as it is not written to in place.
using Leave = std::function<bool(const std::string& name)>;
Result<Safetensors> ReadSafetensors(const std::string& path, const Leave& leave,
                                    FileSystem& files = FileSystem::Default());
inline Result<Safetensors> ReadSafetensors(
    const std::string& path, FileSystem& files = FileSystem::Default()) {
  return ReadSafetensors(path, nullptr, files);
}
// ReadSafetensors of a file's bytes in memory; `path` is only for messages.
Result<Safetensors> ParseSafetensors(std::string_view bytes,
                                     const std::string& path);
// Names, dtypes and shapes without reading the data.
Result<SafetensorsHeader> ReadSafetensorsHeader(
    const std::string& path, FileSystem& files = FileSystem::Default());

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_SAFETENSORS_H_
