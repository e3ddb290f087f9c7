// Reader of CSV (RFC 4180), and of the same with tabs for commas (TSV, as
// spreadsheets write it).
//
//   file  := [0xEF 0xBB 0xBF] {[row] end} [row]
//   end   := LF | CR LF | CR
//   row   := field {separator field}; an empty line is none
//   field := {a byte but " separator CR LF} | '"' {a byte but " | '""'} '"'
//
// The separator is a comma unless the caller says otherwise.
// Blanks belong to their field. In quotes two quotes stand for one, and line
// ends for themselves. No byte is NUL; which encoding the others are in does
// not matter.
#ifndef SLUICE_IO_FILES_CSV_H_
#define SLUICE_IO_FILES_CSV_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/byte_stream.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

struct CsvRow {
  std::vector<std::string> fields;  // one at least
  int64_t line = 0;                 // that it begins in, from 1
  // From ParseCsv: the row as it was written, without its line end: a part of
  // the parsed text, and valid as long as that.
  std::string_view text = {};
};

// Takes the bytes of a file as they come and makes rows of them. One thread at
// a time. After an error nothing may be called.
class CsvParser {
 public:
  // `path` is only for messages. `separator` is none of NUL " CR LF.
  CsvParser(const std::string& path, char separator,
            uint64_t longest = std::numeric_limits<uint64_t>::max());

  // Takes some of the bytes, which follow those that were taken before: up to
  // the end of the next row, or all. Returns how many. kDataLoss, naming the
  // file, the line and what is wrong, for anything malformed and for a row of
  // more than `longest` bytes.
  Result<size_t> Take(std::string_view bytes);
  // No bytes follow: the last row is whole, if there is one. Errors as Take.
  Status End();

  // Whether the last call made a row whole.
  bool whole() const { return whole_; }
  // The row that was made whole, until the next call. The caller may take it.
  CsvRow& row() { return row_; }
  // Where the row's text lies among all bytes.
  uint64_t row_begin() const { return row_begin_; }
  uint64_t row_end() const { return row_end_; }

 private:
  enum class At : uint8_t {
    kBegin,     // in the byte order mark, maybe
    kBetween,   // rows
    kField,     // before its first byte
    kUnquoted,  // in a field
    kQuoted,    // behind an opening quote
    kQuote,     // behind a quote in a quoted field: doubled, or the last
  };

  Status Malformed(int64_t line, std::string_view what) const;
  size_t TakeMark(std::string_view bytes);
  size_t TakeBetween(std::string_view bytes);
  Result<size_t> TakeUnquoted(std::string_view bytes);
  Result<size_t> TakeQuoted(std::string_view bytes);
  Result<size_t> TakeBehindField(char c);
  void BeginRow(uint64_t at);
  void EndField();
  void EndRow();

  const std::string path_;
  const char separator_;
  const uint64_t longest_;
  std::array<bool, 256> ends_unquoted_{};  // whether a byte is in none
  At at_ = At::kBegin;
  size_t mark_ = 0;        // bytes of the mark that have been seen
  bool after_cr_ = false;  // whether an LF is of the line end before
  char in_quotes_before_ = '\0';
  int64_t line_ = 1;
  int64_t opened_ = 1;  // line of the last opening quote
  uint64_t taken_ = 0;  // bytes
  uint64_t row_begin_ = 0, row_end_ = 0;
  bool whole_ = false;
  std::string field_;
  CsvRow row_;
};

// Parses all of a text. kDataLoss as CsvParser says; `path` is only for
// messages.
Result<std::vector<CsvRow>> ParseCsv(std::string_view text,
                                     const std::string& path,
                                     char separator = ',');

// The rows of a file from the first to the last, also of one that is compressed
// by gzip. Holds little more than one row. One thread at a time. After an error
// nothing may be called.
class CsvStream {
 public:
  static constexpr uint64_t kLongest = uint64_t{64} << 20;

  static Result<std::unique_ptr<CsvStream>> Open(
      const std::string& path, char separator,
      FileSystem& files = FileSystem::Default(), uint64_t longest = kLongest);

  // The next row, whose text is empty; false where there is none. Errors of
  // CsvParser and of ByteStream.
  Result<bool> Next(CsvRow* row);
  // Passes over n rows; returns how many there were. Errors as Next.
  Result<int64_t> Skip(int64_t n);

 private:
  CsvStream(const std::string& path, char separator, uint64_t longest,
            std::unique_ptr<ByteStream> bytes);

  CsvParser parser_;
  const std::unique_ptr<ByteStream> bytes_;
};

// A field as ParseCsv reads it back, between commas: in quotes where it must
// be.
std::string CsvField(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_CSV_H_
