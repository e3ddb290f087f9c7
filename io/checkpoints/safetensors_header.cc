#include "io/checkpoints/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "io/files/gzip.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr size_t kMaxHeaderBytes = 100'000'000;  // as the reference reader
// The tensors' data start at a multiple of this within the file.
constexpr size_t kDataAlignment = 64;
constexpr char kChecksumKey[] = "sluice.crc32";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kDTypeNames[] = {
    {DType::kFloat32, "F32"}, {DType::kFloat64, "F64"},
    {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"},
    {DType::kInt8, "I8"},     {DType::kUInt8, "U8"},
    {DType::kInt32, "I32"},   {DType::kInt64, "I64"},
    {DType::kBool, "BOOL"},
};

std::string_view NameInFile(DType dtype) {
  for (const DTypeName& d : kDTypeNames) {
    if (d.dtype == dtype) return d.name;
  }
  return "";
}

std::optional<DType> DTypeInFile(std::string_view name) {
  for (const DTypeName& d : kDTypeNames) {
    if (d.name == name) return d.dtype;
  }
  return std::nullopt;
}

// The header text that the checksum covers: sorted keys, no checksum, no
// padding. Both sides make it from the parsed header.
std::string CanonicalHeader(json header) {
  if (header.contains(kMetadataKey)) {
    header[kMetadataKey].erase(kChecksumKey);
    if (header[kMetadataKey].empty()) header.erase(kMetadataKey);
  }
  return header.dump();
}

Result<json> ParseHeaderText(std::string_view text) {
  // The parser would take it for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return DataLoss("a zero byte in the header");
  }
  std::set<std::string> names;
  std::string duplicate;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.insert(name).second) duplicate = name;
    }
    // Nothing legal nests deeper: object, tensor, list.
    return depth <= 3;
  };
  json header = json::parse(text.begin(), text.end(), check, false);
  if (header.is_discarded() || !header.is_object()) {
    return DataLoss("the header is not a JSON object");
  }
  if (!duplicate.empty()) {
    return DataLoss(fmt::format("tensor '{}' is listed twice", duplicate));
  }
  return header;
}

Result<Metadata> ParseMetadata(const json& header) {
  Metadata metadata;
  const auto found = header.find(kMetadataKey);
  if (found == header.end()) return metadata;
  if (!found->is_object()) return DataLoss("__metadata__ is not an object");
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) {
      return DataLoss(fmt::format("metadata '{}' is not a string", key));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

Result<TensorInfo> ParseTensorInfo(const std::string& name, const json& entry) {
  const auto bad = [&](std::string_view what) {
    return DataLoss(fmt::format("tensor '{}': {}", name, what));
  };
  if (!entry.is_object() || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return bad("its entry needs dtype, shape and data_offsets");
  }
  const json& dtype = entry["dtype"];
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  if (!dtype.is_string()) return bad("dtype is not a string");
  TensorInfo info;
  info.name = name;
  const auto known = DTypeInFile(dtype.get_ref<const std::string&>());
  if (!known) {
    return Unimplemented(fmt::format("tensor '{}': unknown dtype '{}'", name,
                                     dtype.get_ref<const std::string&>()));
  }
  info.dtype = *known;
  if (!shape.is_array() || shape.size() > size_t{Shape::kMaxRank}) {
    return bad("shape is not a list of at most 8 dimensions");
  }
  for (const json& d : shape) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > uint64_t{1} << 62) {
      return bad("a dimension is not a sensible number");
    }
    info.shape.push_back(d.get<int64_t>());
  }
  if (!offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return bad("data_offsets are not two numbers");
  }
  info.begin = offsets[0].get<size_t>();
  info.end = offsets[1].get<size_t>();
  if (info.end < info.begin) return bad("data_offsets end before they begin");
  const Status possible = CheckTensorSize(info.dtype, info.shape);
  if (!possible.ok()) return bad(possible.message());
  const size_t bytes = info.end - info.begin;
  const size_t width = SizeOf(info.dtype);
  if (bytes % width != 0 ||
      bytes / width != static_cast<size_t>(info.shape.elements())) {
    return bad(fmt::format("{} of shape {} does not take {} bytes",
                           NameOf(info.dtype), info.shape.ToString(), bytes));
  }
  return info;
}

// Tensors must fill the data from 0 to the end without holes or overlaps.
Status CheckLayout(const std::vector<TensorInfo>& tensors, size_t data_bytes) {
  size_t at = 0;
  for (const TensorInfo& t : tensors) {
    if (t.begin != at) {
      return DataLoss(
          fmt::format("tensor '{}' starts at byte {} of the data, the one "
                      "before ends at {}",
                      t.name, t.begin, at));
    }
    at = t.end;
  }
  if (at == data_bytes) return {};
  return DataLoss(
      fmt::format("{}: the tensors need {} bytes of data, there are {}",
                  at > data_bytes ? "truncated" : "too long", at, data_bytes));
}

}  // namespace

std::string ChecksumText(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

Result<size_t> HeaderLength(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return DataLoss(fmt::format("truncated: {} bytes are too few for a header",
                                bytes.size()));
  }
  uint64_t length;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return DataLoss(fmt::format(
        "a header of {} bytes is announced, at most {} are allowed; is this a "
        "safetensors file?",
        length, kMaxHeaderBytes));
  }
  return static_cast<size_t>(length);
}

Result<ParsedHeader> ParseHeader(std::string_view text, size_t data_bytes) {
  SLUICE_ASSIGN_OR_RETURN(json root, ParseHeaderText(text));
  ParsedHeader parsed;
  SafetensorsHeader& header = parsed.header;
  header.data_bytes = data_bytes;
  SLUICE_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(root));
  for (const auto& [name, entry] : root.items()) {
    if (name == kMetadataKey) continue;
    SLUICE_ASSIGN_OR_RETURN(TensorInfo info, ParseTensorInfo(name, entry));
    header.tensors.push_back(std::move(info));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) <
                            std::pair(b.begin, b.end);
                   });
  SLUICE_RETURN_IF_ERROR(CheckLayout(header.tensors, data_bytes));
  if (auto crc = header.metadata.extract(kChecksumKey); !crc.empty()) {
    header.checksum = std::move(crc.mapped());
    parsed.header_crc = Crc32(0, CanonicalHeader(std::move(root)));
  }
  return parsed;
}

Status ReadAll(const ReadableFile& file, uint64_t offset, void* out, size_t n) {
  SLUICE_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(offset, out, n));
  if (got == n) return {};
  return DataLoss(fmt::format("truncated: it ends at byte {}", offset + got));
}

Result<ParsedHeader> ReadHeader(const ReadableFile& file, uint64_t* data) {
  std::string text(std::min<uint64_t>(kLengthBytes, file.size()), '\0');
  SLUICE_RETURN_IF_ERROR(ReadAll(file, 0, text.data(), text.size()));
  SLUICE_ASSIGN_OR_RETURN(const size_t length, HeaderLength(text));
  if (file.size() - kLengthBytes < length) {
    return DataLoss("truncated within the header");
  }
  text.resize(length);
  SLUICE_RETURN_IF_ERROR(ReadAll(file, kLengthBytes, text.data(), length));
  *data = kLengthBytes + length;
  return ParseHeader(text, file.size() - *data);
}

Result<std::string> FileHead(
    std::span<const TensorInfo> tensors, const Metadata& metadata,
    const std::function<Result<uint32_t>(uint32_t crc)>& with_data) {
  try {
    json header = json::object();
    if (!metadata.empty()) header[kMetadataKey] = metadata;
    for (const TensorInfo& t : tensors) {
      header[t.name] = {{"dtype", NameInFile(t.dtype)},
                        {"shape", t.shape.dims()},
                        {"data_offsets", {t.begin, t.end}}};
    }
    SLUICE_ASSIGN_OR_RETURN(const uint32_t crc,
                            with_data(Crc32(0, CanonicalHeader(header))));
    header[kMetadataKey][kChecksumKey] = ChecksumText(crc);
    std::string text = header.dump();
    const size_t used = (kLengthBytes + text.size()) % kDataAlignment;
    if (used > 0) text.append(kDataAlignment - used, ' ');
    const uint64_t length = text.size();
    std::string head(reinterpret_cast<const char*>(&length), kLengthBytes);
    return head + text;
  } catch (const json::exception&) {
    return InvalidArgument("a name or a metadata string is not UTF-8");
  }
}

Status CheckBools(const NamedTensor& t) {
  if (t.tensor.dtype() != DType::kBool) return {};
  const auto* bytes = static_cast<const uint8_t*>(t.tensor.raw());
  if (std::all_of(bytes, bytes + t.tensor.bytes(),
                  [](uint8_t b) { return b <= 1; })) {
    return {};
  }
  return DataLoss(
      fmt::format("tensor '{}': a BOOL is neither 0 nor 1", t.name));
}

}  // namespace sluice
