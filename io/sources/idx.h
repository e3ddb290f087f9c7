// Reader of IDX files (yann.lecun.com/exdb/mnist), plain or gzip.
//
//   file  := 0x00 0x00 type rank dim* data
//   type  := 0x08 uint8 | 0x09 int8 | 0x0B int16 | 0x0C int32 | 0x0D float32 |
//            0x0E float64
//   rank  := uint8
//   dim   := uint32, big-endian; `rank` of them
//   data  := product(dim) elements, big-endian, row-major; the file ends there
#ifndef SLUICE_IO_SOURCES_IDX_H_
#define SLUICE_IO_SOURCES_IDX_H_

#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

// kDataLoss, naming the file and what is wrong, for anything malformed;
// kUnimplemented for int16, which DType lacks.
Result<Tensor> ReadIdx(const std::string& path,
                       FileSystem& files = FileSystem::Default());
// Reads a file's bytes in memory; `path` is only for messages. Memory is taken
// in proportion to bytes.size(), whatever the dimensions claim.
Result<Tensor> ParseIdx(std::string_view bytes, const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_IDX_H_
