#include "io/files/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

int64_t LineEnds(std::string_view text) {
  int64_t ends = 0;
  char before = '\0';
  for (const char c : text) {
    if (c == '\r' || (c == '\n' && before != '\r')) ++ends;
    before = c;
  }
  return ends;
}

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& path, char separator)
      : rest_(text),
        separator_(1, separator),
        unquoted_end_(separator_ + "\r\n\""),
        path_(path) {
    Take(kByteOrderMark);
  }

  Result<std::vector<CsvRow>> Rows() {
    if (const size_t nul = rest_.find('\0'); nul != rest_.npos) {
      return Malformed(1 + LineEnds(rest_.substr(0, nul)),
                       "a NUL byte; wanted text, such as UTF-8");
    }
    std::vector<CsvRow> rows;
    while (!rest_.empty()) {
      if (TakeLineEnd()) continue;
      SLUICE_ASSIGN_OR_RETURN(CsvRow row, Row());
      rows.push_back(std::move(row));
      TakeLineEnd();
    }
    return rows;
  }

 private:
  Status Malformed(int64_t line, std::string_view what) const {
    return DataLoss(fmt::format("'{}', line {}: {}", path_, line, what));
  }

  // Whether the rest began with the token; it is behind it then.
  bool Take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool TakeLineEnd() {
    if (!Take("\r\n") && !Take("\n") && !Take("\r")) return false;
    ++line_;
    return true;
  }

  Result<CsvRow> Row() {
    const std::string_view from_here = rest_;
    CsvRow row;
    row.line = line_;
    do {
      SLUICE_ASSIGN_OR_RETURN(std::string field,
                              Take("\"") ? Quoted() : Unquoted());
      row.fields.push_back(std::move(field));
    } while (Take(separator_));
    row.text = from_here.substr(0, from_here.size() - rest_.size());
    return row;
  }

  Result<std::string> Unquoted() {
    const size_t end =
        std::min(rest_.find_first_of(unquoted_end_), rest_.size());
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (!rest_.starts_with('"')) return field;
    return Malformed(line_,
                     "a quote in the middle of a field; wanted the whole field "
                     "in quotes and those inside doubled");
  }

  // What follows an opening quote.
  Result<std::string> Quoted() {
    const int64_t opened = line_;
    std::string field;
    for (bool closed = false; !closed;) {
      const size_t quote = rest_.find('"');
      if (quote == rest_.npos) {
        return Malformed(opened, "a quote is opened and never closed");
      }
      const std::string_view piece = rest_.substr(0, quote);
      line_ += LineEnds(piece);
      field += piece;
      rest_.remove_prefix(quote + 1);
      closed = !Take("\"");
      if (!closed) field += '"';
    }
    // A quote would have been one of the field's.
    if (rest_.empty() || rest_.find_first_of(unquoted_end_) == 0) return field;
    return Malformed(
        line_, fmt::format("text behind a closing quote; wanted a {} or the "
                           "end of the line",
                           separator_ == "," ? "comma" : "tab"));
  }

  std::string_view rest_;  // that is still to be read
  const std::string separator_;
  const std::string unquoted_end_;  // bytes that are in no unquoted field
  int64_t line_ = 1;                // that it begins in
  const std::string& path_;
};

}  // namespace

Result<std::vector<CsvRow>> ParseCsv(std::string_view text,
                                     const std::string& path, char separator) {
  return CsvParser(text, path, separator).Rows();
}

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

}  // namespace sluice
