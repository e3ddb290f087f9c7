#include "io/files/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "io/files/gzip.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the numbers of a zip archive are little-endian");

constexpr std::string_view kLocalSignature("PK\3\4", 4);
constexpr std::string_view kEntrySignature("PK\1\2", 4);
constexpr std::string_view kEndSignature("PK\5\6", 4);
constexpr std::string_view kZip64Signature("PK\6\6", 4);
constexpr std::string_view kLocatorSignature("PK\6\7", 4);
// Bytes of each without its strings.
constexpr size_t kLocalBytes = 30;
constexpr size_t kEntryBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kZip64Bytes = 56;
constexpr size_t kLocatorBytes = 20;

constexpr size_t kMaxComment = 0xffff;
constexpr uint16_t kOnes16 = 0xffff;      // the number is in the zip64 record
constexpr uint32_t kOnes32 = 0xffffffff;  // or in the entry's extra field
constexpr uint16_t kZip64Extra = 1;

// The number at byte `at`, which the caller knows to be there.
template <typename T>
T Load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Are there `length` bytes from `at`?
bool Holds(std::string_view bytes, uint64_t at, uint64_t length) {
  return at <= bytes.size() && length <= bytes.size() - at;
}

// Where the directory is.
struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;
};

// The byte that the end record starts at: the last whose comment reaches to the
// end of the archive.
std::optional<size_t> FindEnd(std::string_view bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t last = bytes.size() - kEndBytes;
  const size_t first = last - std::min(last, kMaxComment);
  for (size_t at = last + 1; at-- > first;) {
    if (bytes.substr(at, 4) == kEndSignature &&
        Load<uint16_t>(bytes, at + 20) == last - at) {
      return at;
    }
  }
  return std::nullopt;
}

// `before` is the archive up to the end record, behind which a locator says
// where the zip64 record is; nothing if there is no locator.
Result<std::optional<Directory>> Zip64Directory(std::string_view before) {
  if (before.size() < kLocatorBytes) return std::optional<Directory>();
  const size_t at = before.size() - kLocatorBytes;
  const std::string_view locator = before.substr(at);
  if (!locator.starts_with(kLocatorSignature)) {
    return std::optional<Directory>();
  }
  const auto record_at = Load<uint64_t>(locator, 8);
  if (!Holds(before.substr(0, at), record_at, kZip64Bytes)) {
    return DataLoss("the zip64 record is outside the file");
  }
  const std::string_view record = before.substr(record_at);
  if (!record.starts_with(kZip64Signature)) {
    return DataLoss(
        fmt::format("there is no zip64 record at byte {}", record_at));
  }
  if (Load<uint32_t>(record, 16) != 0 || Load<uint32_t>(record, 20) != 0) {
    return Unimplemented("archives of several disks are not supported");
  }
  return std::optional(Directory{.entries = Load<uint64_t>(record, 32),
                                 .bytes = Load<uint64_t>(record, 40),
                                 .at = Load<uint64_t>(record, 48)});
}

Result<Directory> FindDirectory(std::string_view bytes) {
  const std::optional<size_t> end_at = FindEnd(bytes);
  if (!end_at) {
    return DataLoss(
        "truncated: the archive's directory is missing from the end");
  }
  const std::string_view end = bytes.substr(*end_at);
  Directory directory{.entries = Load<uint16_t>(end, 10),
                      .bytes = Load<uint32_t>(end, 12),
                      .at = Load<uint32_t>(end, 16)};
  if (directory.entries == kOnes16 || directory.bytes == kOnes32 ||
      directory.at == kOnes32) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<Directory> large,
                            Zip64Directory(bytes.substr(0, *end_at)));
    if (large) directory = *large;
  } else if (Load<uint16_t>(end, 4) != 0 || Load<uint16_t>(end, 6) != 0) {
    return Unimplemented("archives of several disks are not supported");
  }
  if (!Holds(bytes.substr(0, *end_at), directory.at, directory.bytes)) {
    return DataLoss(
        fmt::format("truncated: a directory of {} bytes at byte {} does not "
                    "fit in {} bytes",
                    directory.bytes, directory.at, bytes.size()));
  }
  return directory;
}

// An entry as the directory has it.
struct Record {
  ZipEntry entry;
  uint64_t packed = 0;  // bytes
  uint64_t size = 0;    // bytes, unpacked
  uint64_t at = 0;      // of the local header
  uint64_t end = 0;     // of the data
};

// Replaces the numbers that are all ones by those of the zip64 extra field,
// which has only these.
Status TakeZip64(std::string_view extra, Record& record) {
  std::string_view numbers;
  while (extra.size() >= 4) {
    const size_t length = Load<uint16_t>(extra, 2);
    if (!Holds(extra, 4, length)) break;
    if (Load<uint16_t>(extra, 0) == kZip64Extra) {
      numbers = extra.substr(4, length);
      break;
    }
    extra.remove_prefix(4 + length);
  }
  for (uint64_t* number : {&record.size, &record.packed, &record.at}) {
    if (*number != kOnes32) continue;
    if (numbers.size() < 8) {
      return DataLoss(fmt::format("entry '{}' lacks a size or place of 64 bits",
                                  record.entry.name));
    }
    *number = Load<uint64_t>(numbers, 0);
    numbers.remove_prefix(8);
  }
  return {};
}

// Cuts the first entry off the directory.
Result<Record> TakeRecord(std::string_view& directory) {
  if (directory.size() < kEntryBytes ||
      !directory.starts_with(kEntrySignature)) {
    return DataLoss("the directory has fewer entries than it announces");
  }
  const std::string_view fixed = directory.substr(0, kEntryBytes);
  const size_t name = Load<uint16_t>(fixed, 28);
  const size_t extra = Load<uint16_t>(fixed, 30);
  const size_t comment = Load<uint16_t>(fixed, 32);
  directory.remove_prefix(kEntryBytes);
  if (!Holds(directory, 0, name + extra + comment)) {
    return DataLoss("the directory stops within an entry");
  }
  Record record;
  record.entry = {.name = directory.substr(0, name),
                  .data = {},
                  .crc = Load<uint32_t>(fixed, 16),
                  .method = Load<uint16_t>(fixed, 10),
                  .encrypted = (Load<uint16_t>(fixed, 8) & 1) != 0};
  record.packed = Load<uint32_t>(fixed, 20);
  record.size = Load<uint32_t>(fixed, 24);
  record.at = Load<uint32_t>(fixed, 42);
  SLUICE_RETURN_IF_ERROR(TakeZip64(directory.substr(name, extra), record));
  directory.remove_prefix(name + extra + comment);
  return record;
}

// Finds the entry's data in `bytes`, which end where the directory starts.
Status Locate(std::string_view bytes, Record& record) {
  ZipEntry& entry = record.entry;
  if (!Holds(bytes, record.at, kLocalBytes) ||
      bytes.substr(record.at, 4) != kLocalSignature) {
    return DataLoss(
        fmt::format("entry '{}' is not at byte {}", entry.name, record.at));
  }
  const std::string_view local = bytes.substr(record.at);
  const size_t name = Load<uint16_t>(local, 26);
  const size_t extra = Load<uint16_t>(local, 28);
  if (local.substr(kLocalBytes, name) != entry.name) {
    return DataLoss(fmt::format("entry '{}' has another name in the directory",
                                local.substr(kLocalBytes, name)));
  }
  const size_t header = kLocalBytes + name + extra;
  if (!Holds(local, header, record.packed)) {
    return DataLoss(fmt::format("entry '{}' of {} bytes is cut off", entry.name,
                                record.packed));
  }
  if (entry.method == 0 && !entry.encrypted && record.packed != record.size) {
    return DataLoss(fmt::format("entry '{}' is stored, but {} bytes take {}",
                                entry.name, record.size, record.packed));
  }
  entry.data = local.substr(header, record.packed);
  record.end = record.at + header + record.packed;
  return {};
}

// An archive whose entries share bytes could stand for far more than it takes.
Status CheckApart(std::vector<Record> records) {
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.at < b.at; });
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].at < records[i - 1].end) {
      return DataLoss(fmt::format("entries '{}' and '{}' overlap",
                                  records[i - 1].entry.name,
                                  records[i].entry.name));
    }
  }
  return {};
}

}  // namespace

bool IsZip(std::string_view bytes) {
  return bytes.starts_with(kLocalSignature);
}

Result<ZipArchive> ZipArchive::Open(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes));
  std::string_view rest = bytes.substr(directory.at, directory.bytes);
  ZipArchive archive;
  std::vector<Record> records;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Record record, TakeRecord(rest));
    SLUICE_RETURN_IF_ERROR(Locate(bytes.substr(0, directory.at), record));
    archive.entries_.push_back(record.entry);
    if (!archive.index_.emplace(record.entry.name, i).second) {
      return DataLoss(
          fmt::format("entry '{}' is listed twice", record.entry.name));
    }
    records.push_back(record);
  }
  if (!rest.empty()) {
    return DataLoss("the directory has more entries than it announces");
  }
  SLUICE_RETURN_IF_ERROR(CheckApart(std::move(records)));
  return archive;
}

Result<std::string_view> ZipArchive::Read(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return DataLoss(fmt::format("there is no entry '{}'", name));
  }
  const ZipEntry& entry = entries_[found->second];
  if (entry.encrypted) {
    return Unimplemented(
        fmt::format("entry '{}' is encrypted, which is not supported", name));
  }
  if (entry.method != 0) {
    return Unimplemented(fmt::format(
        "entry '{}' is compressed (method {}); only stored entries, as "
        "torch.save writes them, are supported",
        name, entry.method));
  }
  if (Crc32(0, entry.data) != entry.crc) {
    return DataLoss(fmt::format(
        "the checksum of entry '{}' is wrong; the file is damaged{}", name,
        entry.crc == 0 ? ", or was saved without checksums" : ""));
  }
  return entry.data;
}

}  // namespace sluice
