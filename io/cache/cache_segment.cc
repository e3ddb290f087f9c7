#include "io/cache/cache_segment.h"

#include <algorithm>
#include <cstring>

#include "io/cache/example_bytes.h"
#include "io/cache/record_source.h"

namespace sluice {
namespace {

constexpr std::string_view kFormat = "sluice cached examples 1\n";
constexpr size_t kLeastRecordBytes = kRecordFrameBytes + sizeof(int64_t);
constexpr size_t kEntriesAtOnce = 4096;

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A record is not damaged because memory has run out.
void ThrowIfNoMemory(const Status& status) {
  if (status.code() == Code::kResourceExhausted) throw Error(status);
}

}  // namespace

std::string ExamplesPath(const std::string& segment) {
  return segment + ".examples";
}

std::string IndexPath(const std::string& segment) {
  return segment + ".index";
}

std::string IndexHead(std::string_view key) {
  std::string head;
  AppendRecord(std::string(kFormat).append(key), &head);
  return head;
}

std::string RecordOf(int64_t number, const Example& example) {
  std::string payload(BytesOf(number)), record;
  AppendExampleBytes(example, &payload);
  AppendRecord(payload, &record);
  return record;
}

std::optional<Example> ExampleOf(int64_t number, std::string_view record) {
  const auto payload = RecordPayload(record);
  if (!payload.ok() || payload->size() + kRecordFrameBytes != record.size() ||
      !payload->starts_with(BytesOf(number))) {
    return {};
  }
  auto example = ParseExampleBytes(payload->substr(sizeof(number)));
  ThrowIfNoMemory(example.status());
  if (!example.ok()) return {};
  return *std::move(example);
}

std::optional<Example> ReadExample(int64_t number, const ReadableFile& examples,
                                   uint64_t offset, uint64_t bytes,
                                   std::string* buffer) {
  RecordSource record(examples, offset, bytes, buffer);
  if (!record.ReadHead().ok() || record.left() < sizeof(number)) return {};
  const auto of = record.Take(sizeof(number));
  if (!of.ok() || *of != BytesOf(number)) return {};
  auto example = ParseExample(record);
  ThrowIfNoMemory(example.status());
  if (!example.ok() || !record.Verify().ok()) return {};
  return *std::move(example);
}

std::vector<IndexEntry> IndexReader::ReadOn(const std::string& segment,
                                            std::string_view head,
                                            FileSystem& files) {
  std::vector<IndexEntry> entries;
  const auto index = files.OpenRead(IndexPath(segment));
  if (!index.ok() || !CheckHead(**index, head)) return entries;
  ReadEntries(**index, &entries);
  // Looked up when the entries have been read: then it has their records.
  const auto size = files.Size(ExamplesPath(segment));
  const uint64_t end = size.ok() ? *size : 0;
  std::erase_if(entries, [end](const IndexEntry& entry) {
    return entry.bytes < kLeastRecordBytes || entry.offset > end ||
           entry.bytes > end - entry.offset;
  });
  return entries;
}

// False where the index is another key's, or not whole yet.
bool IndexReader::CheckHead(const ReadableFile& index, std::string_view head) {
  if (position_ > 0) return true;
  std::string bytes(head.size(), '\0');
  const auto got = index.ReadAt(0, bytes.data(), bytes.size());
  if (!got.ok() || *got < head.size() || bytes != head) return false;
  position_ = head.size();
  return true;
}

void IndexReader::ReadEntries(const ReadableFile& index,
                              std::vector<IndexEntry>* entries) {
  std::string bytes;
  for (size_t whole = 1; whole > 0; position_ += whole * kEntryBytes) {
    bytes.resize(kEntriesAtOnce * kEntryBytes);
    const auto got = index.ReadAt(position_, bytes.data(), bytes.size());
    whole = got.ok() ? *got / kEntryBytes : 0;
    for (size_t i = 0; i < whole; ++i) {
      const auto payload = RecordPayload(
          std::string_view(bytes).substr(i * kEntryBytes, kEntryBytes));
      IndexEntry entry{};
      if (!payload.ok() || payload->size() != sizeof(entry)) continue;
      std::memcpy(&entry, payload->data(), sizeof(entry));
      entries->push_back(entry);
    }
  }
}

Status SegmentWriter::Create() {
  SLUICE_ASSIGN_OR_RETURN(examples_, files_.Create(ExamplesPath(segment_)));
  SLUICE_ASSIGN_OR_RETURN(readable_, files_.OpenRead(ExamplesPath(segment_)));
  SLUICE_ASSIGN_OR_RETURN(index_, files_.Create(IndexPath(segment_)));
  return index_->Append(head_);
}

Result<IndexEntry> SegmentWriter::Append(int64_t number,
                                         const std::string& record) {
  const uint64_t written = BytesWith(record.size());
  if (index_ == nullptr) SLUICE_RETURN_IF_ERROR(Create());
  const IndexEntry entry = {number, offset_, record.size()};
  std::string entry_record;
  AppendRecord(BytesOf(entry), &entry_record);
  SLUICE_RETURN_IF_ERROR(examples_->Append(record));
  SLUICE_RETURN_IF_ERROR(index_->Append(entry_record));
  written_ = written;
  offset_ += record.size();
  return entry;
}

}  // namespace sluice
