#include "io/records/image_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "io/files/file.h"
#include "io/files/line_stream.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/records/tf_example.h"

namespace sluice {
namespace {

constexpr const char* kEncoded = "image/encoded";
constexpr const char* kLabel = "image/class/label";
constexpr const char* kClassName = "image/class/text";
constexpr const char* kFile = "image/filename";
constexpr const char* kFormat = "image/format";

// The first of `names` that is a feature.
Result<std::string_view> OneOf(const TfExample& example, std::string_view what,
                               std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (example.contains(name)) return std::string_view(name);
  }
  return NotFound(fmt::format("no {}: wanted the feature {}, got {}", what,
                              fmt::join(names, " or "),
                              fmt::join(example.names(), ", ")));
}

// What is only told, so that nothing depends on it.
std::string_view TextIn(const TfExample& example,
                        std::initializer_list<const char*> names) {
  const auto name = OneOf(example, "text", names);
  if (!name.ok()) return {};
  const auto text = example.Bytes(*name);
  return text.ok() ? *text : std::string_view();
}

std::vector<std::string_view> SpellingsOf(std::string_view part) {
  if (part == "validation") return {"validation", "val", "test"};
  return {part};
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<ImageRecord> ParseImageRecord(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(const TfExample example, TfExample::Parse(bytes));
  SLUICE_ASSIGN_OR_RETURN(const std::string_view encoded,
                          OneOf(example, "picture", {kEncoded, "image"}));
  SLUICE_ASSIGN_OR_RETURN(const std::string_view label,
                          OneOf(example, "label", {kLabel, "label"}));
  ImageRecord record;
  SLUICE_ASSIGN_OR_RETURN(record.encoded, example.Bytes(encoded));
  SLUICE_ASSIGN_OR_RETURN(record.label, example.Int(label));
  record.class_name = TextIn(example, {kClassName});
  record.file = TextIn(example, {kFile, "file_name"});
  return record;
}

Result<std::string> EncodeImageRecord(const ImageRecord& record) {
  const std::string_view format = IsJpeg(record.encoded)  ? "JPEG"
                                  : IsPng(record.encoded) ? "PNG"
                                                          : "";
  if (format.empty()) {
    return InvalidArgument(
        record.encoded.empty()
            ? "this is no image: it is empty"
            : "this is no image: it begins like neither JPEG nor PNG");
  }
  std::vector<std::pair<std::string, TfFeature>> features;
  const auto add = [&](const char* name, std::string_view text) {
    if (text.empty()) return;
    features.emplace_back(name, std::vector<std::string>{std::string(text)});
  };
  add(kEncoded, record.encoded);
  add(kFormat, format);
  add(kClassName, record.class_name);
  add(kFile, record.file);
  features.emplace_back(kLabel, std::vector<int64_t>{record.label});
  return EncodeTfExample(features);
}

ShardSet FindImageShards(const ListedFolder& folder, ShardKind kind,
                         std::string_view part) {
  for (const std::string_view spelling : SpellingsOf(part)) {
    ShardSet shards = ShardsAmong(folder, kind, spelling);
    if (!shards.paths.empty()) return shards;
  }
  return {};
}

ShardSet ImageShards(const ListedFolder& folder, ShardKind kind,
                     std::string_view part) {
  ShardSet shards = FindImageShards(folder, kind, part);
  if (!shards.paths.empty()) return shards;
  const bool tars = kind == ShardKind::kTars;
  const std::string rest = tars ? "-000000.tar" : "-00000-of-00008";
  throw Error(Code::kNotFound,
              fmt::format("no {} of \"{}\" in '{}': wanted files such as {}{}",
                          tars ? "tar shards" : "records", part, folder.path,
                          fmt::join(SpellingsOf(part), rest + " or "), rest));
}

std::vector<std::string> ImageRecordShards(const std::string& folder,
                                           std::string_view part) {
  return ImageShards(
             {folder, FileSystem::Default().List(folder).ValueOrThrow()},
             ShardKind::kRecords, part)
      .paths;
}

bool HasImageShards(const ListedFolder& folder, ShardKind kind) {
  return std::any_of(kImageRecordParts.begin(), kImageRecordParts.end(),
                     [&](std::string_view part) {
                       try {
                         return !ShardsAmong(folder, kind, part).paths.empty();
                       } catch (const Error&) {  // a part, not a whole one
                         return true;
                       }
                     });
}

Result<std::vector<std::string>> ReadClassNames(const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(auto names, FileSystem::Default().List(folder));
  return ReadClassNames({.path = folder, .names = std::move(names)});
}

Result<std::vector<std::string>> ReadClassNames(const ListedFolder& listed) {
  const auto& [folder, names, may_lack] = listed;
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [](const std::string& name) {
                 return name.ends_with(".labels.txt") &&
                        !name.starts_with("._");
               });
  for (const char* first : {"label.labels.txt", "labels.txt"}) {
    if (std::binary_search(names.begin(), names.end(), first)) found = {first};
  }
  if (found.empty()) return std::vector<std::string>();
  if (found.size() > 1) {
    return InvalidArgument(fmt::format(
        "'{}' has {}: copy the one with the classes' names to labels.txt",
        folder, fmt::join(found, ", ")));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const std::string text,
      FileSystem::Default().Read(JoinPath(folder, found[0])));
  std::vector<std::string> lines = Lines(text);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (const auto empty = std::find(lines.begin(), lines.end(), "");
      empty != lines.end()) {
    return InvalidArgument(fmt::format("'{}', line {}: wanted a class's name",
                                       JoinPath(folder, found[0]),
                                       empty - lines.begin() + 1));
  }
  return lines;
}

ImageRecords OpenImageRecords(const std::string& folder, std::string_view part,
                              int threads) {
  ImageRecords records;
  records.class_names = ReadClassNames(folder).ValueOrThrow();
  records.files = RecordFiles::Open(ImageRecordShards(folder, part), threads)
                      .ValueOrThrow();
  return records;
}

}  // namespace sluice
