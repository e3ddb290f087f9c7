// What reads safetensors files, of which some tensors may be left where they
// are.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/allocate.h"
#include "engine/catch_errors.h"
#include "io/checkpoints/safetensors.h"
#include "io/checkpoints/safetensors_header.h"
#include "io/files/gzip.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

// At once: into a tensor enough that parts of an object come side by side, past
// it no more than may be in memory beside.
constexpr size_t kBytesIntoTensor = 32 << 20, kBytesPastIt = 4 << 20;

// Of bytes that are here already.
class InMemory final : public ReadableFile {
 public:
  // Which live as long.
  explicit InMemory(std::string_view bytes) : bytes_(bytes) {}
  explicit InMemory(std::string bytes) : own_(std::move(bytes)), bytes_(own_) {}
  InMemory(const InMemory&) = delete;
  InMemory& operator=(const InMemory&) = delete;

  uint64_t size() const override { return bytes_.size(); }
  Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
    if (offset >= bytes_.size()) return size_t{0};
    return bytes_.copy(static_cast<char*>(out), n, offset);
  }

 private:
  const std::string own_;
  const std::string_view bytes_;
};

using OpenFile = std::shared_ptr<const ReadableFile>;

// What a web server does not give in parts it may give as a whole.
Result<OpenFile> OpenOrRead(const std::string& path, FileSystem& files) {
  Result<std::unique_ptr<ReadableFile>> opened = files.OpenRead(path);
  if (opened.status().code() == Code::kUnimplemented) {
    SLUICE_ASSIGN_OR_RETURN(std::string bytes, files.Read(path));
    return OpenFile(std::make_shared<InMemory>(std::move(bytes)));
  }
  SLUICE_RETURN_IF_ERROR(opened.status());
  return OpenFile(*std::move(opened));
}

// What lies at `offset`, into a tensor or, where `out` is null, past it.
Status ReadData(const ReadableFile& file, uint64_t offset, size_t bytes,
                char* out, std::string* buffer, uint32_t* crc) {
  const size_t at_once = out == nullptr ? kBytesPastIt : kBytesIntoTensor;
  for (size_t at = 0; at < bytes;) {
    const size_t n = std::min(at_once, bytes - at);
    if (out == nullptr) buffer->resize(at_once);
    char* const to = out == nullptr ? buffer->data() : out + at;
    SLUICE_RETURN_IF_ERROR(ReadAll(file, offset + at, to, n));
    *crc = Crc32(*crc, {to, n});
    at += n;
  }
  return {};
}

RowsTensor InFile(TensorInfo info, OpenFile file, uint64_t offset,
                  const std::string& path) {
  const auto row =
      static_cast<uint64_t>(info.shape.elements(1, info.shape.rank())) *
      SizeOf(info.dtype);
  return {std::move(info.name), info.dtype, info.shape,
          [=, file = std::move(file)](int64_t begin, Tensor* rows) {
            return ReadAll(*file, offset + static_cast<uint64_t>(begin) * row,
                           rows->raw(), rows->bytes())
                .WithContext(fmt::format("'{}'", WithoutQuery(path)));
          }};
}

Result<Safetensors> ReadFrom(const OpenFile& file, const std::string& path,
                             const Leave& leave) {
  uint64_t data = 0;
  SLUICE_ASSIGN_OR_RETURN(ParsedHeader parsed, ReadHeader(*file, &data));
  Safetensors result;
  uint32_t crc = parsed.header_crc;
  std::string buffer;
  for (TensorInfo& info : parsed.header.tensors) {
    const size_t bytes = info.end - info.begin;
    const uint64_t offset = data + info.begin;
    if (leave && bytes > 0 && info.shape.rank() > 0 &&
        info.dtype != DType::kBool && leave(info.name)) {
      SLUICE_RETURN_IF_ERROR(
          ReadData(*file, offset, bytes, nullptr, &buffer, &crc));
      result.by_rows.push_back(InFile(std::move(info), file, offset, path));
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor,
                            AllocateTensor(info.dtype, info.shape));
    SLUICE_RETURN_IF_ERROR(ReadData(
        *file, offset, bytes, static_cast<char*>(tensor.raw()), &buffer, &crc));
    result.tensors.push_back({std::move(info.name), std::move(tensor)});
  }
  const std::optional<std::string>& checksum = parsed.header.checksum;
  if (checksum && ChecksumText(crc) != *checksum) {
    return DataLoss("the checksum is wrong; the file is damaged");
  }
  for (const NamedTensor& tensor : result.tensors) {
    SLUICE_RETURN_IF_ERROR(CheckBools(tensor));
  }
  result.metadata = std::move(parsed.header.metadata);
  result.checksummed = checksum.has_value();
  return result;
}

Result<SafetensorsHeader> ReadHeaderAlone(const std::string& path,
                                          FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const OpenFile file, OpenOrRead(path, files));
  uint64_t data = 0;
  SLUICE_ASSIGN_OR_RETURN(ParsedHeader parsed, ReadHeader(*file, &data));
  return std::move(parsed.header);
}

}  // namespace

Result<Safetensors> ReadSafetensors(const std::string& path, const Leave& leave,
                                    FileSystem& files) {
  return WithPath(CatchErrors([&]() -> Result<Safetensors> {
                    SLUICE_ASSIGN_OR_RETURN(const OpenFile file,
                                            OpenOrRead(path, files));
                    return ReadFrom(file, path, leave);
                  }),
                  path);
}

Result<Safetensors> ParseSafetensors(std::string_view bytes,
                                     const std::string& path) {
  return WithPath(CatchErrors([&] {
                    return ReadFrom(std::make_shared<InMemory>(bytes), path,
                                    nullptr);
                  }),
                  path);
}

Result<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path,
                                                FileSystem& files) {
  return WithPath(CatchErrors([&] { return ReadHeaderAlone(path, files); }),
                  path);
}

}  // namespace sluice
