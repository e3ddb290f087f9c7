// Writes TFRecord files (io/files/record.h), also compressed as a whole by gzip
// or zlib, as TensorFlow's TFRecordWriter does.
#ifndef SLUICE_IO_RECORDS_RECORD_WRITER_H_
#define SLUICE_IO_RECORDS_RECORD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/compression.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

// Writes a file of records and, if that is not compressed, its index PATH.idx,
// by which RecordFiles finds them. The file appears whole in Close or not at
// all, and what had its name before stays until then. One thread at a time.
class RecordWriter {
 public:
  // Errors of FileSystem::Create. `files` outlives it.
  static Result<std::unique_ptr<RecordWriter>> Create(
      const std::string& path, Compression compression = Compression::kNone,
      FileSystem& files = FileSystem::Default());
  // Without a Close before, leaves no file behind.
  ~RecordWriter();

  // Appends a record. Errors of WritableFile; after one it can only be
  // destroyed.
  Status Write(std::string_view payload);
  // Makes the file whole. Nothing may be called afterwards.
  Status Close();

  int64_t records() const;  // so far

 private:
  struct State;
  explicit RecordWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_RECORD_WRITER_H_
