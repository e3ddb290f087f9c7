// Any bytes are a file of records and a text, or an error: what the streams
// read of it is what readers of bytes in memory find, and skipping finds the
// same end.
#include <cstdint>
#include <string>
#include <string_view>

#include "io/files/gzip.h"
#include "io/files/line_stream.h"
#include "io/files/record.h"
#include "io/records/record_stream.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

void CheckRecords(FileSystem& files, std::string_view bytes) {
  const auto stream = RecordFileStream::Open("f", files).ValueOrThrow();
  RecordReader reader(bytes);
  const bool plain =
      RecordLength(bytes).ok() || CompressionOf(bytes) == Compression::kNone;
  int64_t records = 0;
  std::string payload;
  std::string_view expected;
  for (;; ++records) {
    const auto more = stream->Next(&payload);
    if (plain) {
      const auto wanted = reader.Next(&expected);
      SLUICE_CHECK(more.ok() == wanted.ok());
      if (more.ok()) SLUICE_CHECK(*more == *wanted);
      if (more.ok() && *more) SLUICE_CHECK(payload == expected);
    }
    if (!more.ok()) {
      SLUICE_CHECK(more.status().code() == Code::kDataLoss);
      return;
    }
    if (!*more) break;
  }
  const auto again = RecordFileStream::Open("f", files).ValueOrThrow();
  SLUICE_CHECK(again->Skip(records + 1).ValueOrThrow() == records);
}

void CheckLines(FileSystem& files, std::string_view bytes) {
  const auto stream = LineStream::Open("f", files).ValueOrThrow();
  int64_t lines = 0;
  size_t size = 0;
  std::string line;
  for (;; ++lines) {
    const auto more = stream->Next(&line);
    if (!more.ok()) {
      SLUICE_CHECK(IsGzip(bytes) && more.status().code() == Code::kDataLoss);
      return;
    }
    if (!*more) break;
    SLUICE_CHECK(line.find('\n') == line.npos);
    if (IsGzip(bytes)) continue;
    size = bytes.find(line, size);
    SLUICE_CHECK(size != bytes.npos);
    size += line.size();
  }
  const auto again = LineStream::Open("f", files).ValueOrThrow();
  SLUICE_CHECK(again->Skip(lines + 1).ValueOrThrow() == lines);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sluice::testing::FaultFileSystem files;
  sluice::ThrowIfError(files.Create("f").ValueOrThrow()->Append(bytes));
  sluice::CheckRecords(files, bytes);
  sluice::CheckLines(files, bytes);
  return 0;
}
