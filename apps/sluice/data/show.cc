#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "apps/sluice/data/data.h"
#include "apps/sluice/data/records.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/without_query.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/records/record_files.h"
#include "io/records/tar.h"
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
  feature.json = Json::Array();
  size_t shown = 0;
  for (const std::string_view bytes : strings) {
    const Feature one = Describe(bytes);
    feature.json.Add(one.json);
    if (++shown > kMost) continue;
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
  if (strings.ok() && integers.ok()) return {"none", 0, "", Json::Array()};
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
  Json all = Json::Object();
  for (const auto& [name, feature] : features) {
    all[name] = {{"kind", feature.kind}, {"values", feature.json}};
  }
  PrintJson({{"record", record},
             {"place", files.PlaceOf(record)},
             {"features", all}});
}

// A file of an archive. Of a large one only how large it is.
Feature Describe(const TarMember& member, const ReadableFile& archive) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  if (member.link) return {"", 1, "a link", {{"link", true}}};
  if (member.size > kMostBytes) {
    return {
        "", 1, fmt::format("{} bytes", member.size), {{"bytes", member.size}}};
  }
  std::string bytes(member.size, '\0');
  bytes.resize(
      archive.ReadAt(member.offset, bytes.data(), bytes.size()).ValueOrThrow());
  // A text's last line may end, too.
  const auto text =
      std::string_view(bytes).substr(0, bytes.find_last_not_of('\n') + 1);
  if (text.empty() || !IsText(text)) return Describe(std::string_view(bytes));
  Feature feature = Describe(text);
  feature.json["bytes"] = member.size;
  return feature;
}

// Shows the first samples of archives, and counts them all.
class Samples {
 public:
  Samples(int64_t limit, bool json) : limit_(limit), json_(json) {}

  void Take(const std::string& path) {
    const auto archive = FileSystem::Default().OpenRead(path).ValueOrThrow();
    TarReader reader(path, *archive);
    std::string key;
    for (TarMember member; reader.Next(&member).ValueOrThrow();) {
      const size_t base = member.name.rfind('/') + 1;
      const size_t dot = member.name.find('.', base);
      if (dot == std::string::npos || dot == base) continue;  // of no sample
      if (!begun_ || member.name.compare(0, dot, key) != 0) {
        Finish();
        key = member.name.substr(0, dot);
        place_ = fmt::format("'{}', sample '{}'", WithoutQuery(path), key);
        begun_ = true;
      }
      if (count_ >= limit_) continue;
      files_.emplace_back(member.name.substr(dot + 1),
                          Describe(member, *archive));
    }
    Finish();
  }
  int64_t count() const { return count_; }

 private:
  void Finish() {
    if (!std::exchange(begun_, false)) return;
    if (count_ < limit_) Print();
    files_.clear();
    ++count_;
  }

  void Print() const {
    if (json_) {
      Json files = Json::Array();
      for (const auto& [ending, file] : files_) {
        files.Add({{"ending", ending}}).Update(file.json);
      }
      PrintJson({{"sample", count_}, {"place", place_}, {"files", files}});
      return;
    }
    size_t width = 0;
    for (const auto& [ending, file] : files_) {
      width = std::max(width, ending.size());
    }
    fmt::print("sample {}: {}\n", count_, Printable(place_));
    for (const auto& [ending, file] : files_) {
      fmt::print("  {:<{}}  {}\n", Printable(ending), width, file.text);
    }
  }

  const int64_t limit_;
  const bool json_;
  int64_t count_ = 0;  // before the one that has begun
  bool begun_ = false;
  std::string place_;
  std::vector<std::pair<std::string, Feature>> files_;  // by what follows "."
};

}  // namespace

void ShowData(const std::string& path, int64_t records, bool json) {
  const std::vector<std::string> paths = RecordPaths(path);
  const auto tars = std::partition_point(
      paths.begin(), paths.end(), [](const auto& p) { return !IsTar(p); });
  if (tars == paths.begin() && tars != paths.end()) {
    Samples samples(records, json);
    for (const std::string& tar : paths) samples.Take(tar);
    if (json) return;
    fmt::print("{} of {} samples\n", std::min(records, samples.count()),
               samples.count());
    return;
  }
  const auto files = RecordFiles::Open({paths.begin(), tars}).ValueOrThrow();
  const int64_t shown = std::min(records, files->size());
  for (int64_t i = 0; i < shown; ++i) Show(*files, i, json);
  if (!json) fmt::print("{} of {} records\n", shown, files->size());
}

}  // namespace sluice::tool
