#include "io/sources/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "engine/allocate.h"
#include "io/files/gzip.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

// The bytes of a file in order, decompressed if need be.
class ByteSource {
 public:
  explicit ByteSource(std::string_view bytes) : bytes_(bytes) {
    if (IsGzip(bytes)) gzip_.emplace(bytes);
  }

  // No more bytes than this can follow. Meaningful before the first Read.
  size_t bound() const {
    return gzip_ ? bytes_.size() * kMaxGzipRatio : bytes_.size();
  }
  // Fewer than n only at the end.
  Result<size_t> Read(void* out, size_t n) {
    if (gzip_) return gzip_->Read(out, n);
    n = std::min(n, bytes_.size());
    if (n > 0) std::memcpy(out, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view bytes_;
  std::optional<GzipReader> gzip_;
};

Result<DType> DTypeOfIdx(uint8_t type) {
  switch (type) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return Unimplemented("int16 elements are not supported");
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return DataLoss(
          fmt::format("unknown element type 0x{:02x} in the magic number; is "
                      "this an IDX file?",
                      type));
  }
}

void SwapBytes(Tensor& tensor) {
  const size_t width = SizeOf(tensor.dtype());
  if (std::endian::native == std::endian::big || width == 1) return;
  char* p = static_cast<char*>(tensor.raw());
  for (char* end = p + tensor.bytes(); p != end; p += width) {
    std::reverse(p, p + width);
  }
}

Status ReadExactly(ByteSource& source, void* out, size_t n) {
  SLUICE_ASSIGN_OR_RETURN(const size_t got, source.Read(out, n));
  if (got == n) return {};
  return DataLoss(
      fmt::format("truncated: {} bytes where {} should follow", got, n));
}

Result<Tensor> Parse(std::string_view bytes) {
  ByteSource source(bytes);
  const size_t bound = source.bound();
  uint8_t magic[4];
  SLUICE_RETURN_IF_ERROR(ReadExactly(source, magic, sizeof(magic)));
  if (magic[0] != 0 || magic[1] != 0) {
    return DataLoss(
        fmt::format("wrong magic number {:02x}{:02x}{:02x}{:02x}; an IDX file "
                    "starts with 0000",
                    magic[0], magic[1], magic[2], magic[3]));
  }
  SLUICE_ASSIGN_OR_RETURN(const DType dtype, DTypeOfIdx(magic[2]));
  const int rank = magic[3];
  if (rank > Shape::kMaxRank) {
    return DataLoss(fmt::format("{} dimensions, at most {} are supported", rank,
                                Shape::kMaxRank));
  }
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    uint8_t d[4];
    SLUICE_RETURN_IF_ERROR(ReadExactly(source, d, sizeof(d)));
    shape.push_back(int64_t{d[0]} << 24 | d[1] << 16 | d[2] << 8 | d[3]);
  }
  SLUICE_RETURN_IF_ERROR(CheckTensorSize(dtype, shape));
  const int64_t elements = shape.elements();
  // Before any memory is taken for it.
  if (static_cast<uint64_t>(elements) > bound / SizeOf(dtype)) {
    return DataLoss(fmt::format(
        "truncated: dimensions {} of {} do not fit in a file of {} bytes",
        shape.ToString(), NameOf(dtype), bytes.size()));
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(dtype, shape));
  SLUICE_RETURN_IF_ERROR(ReadExactly(source, tensor.raw(), tensor.bytes()));
  char extra;
  SLUICE_ASSIGN_OR_RETURN(const size_t trailing, source.Read(&extra, 1));
  if (trailing != 0) {
    return DataLoss(fmt::format("bytes follow the {} elements that {} announce",
                                elements, shape.ToString()));
  }
  SwapBytes(tensor);
  return tensor;
}

}  // namespace

Result<Tensor> ParseIdx(std::string_view bytes, const std::string& path) {
  auto tensor = Parse(bytes);
  if (tensor.ok()) return tensor;
  return tensor.status().WithContext(fmt::format("'{}'", WithoutQuery(path)));
}

Result<Tensor> ReadIdx(const std::string& path, FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  return ParseIdx(bytes, path);
}

}  // namespace sluice
