#include "io/records/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "io/files/number_text.h"

namespace sluice {
namespace {

constexpr char kLabelFeature[] = "label";

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(Code::kInvalidArgument, "Csv: " + message);
}

// The place of each name. Throws Error where one comes twice.
std::map<std::string, size_t> PlacesOf(const std::vector<std::string>& header,
                                       const std::string& place) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < header.size(); ++i) {
    if (places.emplace(header[i], i).second) continue;
    throw Error(Code::kDataLoss, fmt::format("{}: two columns have the name {}",
                                             place, Quoted(header[i])));
  }
  return places;
}

void CheckColumn(const CsvColumn& as) {
  if (IsHalf(as.dtype)) {
    Refuse(
        fmt::format("column {}: values are not read as {}; read float32 "
                    "and cast them in a Map",
                    Quoted(as.name), NameOf(as.dtype)));
  }
  if (as.text && (!as.words.empty() || as.missing)) {
    Refuse(fmt::format("column {}: text has no words and is never missing",
                       Quoted(as.name)));
  }
}

// Of a whole number without point or exponent the digits, without sign and
// leading zeros; else nothing.
std::string_view WholeDigits(std::string_view value) {
  constexpr std::string_view kDigits = "0123456789";
  value = TrimBlanks(value);
  if (value.starts_with('-') || value.starts_with('+')) value.remove_prefix(1);
  if (value.find_first_not_of(kDigits) != value.npos) return {};
  const size_t first = value.find_first_of(kDigits.substr(1));
  return value.substr(std::min(first, std::max<size_t>(value.size(), 1) - 1));
}

// Whether the value is a number of which the type loses nothing that
// CsvOptions::infer_rows promises to keep.
template <typename T>
bool HoldsFloat(DType dtype, std::string_view value) {
  T number = 0;
  if (!ParseNumber(value, dtype, &number).ok()) return false;
  const std::string_view digits = WholeDigits(value);
  if (!digits.empty()) {
    return fmt::format("{:.0f}", std::abs(double{number})) == digits;
  }
  constexpr double kSteps = 0x1p24;  // from there on float32's are 2 and more
  double exact = 0;
  return !ParseNumber(value, DType::kFloat64, &exact).ok() ||
         !(std::abs(exact) >= kSteps) || exact == number;
}

bool Holds(DType dtype, std::string_view value) {
  if (dtype == DType::kFloat32) return HoldsFloat<float>(dtype, value);
  if (dtype == DType::kFloat64) return HoldsFloat<double>(dtype, value);
  int64_t number = 0;
  return ParseNumber(value, dtype, &number).ok();
}

// "column 3 'age'"
std::string NameOf(size_t at, const std::vector<std::string>& header) {
  return fmt::format("column {} {}", at + 1, Quoted(header[at]));
}

}  // namespace

CsvTable::CsvTable(std::vector<std::string> header, const CsvOptions& options,
                   const std::string& place)
    : header_(std::move(header)),
      label_(options.label),
      missing_(options.missing.begin(), options.missing.end()) {
  const auto places = PlacesOf(header_, place);
  std::set<std::string> named;
  const auto add = [&](const CsvColumn& as) {
    const auto found = places.find(as.name);
    if (found == places.end()) {
      Refuse(fmt::format("{}: there is no column {}", place, Quoted(as.name)));
    }
    if (!named.insert(as.name).second) {
      Refuse(fmt::format("column {} is named twice", Quoted(as.name)));
    }
    Add(found->second, as, false);
  };
  for (const CsvColumn& as : options.columns) add(as);
  if (!label_.empty() && !named.contains(label_)) {
    add({.name = label_, .dtype = DType::kInt64});
  }
  for (size_t i = 0; i < header_.size() && options.infer_rows > 0; ++i) {
    if (!named.contains(header_[i])) Add(i, {.name = header_[i]}, true);
  }
  if (columns_.empty()) {
    Refuse(
        "no columns: say which are read, or from how many rows to infer "
        "them");
  }
  std::set<std::string> features;
  for (const Column& column : columns_) {
    if (features.insert(column.feature).second) continue;
    Refuse(fmt::format("column {} is the label, and another one is called '{}'",
                       Quoted(label_), kLabelFeature));
  }
}

void CsvTable::Add(size_t at, const CsvColumn& as, bool inferred) {
  CheckColumn(as);
  Column column = {
      .at = at,
      .feature = as.name == label_ && !label_.empty() ? kLabelFeature : as.name,
      .as = as,
      .inferred = inferred};
  if (!as.words.empty()) {
    column.as.dtype = DType::kInt64;
    for (const std::string& word : as.words) {
      const auto number = static_cast<int64_t>(column.words.size());
      if (column.words.emplace(word, number).second) continue;
      Refuse(fmt::format("column {}: the word {} comes twice", Quoted(as.name),
                         Quoted(word)));
    }
  }
  if (as.missing) {
    const Status held = CheckHolds(column.as.dtype, *as.missing);
    if (!held.ok()) {
      Refuse(fmt::format("column {}: for what is missing: {}", Quoted(as.name),
                         held.message()));
    }
    column.missing = Tensor::Full(column.as.dtype, {}, *as.missing);
  }
  columns_.push_back(std::move(column));
}

bool CsvTable::IsMissing(std::string_view value) const {
  return missing_.contains(TrimBlanks(value));
}

void CsvTable::CheckLength(CsvValues row, const std::string& place) const {
  if (row.size() == header_.size()) return;
  throw Error(
      Code::kDataLoss,
      row.size() < header_.size()
          ? fmt::format("{}: {} values, wanted {}: none for {}", place,
                        row.size(), header_.size(), NameOf(row.size(), header_))
          : fmt::format("{}: {} values, wanted {}: {} is behind {}, the last",
                        place, row.size(), header_.size(),
                        Quoted(row[header_.size()]),
                        NameOf(header_.size() - 1, header_)));
}

void CsvTable::Infer(CsvValues row, const std::string& place) {
  CheckLength(row, place);
  for (Column& column : columns_) {
    const std::string_view value = row[column.at];
    if (!column.inferred || IsMissing(value)) continue;
    column.has_value = true;
    for (size_t i = 0; i < kInferred.size(); ++i) {
      column.fits[i] = column.fits[i] && Holds(kInferred[i], value);
    }
  }
}

void CsvTable::EndInfer(const std::string& path) {
  for (Column& column : columns_) {
    if (!column.inferred) continue;
    if (!column.has_value) {
      Refuse(
          fmt::format("'{}', {}: the rows to infer from have no value of "
                      "it; say what it is",
                      path, NameOf(column.at, header_)));
    }
    const auto first = std::find(column.fits.begin(), column.fits.end(), true);
    if (first == column.fits.end()) {
      column.as.text = true;
    } else {
      column.as.dtype = kInferred[first - column.fits.begin()];
    }
  }
}

Tensor CsvTable::Value(const Column& column, std::string_view value) const {
  if (column.as.text) {
    Tensor text(DType::kUInt8, {static_cast<int64_t>(value.size())});
    if (!value.empty()) std::memcpy(text.raw(), value.data(), value.size());
    return text;
  }
  if (!column.words.empty()) {
    const auto found = column.words.find(value);
    if (found != column.words.end()) return Tensor::Scalar(found->second);
  }
  if (IsMissing(value)) {
    if (column.as.missing) return column.missing.Clone();
    throw Error(Code::kDataLoss,
                "the value is missing, and nothing was given to stand for it");
  }
  if (!column.words.empty()) {
    throw Error(Code::kDataLoss,
                fmt::format("{} is none of its {} words", Quoted(value),
                            column.words.size()));
  }
  Tensor number(column.as.dtype, {});
  ThrowIfError(ParseNumber(value, column.as.dtype, number.raw()));
  return number;
}

Example CsvTable::Read(CsvValues row, const std::string& place) const {
  CheckLength(row, place);
  Example example;
  for (const Column& column : columns_) {
    try {
      example.Set(column.feature, Value(column, row[column.at]));
    } catch (const Error& error) {
      throw Error(error.status().WithContext(
          fmt::format("{}, {}", place, NameOf(column.at, header_))));
    }
  }
  return example;
}

}  // namespace sluice
