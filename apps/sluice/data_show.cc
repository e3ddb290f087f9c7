#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "apps/sluice/data.h"
#include "apps/sluice/data_records.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/status.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/records/record_files.h"
#include "io/records/tf_example.h"

namespace sluice::tool {
namespace {

// Values of a list that are printed; JSON has all.
constexpr size_t kMost = 8;

struct Feature {
  std::string kind;
  size_t count = 0;
  std::string text;  // one line
  Json json;         // the values
};

bool IsText(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
  });
}

// A byte string: what picture it is, or its text, and its length.
Feature Describe(std::string_view bytes) {
  Feature feature;
  feature.json = {{"bytes", bytes.size()}};
  feature.text = fmt::format("{} bytes", bytes.size());
  if (IsJpeg(bytes) || IsPng(bytes)) {
    const char* format = IsJpeg(bytes) ? "JPEG" : "PNG";
    feature.json["format"] = format;
    feature.text += fmt::format(", {}", format);
    const auto image = DecodeImage(bytes, "picture");
    if (!image.ok()) {
      feature.json["error"] = image.status().message();
      feature.text += fmt::format(", {}", image.status().message());
      return feature;
    }
    feature.json["height"] = image->shape()[0];
    feature.json["width"] = image->shape()[1];
    feature.text += fmt::format(", height {}, width {}", image->shape()[0],
                                image->shape()[1]);
  } else if (IsText(bytes)) {
    feature.json["text"] = bytes;
    feature.text = fmt::format("'{}'", Shortened(std::string(bytes)));
  }
  return feature;
}

template <typename T>
Feature Describe(const std::vector<T>& numbers) {
  const auto end = numbers.begin() + std::min(numbers.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(numbers.begin(), end, " "));
  if (numbers.size() > kMost) text += " ...";
  return {"", numbers.size(), std::move(text), Json(numbers)};
}

Feature Describe(const std::vector<std::string_view>& strings) {
  Feature feature;
  feature.json = Json::array();
  for (const std::string_view bytes : strings) {
    const Feature one = Describe(bytes);
    feature.json.push_back(one.json);
    if (feature.json.size() > kMost) continue;
    if (!feature.text.empty()) feature.text += "; ";
    feature.text += one.text;
  }
  if (strings.size() > kMost) feature.text += "; ...";
  feature.count = strings.size();
  return feature;
}

// Of an empty list any kind may be asked for.
Feature FeatureOf(const TfExample& example, const std::string& name) {
  const auto of_kind = [](std::string kind, const auto& values) {
    Feature feature = Describe(*values);
    feature.kind = std::move(kind);
    return feature;
  };
  const auto strings = example.BytesList(name);
  const auto integers = example.Ints(name);
  const auto floats = example.Floats(name);
  if (strings.ok() && integers.ok()) return {"none", 0, "", Json::array()};
  if (strings.ok()) return of_kind("bytes", strings);
  if (integers.ok()) return of_kind("int64", integers);
  if (floats.ok()) return of_kind("float", floats);
  throw Error(floats.status());  // its bytes are damaged
}

void Show(const RecordFiles& files, int64_t record, bool json) {
  const std::string bytes = files.Read(record).ValueOrThrow();
  const auto example = TfExample::Parse(bytes);
  if (!example.ok()) {
    throw Error(example.status().WithContext(files.PlaceOf(record)));
  }
  std::vector<std::pair<std::string, Feature>> features;
  size_t width = 0;
  for (const std::string& name : example->names()) {
    features.emplace_back(name, FeatureOf(*example, name));
    width = std::max(width, Printable(name).size());
  }
  if (!json) {
    fmt::print("record {}: {}\n", record, files.PlaceOf(record));
    for (const auto& [name, feature] : features) {
      fmt::print("  {:<{}}  {:<5}  {:>3}  {}\n", Printable(name), width,
                 feature.kind, feature.count, feature.text);
    }
    return;
  }
  Json all = Json::object();
  for (const auto& [name, feature] : features) {
    all[name] = {{"kind", feature.kind}, {"values", feature.json}};
  }
  PrintJson({{"record", record},
             {"place", files.PlaceOf(record)},
             {"features", all}});
}

}  // namespace

void ShowData(const std::string& path, int64_t records, bool json) {
  const auto files = RecordFiles::Open(RecordPaths(path)).ValueOrThrow();
  const int64_t shown = std::min(records, files->size());
  for (int64_t i = 0; i < shown; ++i) Show(*files, i, json);
  if (!json) fmt::print("{} of {} records\n", shown, files->size());
}

}  // namespace sluice::tool
