#include "io/files/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/files/line_stream.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

// CR LF is one; `before` is the byte before the text, and then its last one.
int64_t LineEnds(std::string_view text, char* before) {
  int64_t ends = 0;
  for (const char c : text) {
    if (c == '\r' || (c == '\n' && *before != '\r')) ++ends;
    *before = c;
  }
  return ends;
}

std::string NameOf(char separator) {
  if (separator == ',') return "comma";
  if (separator == '\t') return "tab";
  return fmt::format("'{}'", separator);
}

}  // namespace

CsvParser::CsvParser(const std::string& path, char separator, uint64_t longest)
    : path_(WithoutQuery(path)), separator_(separator), longest_(longest) {
  for (const char c : {separator, '\r', '\n', '"', '\0'}) {
    ends_unquoted_[static_cast<uint8_t>(c)] = true;
  }
}

Status CsvParser::Malformed(int64_t line, std::string_view what) const {
  return DataLoss(fmt::format("'{}', line {}: {}", path_, line, what));
}

void CsvParser::BeginRow(uint64_t at) {
  row_.fields.clear();
  row_.line = line_;
  row_begin_ = at;
  field_.clear();
  at_ = At::kField;
}

void CsvParser::EndField() {
  row_.fields.push_back(std::move(field_));
  field_.clear();
}

void CsvParser::EndRow() {
  EndField();
  whole_ = true;
  at_ = At::kBetween;
}

// What only begins as the mark does is of the first row.
size_t CsvParser::TakeMark(std::string_view bytes) {
  size_t used = 0;
  while (mark_ < kByteOrderMark.size() && used < bytes.size() &&
         bytes[used] == kByteOrderMark[mark_]) {
    ++mark_;
    ++used;
  }
  if (mark_ == kByteOrderMark.size()) {
    at_ = At::kBetween;
  } else if (used < bytes.size()) {
    at_ = At::kBetween;
    if (mark_ > 0) {
      BeginRow(0);
      field_ = kByteOrderMark.substr(0, mark_);
      at_ = At::kUnquoted;
    }
  }
  return used;
}

size_t CsvParser::TakeBetween(std::string_view bytes) {
  const char c = bytes[0];
  if (c != '\r' && c != '\n') {
    after_cr_ = false;
    BeginRow(taken_);
    return 0;
  }
  if (c == '\r' || !after_cr_) ++line_;
  after_cr_ = c == '\r';
  return 1;
}

// What may follow a whole field.
Result<size_t> CsvParser::TakeBehindField(char c) {
  if (c == separator_) {
    EndField();
    at_ = At::kField;
  } else if (c == '\r' || c == '\n') {
    row_end_ = taken_;
    EndRow();
    ++line_;
    after_cr_ = c == '\r';
  } else if (c == '\0') {
    return Malformed(line_, "a NUL byte; wanted text, such as UTF-8");
  } else {
    return Malformed(line_,
                     fmt::format("text behind a closing quote; wanted a {} or "
                                 "the end of the line",
                                 NameOf(separator_)));
  }
  return 1;
}

Result<size_t> CsvParser::TakeUnquoted(std::string_view bytes) {
  const auto* const end = std::find_if(
      bytes.begin(), bytes.end(),
      [this](char c) { return ends_unquoted_[static_cast<uint8_t>(c)]; });
  const auto used = static_cast<size_t>(end - bytes.begin());
  if (used > 0) {
    field_.append(bytes.substr(0, used));
    at_ = At::kUnquoted;
    return used;
  }
  if (*end != '"') return TakeBehindField(*end);
  if (at_ == At::kUnquoted) {
    return Malformed(line_,
                     "a quote in the middle of a field; wanted the whole field "
                     "in quotes and those inside doubled");
  }
  at_ = At::kQuoted;
  opened_ = line_;
  in_quotes_before_ = '\0';
  return 1;
}

Result<size_t> CsvParser::TakeQuoted(std::string_view bytes) {
  const auto* const end = std::find_if(
      bytes.begin(), bytes.end(), [](char c) { return c == '"' || c == '\0'; });
  const auto used = static_cast<size_t>(end - bytes.begin());
  field_.append(bytes.substr(0, used));
  line_ += LineEnds(bytes.substr(0, used), &in_quotes_before_);
  if (used == bytes.size()) return used;
  if (*end == '\0') return TakeBehindField(*end);
  at_ = At::kQuote;
  return used + 1;
}

Result<size_t> CsvParser::Take(std::string_view bytes) {
  const uint64_t before = taken_;
  whole_ = false;
  while (!bytes.empty() && !whole_) {
    size_t used = 0;
    switch (at_) {
      case At::kBegin:
        used = TakeMark(bytes);
        break;
      case At::kBetween:
        used = TakeBetween(bytes);
        break;
      case At::kField:
      case At::kUnquoted: {
        SLUICE_ASSIGN_OR_RETURN(used, TakeUnquoted(bytes));
        break;
      }
      case At::kQuoted: {
        SLUICE_ASSIGN_OR_RETURN(used, TakeQuoted(bytes));
        break;
      }
      case At::kQuote:
        if (bytes[0] == '"') {
          field_ += '"';
          in_quotes_before_ = '"';
          at_ = At::kQuoted;
          used = 1;
          break;
        }
        SLUICE_ASSIGN_OR_RETURN(used, TakeBehindField(bytes[0]));
        break;
    }
    bytes.remove_prefix(used);
    taken_ += used;
    if (at_ > At::kBetween && taken_ - row_begin_ > longest_) {
      return Malformed(
          row_.line, fmt::format("the row is longer than {} bytes", longest_));
    }
  }
  return static_cast<size_t>(taken_ - before);
}

Status CsvParser::End() {
  whole_ = false;
  if (at_ == At::kBegin && mark_ > 0) {
    BeginRow(0);
    field_ = kByteOrderMark.substr(0, mark_);
  }
  if (at_ == At::kQuoted) {
    return Malformed(opened_, "a quote is opened and never closed");
  }
  row_end_ = taken_;
  if (at_ > At::kBetween) EndRow();
  at_ = At::kBetween;
  return {};
}

Result<std::vector<CsvRow>> ParseCsv(std::string_view text,
                                     const std::string& path, char separator) {
  std::vector<CsvRow> rows;
  CsvParser parser(path, separator);
  const auto keep = [&] {
    if (!parser.whole()) return;
    rows.push_back(std::move(parser.row()));
    rows.back().text =
        text.substr(parser.row_begin(), parser.row_end() - parser.row_begin());
  };
  for (std::string_view rest = text; !rest.empty();) {
    SLUICE_ASSIGN_OR_RETURN(const size_t used, parser.Take(rest));
    rest.remove_prefix(used);
    keep();
  }
  SLUICE_RETURN_IF_ERROR(parser.End());
  keep();
  return rows;
}

CsvStream::CsvStream(const std::string& path, char separator, uint64_t longest,
                     std::unique_ptr<ByteStream> bytes)
    : parser_(path, separator, longest), bytes_(std::move(bytes)) {}

Result<std::unique_ptr<CsvStream>> CsvStream::Open(const std::string& path,
                                                   char separator,
                                                   FileSystem& files,
                                                   uint64_t longest) {
  SLUICE_ASSIGN_OR_RETURN(auto bytes,
                          ByteStream::Open(path, DetectInText, files));
  return std::unique_ptr<CsvStream>(
      new CsvStream(path, separator, longest, std::move(bytes)));
}

Result<bool> CsvStream::Next(CsvRow* row) {
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes, bytes_->Peek());
    if (bytes.empty()) {
      SLUICE_RETURN_IF_ERROR(parser_.End());
    } else {
      SLUICE_ASSIGN_OR_RETURN(const size_t used, parser_.Take(bytes));
      bytes_->Take(used);
    }
    if (parser_.whole()) {
      std::swap(*row, parser_.row());
      return true;
    }
    if (bytes.empty()) return false;
  }
}

Result<int64_t> CsvStream::Skip(int64_t n) {
  CsvRow row;
  for (int64_t i = 0; i < n; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, Next(&row));
    if (!more) return i;
  }
  return n;
}

std::string CsvField(std::string_view text) {
  // The mark at the beginning of a file belongs to no field.
  if (text.find_first_of(",\"\r\n") == text.npos &&
      !text.starts_with(kByteOrderMark)) {
    return std::string(text);
  }
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

}  // namespace sluice
