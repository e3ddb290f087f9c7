#include "io/sources/image_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/status.h"
#include "io/files/csv.h"
#include "io/files/file.h"
#include "io/files/without_query.h"
#include "io/images/image.h"

namespace sluice {
namespace {

// As large a class as a mistake might give; ImageNet's whole has 21,841.
constexpr int64_t kMaxClasses = 1'000'000;

// The beginning of a text, in one line whatever it has.
std::string Shown(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  const std::string shown = fmt::format("{:.100}", line);
  return shown.size() < text.size() ? shown + "..." : shown;
}

std::string_view WithoutBlanks(std::string_view field) {
  constexpr const char* kBlanks = " \t";
  field.remove_prefix(std::min(field.find_first_not_of(kBlanks), field.size()));
  return field.substr(0, field.find_last_not_of(kBlanks) + 1);
}

// Nothing where the field is no whole number; for one beyond int64, -1, which
// is no label either.
std::optional<int64_t> WholeNumber(std::string_view field) {
  field = WithoutBlanks(field);
  int64_t number = -1;
  const char* end = field.data() + field.size();
  const auto parsed = std::from_chars(field.data(), end, number);
  if (parsed.ec == std::errc::invalid_argument || parsed.ptr != end) {
    return std::nullopt;
  }
  return number;
}

// One file, while it is read.
class Table {
 public:
  Table(const std::string& path, const std::vector<CsvRow>& rows,
        bool may_be_names)
      : path_(WithoutQuery(path)),
        folder_(ParentDirectory(path_)),
        rows_(rows),
        may_be_names_(may_be_names) {
    for (const CsvRow& row : rows_) {
      if (row.fields.size() != 2) Bad(row);
    }
    if (!rows_.empty() && IsHeading(rows_[0])) {
      list_.heading = rows_[0].text;
      rows_ = rows_.subspan(1);
    }
  }

  ImageList Read(const std::vector<std::string>& class_names) && {
    CheckFiles();
    if (may_be_names_ && HasName()) {
      ReadNames(class_names);
    } else {
      ReadNumbers(class_names);
    }
    for (const CsvRow& row : rows_) {
      list_.paths.push_back(JoinPath(folder_, row.fields[0]));
    }
    return std::move(list_);
  }

 private:
  std::string Place(const CsvRow& row) const {
    return fmt::format("'{}', line {}", path_, row.line);
  }

  [[noreturn]] void Bad(const CsvRow& row) const {
    const char* hint =
        row.fields.size() > 2 ? "; a FILE with commas goes in quotes" : "";
    throw Error(
        Code::kDataLoss,
        fmt::format("{}: wanted FILE,LABEL with {}a label in 0..{}, "
                    "got '{}'{}",
                    Place(row), may_be_names_ ? "the name of a class or " : "",
                    kMaxClasses - 1, Shown(row.text), hint));
  }

  bool IsHeading(const CsvRow& row) const {
    if (WholeNumber(row.fields[1])) return false;
    if (!may_be_names_) return true;
    const std::string& file = row.fields[0];
    return !IsImageName(file) && !FileSystem::Default()
                                      .Exists(JoinPath(folder_, file))
                                      .ValueOrThrow();
  }

  bool HasName() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const CsvRow& row) {
      return !WholeNumber(row.fields[1]);
    });
  }

  // None may be there twice, however it is written.
  void CheckFiles() const {
    std::unordered_map<std::string, int64_t> line_of;
    for (const CsvRow& row : rows_) {
      const std::string& file = row.fields[0];
      if (file.empty()) Bad(row);
      if (may_be_names_ && file.front() == '/') {
        throw Error(Code::kDataLoss,
                    fmt::format("{}: '{}' begins at the root, wanted a path "
                                "from '{}' on",
                                Place(row), Shown(file), folder_));
      }
      const size_t begin = std::min(file.find_first_not_of('/'), file.size());
      const auto normal =
          std::filesystem::path(file.substr(begin)).lexically_normal();
      const auto [listed, is_new] = line_of.emplace(normal.string(), row.line);
      if (is_new) continue;  // else it would be counted twice
      throw Error(Code::kDataLoss,
                  fmt::format("{}: '{}' is in line {} already", Place(row),
                              Shown(file), listed->second));
    }
  }

  void ReadNumbers(const std::vector<std::string>& class_names) {
    for (const CsvRow& row : rows_) {
      const std::optional<int64_t> label = WholeNumber(row.fields[1]);
      if (!label || *label < 0 || *label >= kMaxClasses) Bad(row);
      list_.labels.push_back(*label);
      list_.classes = std::max(list_.classes, *label + 1);
    }
    if (class_names.empty()) return;
    const auto known = static_cast<int64_t>(class_names.size());
    if (list_.classes > known) {
      throw Error(Code::kOutOfRange,
                  fmt::format("'{}' has the label {}, training had {} classes",
                              path_, list_.classes - 1, known));
    }
    list_.classes = known;
    list_.class_names = class_names;
  }

  void ReadNames(const std::vector<std::string>& class_names) {
    std::set<std::string_view> labels;  // sorted by bytes
    for (const CsvRow& row : rows_) {
      const std::string_view name = WithoutBlanks(row.fields[1]);
      if (name.empty()) Bad(row);
      if (WholeNumber(name)) {
        throw Error(Code::kDataLoss,
                    fmt::format("{}: got the number '{}', but the label of "
                                "another row is a name; wanted either numbers "
                                "or names",
                                Place(row), name));
      }
      labels.insert(name);
    }
    list_.class_names = class_names;
    if (class_names.empty()) {
      list_.class_names.assign(labels.begin(), labels.end());
    }
    list_.classes = static_cast<int64_t>(list_.class_names.size());
    std::map<std::string_view, int64_t> numbers;
    std::set<std::string_view> ambiguous;
    for (int64_t c = 0; c < list_.classes; ++c) {
      const std::string_view name = list_.class_names[c];
      if (!numbers.emplace(name, c).second) ambiguous.insert(name);
    }
    for (const CsvRow& row : rows_) {
      const std::string_view name = WithoutBlanks(row.fields[1]);
      const auto known = numbers.find(name);
      if (known == numbers.end()) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("{}: training had no class of the name '{}'",
                                Place(row), Shown(name)));
      }
      if (ambiguous.contains(name)) throw AmbiguousClass(Place(row), name);
      list_.labels.push_back(known->second);
    }
  }

  const std::string path_, folder_;
  std::span<const CsvRow> rows_;  // but for a heading
  const bool may_be_names_;
  ImageList list_;
};

}  // namespace

ImageList ReadImageLabels(const std::string& path, std::string_view text,
                          const std::vector<std::string>& class_names,
                          bool may_be_names) {
  const std::vector<CsvRow> rows = ParseCsv(text, path).ValueOrThrow();
  return Table(path, rows, may_be_names).Read(class_names);
}

Error AmbiguousClass(const std::string& place, std::string_view name) {
  return Error(Code::kInvalidArgument,
               fmt::format("{}: training had several classes of the name '{}'; "
                           "give a table of their numbers",
                           place, Shown(name)));
}

}  // namespace sluice
