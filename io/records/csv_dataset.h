// Datasets of the rows of tables in CSV files (io/files/csv.h).
#ifndef SLUICE_IO_RECORDS_CSV_DATASET_H_
#define SLUICE_IO_RECORDS_CSV_DATASET_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/dtype.h"
#include "engine/number.h"
#include "engine/visibility.h"
#include "io/pipeline/dataset.h"
#include "io/records/file_datasets.h"

namespace SLUICE_PUBLIC sluice {

// A column of a table, and what its values become: a number, or, where that is
// said, the number of a word or text.
struct CsvColumn {
  std::string name;
  // The type of the numbers, which are read exactly, blanks around them left
  // out: float32, float64 (decimal, also with an exponent; inf and nan), an
  // integer type, or bool (0, 1, true, false).
  DType dtype = DType::kFloat32;
  // The value in place of one that is missing; without it that is an error.
  std::optional<Number> missing = std::nullopt;
  // Each value is one of these words: it becomes int64, the word's place in the
  // list. `missing` may be such a place.
  std::vector<std::string> words = {};
  // The values are text: uint8 [length], and never missing.
  bool text = false;
};

struct CsvOptions {
  // The columns that are read; others are passed over.
  std::vector<CsvColumn> columns = {};
  // If it is not 0, columns that are not in `columns` are read, too, as what
  // holds the values of the first so many rows of the first file: the first
  // such of int64, float32, float64 and text. A whole number without point or
  // exponent must be held exactly; other numbers need no more than the nearest
  // one, but from 2^24 on, where float32's steps become larger than 1, it holds
  // only those that it has as exactly as float64. So 16777217 and 0.5 are
  // float64, 2^53 + 1 and 0.5 are text. Missing values say nothing.
  int64_t infer_rows = 0;
  // The column whose values are the example's "label"; as `columns` say, or
  // else int64. Empty: none.
  std::string label = {};
  // The names of the columns of files that do not begin with a row of them.
  std::vector<std::string> header = {};
  // The texts that stand for a missing value, blanks around them left out.
  std::vector<std::string> missing = {""};
  // The separator of values. By default a tab in files called .tsv, .tab or the
  // same with .gz, in a web address before its query, else a comma.
  std::optional<char> separator = std::nullopt;
  // The order in which files are read.
  FileOptions files = {};
  // Reorders the rows before their values are read, by Shuffle and Repeat, for
  // example: needed where bad rows may be passed over, behind which rows cannot
  // be reordered.
  std::function<Dataset(const Dataset& rows)> order = nullptr;
  // How values are read: on how many threads, and whether rows may be passed
  // over that have too many or too few values or values that are none.
  MapOptions values = {};
};

namespace datasets {

// The rows of tables, plain or compressed by gzip, as the tensors that the
// columns' names say, each of shape [] unless it is text. Files are read in
// rows, and hold a header of the same names in the same order each. A row is
// held in memory as a whole; one of more than 64 MiB is an error.
//
// Throws Error where a file is not there, kDataLoss where the first file's
// header is malformed, empty or has a name twice, kInvalidArgument where a
// column is asked for that it does not have, or options contradict each other.
// An iterator returns kNotFound, kUnavailable and kDataLoss naming the file,
// the line, the row (from 1, without the header) and the column where a value
// is missing or none, and where a row has more or fewer values than the header.
// What is malformed in quotes ends a file: nobody knows where the next row
// begins. How many rows there are is not known before they have been read, but
// by Dataset::ExpectSize. Positions are restored with files of the same names,
// without their folders, sizes and first 64 KiB.
Dataset Csv(const std::vector<std::string>& paths, CsvOptions options = {});

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_CSV_DATASET_H_
