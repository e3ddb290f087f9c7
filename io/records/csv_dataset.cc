#include "io/records/csv_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "io/files/csv.h"
#include "io/files/number_text.h"
#include "io/files/without_query.h"
#include "io/records/csv_table.h"
#include "io/records/files_in_turn.h"

namespace sluice::datasets {
namespace {

// How a row comes to the map that reads its values: all of them as they are one
// behind the other, where each ends, and where the row is: the number of its
// file, its line and its own number.
constexpr char kValues[] = "values", kEnds[] = "ends", kPlace[] = "place";

using Paths = std::vector<std::string>;

char SeparatorOf(const std::string& path, const CsvOptions& options) {
  if (options.separator) {
    const char separator = *options.separator;
    if (std::string_view("\"\r\n\0", 4).find(separator) ==
        std::string_view::npos) {
      return separator;
    }
    throw Error(Code::kInvalidArgument,
                "Csv: the separator is a quote, a line end or NUL");
  }
  const std::string called = WithoutQuery(path);
  std::string_view name = called;
  if (name.ends_with(".gz")) name.remove_suffix(3);
  return name.ends_with(".tsv") || name.ends_with(".tab") ? '\t' : ',';
}

// A file from its first row on.
class TableFile {
 public:
  TableFile(const std::string& path, const CsvOptions& options)
      : rows_(CsvStream::Open(path, SeparatorOf(path, options)).ValueOrThrow()),
        header_(options.header) {
    if (!header_.empty()) return;
    CsvRow row;
    if (!rows_->Next(&row).ValueOrThrow()) {
      throw Error(Code::kDataLoss,
                  fmt::format("'{}': empty; wanted a row of the columns' names",
                              WithoutQuery(path)));
    }
    header_ = std::move(row.fields);
    line_ = row.line;
  }

  const std::vector<std::string>& header() const { return header_; }
  int64_t header_line() const { return line_; }

  bool Next(CsvRow* row) {
    const bool more = rows_->Next(row).ValueOrThrow();
    number_ += more ? 1 : 0;
    return more;
  }
  int64_t Skip(int64_t n) {
    const int64_t passed = rows_->Skip(n).ValueOrThrow();
    number_ += passed;
    return passed;
  }
  int64_t number() const { return number_; }  // of the last row, from 1

 private:
  const std::unique_ptr<CsvStream> rows_;
  std::vector<std::string> header_;
  int64_t line_ = 0;
  int64_t number_ = 0;
};

// `path` is as messages show it.
std::string PlaceOf(const std::string& path, int64_t line, int64_t number) {
  return fmt::format("'{}', line {}, row {}", path, line, number);
}

class RowsOfFile : public Generator {
 public:
  RowsOfFile(const Paths& paths, size_t file, const CsvOptions& options,
             const std::vector<std::string>& header)
      : file_(static_cast<int64_t>(file)), table_(paths[file], options) {
    if (table_.header() == header) return;
    throw Error(
        Code::kDataLoss,
        fmt::format("'{}', line {}: the columns are {}; wanted those of '{}', "
                    "{}",
                    WithoutQuery(paths[file]), table_.header_line(),
                    Quoted(fmt::format("{}", fmt::join(table_.header(), ","))),
                    WithoutQuery(paths[0]),
                    Quoted(fmt::format("{}", fmt::join(header, ",")))));
  }

  bool Next(Example* example) override {
    if (!table_.Next(&row_)) return false;
    size_t bytes = 0;
    for (const std::string& field : row_.fields) bytes += field.size();
    Tensor values(DType::kUInt8, {static_cast<int64_t>(bytes)});
    Tensor ends(DType::kInt64, {static_cast<int64_t>(row_.fields.size())});
    auto* const begin = static_cast<char*>(values.raw());
    auto* to = begin;
    for (size_t i = 0; i < row_.fields.size(); ++i) {
      to = std::copy(row_.fields[i].begin(), row_.fields[i].end(), to);
      ends.data<int64_t>()[i] = to - begin;
    }
    *example = {{kValues, std::move(values)},
                {kEnds, std::move(ends)},
                {kPlace, Tensor::Array<int64_t>(
                             {3}, {file_, row_.line, table_.number()})}};
    return true;
  }
  int64_t Skip(int64_t n) override { return table_.Skip(n); }

 private:
  const int64_t file_;
  TableFile table_;
  CsvRow row_;
};

std::vector<std::string_view> ValuesOf(const Example& row) {
  const std::string_view bytes = BytesOf(row[kValues]);
  std::vector<std::string_view> values;
  int64_t begin = 0;
  for (const int64_t end : row[kEnds].values<int64_t>()) {
    values.push_back(bytes.substr(begin, end - begin));
    begin = end;
  }
  return values;
}

// Likewise.
void Infer(const std::string& path, TableFile* file, int64_t rows,
           CsvTable* table) {
  CsvRow row;
  for (int64_t i = 0; i < rows && file->Next(&row); ++i) {
    const std::vector<std::string_view> values(row.fields.begin(),
                                               row.fields.end());
    table->Infer(values, PlaceOf(path, row.line, file->number()));
  }
  table->EndInfer(path);
}

// What decides which rows there are, for positions.
std::string Describe(const Paths& paths, const CsvOptions& options) {
  std::string text = options.header.empty() ? "csv" : "csv-rows";
  for (const std::string& path : paths) {
    text += fmt::format(" {}", int{SeparatorOf(path, options)});
  }
  return text;
}

}  // namespace

Dataset Csv(const Paths& paths, CsvOptions options) {
  if (paths.empty()) {
    throw Error(Code::kInvalidArgument, "Csv: no files are named");
  }
  if (options.infer_rows < 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("Csv: got {} rows to infer columns from",
                            options.infer_rows));
  }
  Paths shown;  // in messages
  for (const std::string& path : paths) shown.push_back(WithoutQuery(path));
  TableFile first(paths[0], options);
  const std::vector<std::string> header = first.header();
  const auto table = std::make_shared<CsvTable>(
      header, options,
      fmt::format("'{}', line {}", shown[0], first.header_line()));
  if (options.infer_rows > 0) {
    Infer(shown[0], &first, options.infer_rows, table.get());
  }
  Dataset rows = FilesInTurn(Describe(paths, options), paths, options.files,
                             [paths, options, header](size_t i) {
                               return std::make_unique<RowsOfFile>(
                                   paths, i, options, header);
                             });
  if (options.order) rows = options.order(rows);
  return rows.Map(
      [shown, table](Example& row) {
        const auto place = row[kPlace].values<int64_t>();
        row = table->Read(
            ValuesOf(row),
            PlaceOf(shown[static_cast<size_t>(place[0])], place[1], place[2]));
      },
      std::move(options.values));
}

}  // namespace sluice::datasets
