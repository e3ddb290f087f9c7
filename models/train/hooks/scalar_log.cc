#include "models/train/hooks/scalar_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "engine/parse_number.h"
#include "io/files/csv.h"

namespace sluice {
namespace {

constexpr std::string_view kFile = "scalars.csv";
constexpr std::string_view kHeading = "seconds,step,set,name,value";
constexpr size_t kColumns = 5;

struct WrittenRow {
  ScalarRow row;
  std::string text;  // as it is in the file, without its end
};

Status Malformed(const std::string& path, int64_t line) {
  return DataLoss(
      fmt::format("'{}', line {}: wanted {}", path, line, kHeading));
}

bool Parse(const CsvRow& csv, ScalarRow* row) {
  if (csv.fields.size() != kColumns) return false;
  const auto seconds = ParseWhole<double>(csv.fields[0]);
  const auto step = ParseWhole<int64_t>(csv.fields[1]);
  const auto value = ParseWhole<double>(csv.fields[4]);
  if (!seconds || !std::isfinite(*seconds) || !step || !value) return false;
  *row = {*seconds, *step, csv.fields[2], csv.fields[3], *value};
  return true;
}

bool IsHeading(const CsvRow& csv) {
  return fmt::format("{}", fmt::join(csv.fields, ",")) == kHeading;
}

// How far the rows go that have their ends, and whether the rest leaves a quote
// open.
struct Extent {
  size_t ended = 0;
  bool quoted = false;
};
Extent ExtentOf(std::string_view text) {
  Extent extent;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') extent.quoted = !extent.quoted;
    if (text[i] == '\n' && !extent.quoted) extent.ended = i + 1;
  }
  return extent;
}

// Whether a kill may have left this of a row, or of the heading where it is the
// first: `quoted` says that its last field is a quote still open, which only
// texts are written in.
bool BeginsRow(const CsvRow& row, bool first, bool quoted) {
  if (first) return kHeading.starts_with(row.text);
  const size_t fields = row.fields.size();
  return quoted ? fields == 3 || fields == 4 : fields <= kColumns;
}

// Takes the row without its end off the last of `rows`, which begins at `tail`.
// A quote that damage opened in the middle must not pass for such a row, or all
// behind it were lost unseen.
Status TakeTornRow(std::string_view tail, bool quoted, const std::string& path,
                   std::vector<CsvRow>* rows) {
  const auto torn = [&] {
    return !rows->empty() && rows->back().text.data() >= tail.data();
  };
  if (!torn()) return {};
  const CsvRow row = std::move(rows->back());
  rows->pop_back();
  const bool one = BeginsRow(row, rows->empty(), quoted) && !torn();
  return one ? Status() : Malformed(path, row.line);
}

Result<std::vector<WrittenRow>> ParseScalars(std::string text,
                                             const std::string& path) {
  const auto [ended, quoted] = ExtentOf(text);
  if (quoted) text += '"';
  SLUICE_ASSIGN_OR_RETURN(std::vector<CsvRow> csv, ParseCsv(text, path));
  SLUICE_RETURN_IF_ERROR(
      TakeTornRow(std::string_view(text).substr(ended), quoted, path, &csv));
  std::vector<WrittenRow> rows;
  for (size_t i = 0; i < csv.size(); ++i) {
    WrittenRow row = {{}, std::string(csv[i].text)};
    if (i == 0 ? !IsHeading(csv[i]) : !Parse(csv[i], &row.row)) {
      return Malformed(path, csv[i].line);
    }
    if (i > 0) rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<WrittenRow>> Read(const std::string& path,
                                     FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(std::string text, files.Read(path));
  return ParseScalars(std::move(text), path);
}

// Renames the file to one there is not yet, and returns that.
Result<std::string> SetAside(const std::string& path, FileSystem& files) {
  std::string aside = path + ".damaged";
  for (int n = 2;; ++n) {
    SLUICE_ASSIGN_OR_RETURN(const bool taken, files.Exists(aside));
    if (!taken) break;
    aside = fmt::format("{}.damaged-{}", path, n);
  }
  SLUICE_RETURN_IF_ERROR(files.Rename(path, aside));
  return aside;
}

// The sign of what is no number says nothing.
std::string Text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

Result<std::vector<ScalarRow>> ReadScalars(const std::string& log_dir,
                                           FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<WrittenRow> written,
                          Read(JoinPath(log_dir, kFile), files));
  std::vector<ScalarRow> rows;
  rows.reserve(written.size());
  for (WrittenRow& row : written) rows.push_back(std::move(row.row));
  return rows;
}

Result<std::unique_ptr<ScalarLog>> ScalarLog::Open(const std::string& log_dir,
                                                   int64_t step, bool fresh,
                                                   FileSystem& files) {
  SLUICE_RETURN_IF_ERROR(files.MakeDirectories(log_dir));
  const std::string path = JoinPath(log_dir, kFile);
  std::unique_ptr<ScalarLog> log(new ScalarLog());
  log->step_ = step;
  std::string kept;
  if (!fresh) {
    SLUICE_ASSIGN_OR_RETURN(kept, log->Keep(path, files));
  }
  SLUICE_RETURN_IF_ERROR(
      files.WriteAtomically(path, fmt::format("{}\n{}", kHeading, kept)));
  SLUICE_ASSIGN_OR_RETURN(log->file_, files.OpenAppend(path));
  return log;
}

Result<std::string> ScalarLog::Keep(const std::string& path,
                                    FileSystem& files) {
  const Result<std::vector<WrittenRow>> rows = Read(path, files);
  if (rows.status().code() == Code::kNotFound) return std::string();
  if (rows.status().code() == Code::kDataLoss) {
    SLUICE_ASSIGN_OR_RETURN(const std::string aside, SetAside(path, files));
    warning_ = fmt::format("{}; it is now {}, and a new one begins",
                           rows.status().message(), aside);
    return std::string();
  }
  SLUICE_RETURN_IF_ERROR(rows.status());
  std::string kept;
  for (const auto& [row, text] : *rows) {
    if (row.step > step_) continue;
    if (row.step == step_) kept_of_step_.emplace(row.set, row.name);
    seconds_ = row.seconds;
    kept += text + '\n';
  }
  return kept;
}

Status ScalarLog::Add(const ScalarRow& row) {
  SLUICE_RETURN_IF_ERROR(error_);
  if (row.step == step_ && kept_of_step_.contains({row.set, row.name})) {
    return {};
  }
  if (!std::isfinite(row.seconds) || row.set.find('\0') != row.set.npos ||
      row.name.find('\0') != row.name.npos) {
    return InvalidArgument(fmt::format(
        "a row of scalars.csv: wanted finite seconds and texts without NUL, "
        "got {} and '{}', '{}'",
        row.seconds, row.set, row.name));
  }
  pending_ +=
      fmt::format("{},{},{},{},{}\n", row.seconds, row.step, CsvField(row.set),
                  CsvField(row.name), Text(row.value));
  return {};
}

Status ScalarLog::Flush() {
  if (error_.ok() && !pending_.empty()) {
    error_ = file_->Append(pending_);
    pending_.clear();
  }
  return error_;
}

Status ScalarLog::Sync() {
  if (Flush().ok()) error_ = file_->Sync();
  return error_;
}

}  // namespace sluice
