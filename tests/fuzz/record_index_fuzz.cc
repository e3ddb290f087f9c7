// Any bytes are an index, F.idx, of a file of records F, or an error: one that
// is believed says where the file's records are as walking it does, as far as
// its own lines go. The index is behind the first line end of the input, the
// records' lengths in front of it.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/files/record.h"
#include "io/records/record_files.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

// Records as long as the bytes say.
std::string RecordsOf(std::string_view lengths) {
  std::string file;
  for (const char length : lengths) {
    AppendRecord(std::string(static_cast<unsigned char>(length), 'x'), &file);
  }
  return file;
}

void Check(std::string_view lengths, std::string_view index) {
  testing::FaultFileSystem files;
  const std::string file = RecordsOf(lengths);
  ThrowIfError(files.Create("f").ValueOrThrow()->Append(file));
  const auto walked = RecordFiles::Open({"f"}, 1, files).ValueOrThrow();
  SLUICE_CHECK(walked->size() == static_cast<int64_t>(lengths.size()));
  ThrowIfError(files.Create("f.idx").ValueOrThrow()->Append(index));
  const auto indexed = RecordFiles::Open({"f"}, 1, files);
  if (!indexed.ok()) {
    SLUICE_CHECK(indexed.status().code() == Code::kDataLoss);
    return;
  }
  const int64_t records = (*indexed)->size();
  SLUICE_CHECK(records <= walked->size());
  for (int64_t i = 0; i < records; ++i) {
    const auto read = (*indexed)->Read(i);
    // A line of several records is told when it is read.
    if (!read.ok()) {
      SLUICE_CHECK(read.status().code() == Code::kDataLoss);
    } else if (records == walked->size()) {
      SLUICE_CHECK(*read == walked->Read(i).ValueOrThrow());
    }
    SLUICE_CHECK((*indexed)->PlaceOf(i).starts_with("'f', byte "));
  }
  (void)(*indexed)->Identity();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\n');
  const std::string_view lengths = bytes.substr(0, end).substr(0, 100);
  sluice::Check(lengths,
                end == bytes.npos ? std::string_view() : bytes.substr(end + 1));
  return 0;
}
