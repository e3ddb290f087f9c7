// Files of which some tensors are not read into memory.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/allocate.h"
#include "engine/catch_errors.h"
#include "io/checkpoints/safetensors.h"
#include "io/checkpoints/safetensors_header.h"
#include "io/files/gzip.h"

namespace sluice {
namespace {

constexpr size_t kBytesAtOnce = 4 << 20;

// What lies at `offset`, into a tensor or past it.
Status ReadData(const ReadableFile& file, uint64_t offset, size_t bytes,
                char* out, std::string* buffer, uint32_t* crc) {
  for (size_t at = 0; at < bytes;) {
    const size_t n = std::min(kBytesAtOnce, bytes - at);
    if (out == nullptr) buffer->resize(kBytesAtOnce);
    char* const to = out == nullptr ? buffer->data() : out + at;
    SLUICE_RETURN_IF_ERROR(ReadAll(file, offset + at, to, n));
    *crc = Crc32(*crc, {to, n});
    at += n;
  }
  return {};
}

RowsTensor InFile(TensorInfo info, std::shared_ptr<const ReadableFile> file,
                  uint64_t offset, const std::string& path) {
  const auto row =
      static_cast<uint64_t>(info.shape.elements(1, info.shape.rank())) *
      SizeOf(info.dtype);
  return {std::move(info.name), info.dtype, info.shape,
          [=, file = std::move(file)](int64_t begin, Tensor* rows) {
            return ReadAll(*file, offset + static_cast<uint64_t>(begin) * row,
                           rows->raw(), rows->bytes())
                .WithContext(fmt::format("'{}'", path));
          }};
}

Result<Safetensors> Read(const std::string& path, const Leave& leave,
                         FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> opened,
                          files.OpenRead(path));
  const std::shared_ptr<const ReadableFile> file = std::move(opened);
  uint64_t data = 0;
  SLUICE_ASSIGN_OR_RETURN(ParsedHeader parsed, ReadHeader(*file, &data));
  Safetensors result;
  uint32_t crc = parsed.header_crc;
  std::string buffer;
  for (TensorInfo& info : parsed.header.tensors) {
    const size_t bytes = info.end - info.begin;
    if (bytes > 0 && info.shape.rank() > 0 && info.dtype != DType::kBool &&
        leave(info.name)) {
      SLUICE_RETURN_IF_ERROR(
          ReadData(*file, data + info.begin, bytes, nullptr, &buffer, &crc));
      const uint64_t offset = data + info.begin;
      result.by_rows.push_back(InFile(std::move(info), file, offset, path));
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor,
                            AllocateTensor(info.dtype, info.shape));
    SLUICE_RETURN_IF_ERROR(ReadData(*file, data + info.begin, bytes,
                                    static_cast<char*>(tensor.raw()), &buffer,
                                    &crc));
    NamedTensor named{std::move(info.name), std::move(tensor)};
    SLUICE_RETURN_IF_ERROR(CheckBools(named));
    result.tensors.push_back(std::move(named));
  }
  if (parsed.checksum && ChecksumText(crc) != *parsed.checksum) {
    return DataLoss("the checksum is wrong; the file is damaged");
  }
  result.metadata = std::move(parsed.header.metadata);
  result.checksummed = parsed.checksum.has_value();
  return result;
}

}  // namespace

Result<Safetensors> ReadSafetensors(const std::string& path, const Leave& leave,
                                    FileSystem& files) {
  return WithPath(CatchErrors([&] { return Read(path, leave, files); }), path);
}

}  // namespace sluice
