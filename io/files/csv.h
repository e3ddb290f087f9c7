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

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace sluice {

struct CsvRow {
  std::vector<std::string> fields;  // one at least
  int64_t line = 0;                 // that it begins in, from 1
  // As it was written, without its line end: a part of the text parsed, and
  // valid as long as that.
  std::string_view text;
};

// kDataLoss, naming the file, the line and what is wrong, for anything
// malformed; `path` is only for messages. `separator` is ',' or '\t'.
Result<std::vector<CsvRow>> ParseCsv(std::string_view text,
                                     const std::string& path,
                                     char separator = ',');

// A field as ParseCsv reads it back, between commas: in quotes where it must
// be.
std::string CsvField(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_CSV_H_
