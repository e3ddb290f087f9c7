#include "io/checkpoints/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "engine/allocate.h"
#include "io/checkpoints/safetensors_header.h"
#include "io/files/gzip.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data are little-endian");

std::string_view BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

// What goes into a file: a tensor, or one that is read as it is written.
struct Item {
  TensorInfo info;
  const Tensor* whole = nullptr;
  const RowsTensor* rows = nullptr;

  // Its bytes in order.
  Status ForBytes(
      const std::function<Status(std::string_view bytes)>& fn) const {
    if (whole != nullptr) return fn(BytesOf(*whole));
    return ForRows(
        *rows, [&](int64_t, const Tensor& some) { return fn(BytesOf(some)); });
  }
};

// In the order of their data: wide elements first keep every tensor aligned to
// its element.
Result<std::vector<Item>> ItemsOf(std::span<const NamedTensor> tensors,
                                  std::span<const RowsTensor> by_rows) {
  std::vector<Item> items;
  for (const NamedTensor& t : tensors) {
    items.push_back({{t.name, t.tensor.dtype(), t.tensor.shape()}, &t.tensor});
  }
  for (const RowsTensor& t : by_rows) {
    items.push_back({{t.name, t.dtype, t.shape}, nullptr, &t});
  }
  std::set<std::string_view> names;
  for (const Item& item : items) {
    const std::string& name = item.info.name;
    if (name.empty() || name == kMetadataKey) {
      return InvalidArgument(fmt::format(
          "safetensors: '{}' cannot be the name of a tensor", name));
    }
    if (!names.insert(name).second) {
      return InvalidArgument(
          fmt::format("safetensors: two tensors have the name '{}'", name));
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) {
                     return SizeOf(a.info.dtype) > SizeOf(b.info.dtype);
                   });
  size_t at = 0;
  for (Item& item : items) {
    item.info.begin = at;
    at += static_cast<size_t>(item.info.shape.elements()) *
          SizeOf(item.info.dtype);
    item.info.end = at;
  }
  return items;
}

Result<uint32_t> WithData(uint32_t crc, std::span<const Item> items) {
  for (const Item& item : items) {
    SLUICE_RETURN_IF_ERROR(item.ForBytes([&](std::string_view bytes) -> Status {
      crc = Crc32(crc, bytes);
      return {};
    }));
  }
  return crc;
}

// What is read as it is written was read for the checksum before.
Status Stream(const std::string& head, uint32_t header_crc, uint32_t crc,
              std::span<const Item> items, const FileSystem::Append& append) {
  SLUICE_RETURN_IF_ERROR(append(head));
  uint32_t written = header_crc;
  for (const Item& item : items) {
    SLUICE_RETURN_IF_ERROR(item.ForBytes([&](std::string_view bytes) {
      written = Crc32(written, bytes);
      return append(bytes);
    }));
  }
  if (written == crc) return {};
  return FailedPrecondition("its tensors have changed while they were written");
}

}  // namespace

Status ForRows(
    const RowsTensor& tensor,
    const std::function<Status(int64_t begin, const Tensor& rows)>& fn) {
  constexpr int64_t kBytesAtOnce = 4 << 20;
  Shape shape = tensor.shape;
  const int64_t all = shape[0];
  const int64_t row = shape.elements(1, shape.rank()) *
                      static_cast<int64_t>(SizeOf(tensor.dtype));
  const int64_t at_once =
      std::max<int64_t>(kBytesAtOnce / std::max<int64_t>(row, 1), 1);
  Tensor rows;
  for (int64_t begin = 0; begin < all; begin += at_once) {
    const int64_t count = std::min(at_once, all - begin);
    if (begin == 0 || count < at_once) {
      shape.set(0, count);
      SLUICE_ASSIGN_OR_RETURN(rows, AllocateTensor(tensor.dtype, shape));
    }
    SLUICE_RETURN_IF_ERROR(tensor.read(begin, &rows));
    SLUICE_RETURN_IF_ERROR(fn(begin, rows));
  }
  return {};
}

Status WriteSafetensors(const std::string& path,
                        std::span<const NamedTensor> tensors,
                        std::span<const RowsTensor> by_rows,
                        const Metadata& metadata, FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Item> items,
                          ItemsOf(tensors, by_rows));
  std::vector<TensorInfo> infos;
  for (const Item& item : items) infos.push_back(item.info);
  uint32_t header_crc = 0, crc = 0;
  auto head =
      FileHead(infos, metadata, [&](uint32_t of_header) -> Result<uint32_t> {
        header_crc = of_header;
        SLUICE_ASSIGN_OR_RETURN(crc, WithData(of_header, items));
        return crc;
      });
  if (!head.ok()) {
    return head.status().WithContext(fmt::format("cannot write '{}'", path));
  }
  if (!by_rows.empty()) {
    return files
        .StreamAtomically(path,
                          [&](const FileSystem::Append& append) {
                            return Stream(*head, header_crc, crc, items,
                                          append);
                          })
        .WithContext(fmt::format("cannot write '{}'", path));
  }
  std::vector<std::string_view> pieces = {*head};
  for (const Item& item : items) pieces.push_back(BytesOf(*item.whole));
  return files.WriteAtomically(path, pieces);
}

}  // namespace sluice
