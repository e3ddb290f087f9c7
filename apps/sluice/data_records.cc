#include "apps/sluice/data_records.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "io/images/image.h"

namespace sluice::tool {

std::vector<std::string> RecordPaths(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> paths;
  for (const std::string_view part : kImageRecordParts) {
    const std::vector<std::string> shards = FindShards(path, part);
    paths.insert(paths.end(), shards.begin(), shards.end());
  }
  if (!paths.empty()) return paths;
  throw Error(Code::kNotFound,
              fmt::format("no records in '{}': wanted files such as "
                          "train-00000-of-00008; name files that are called "
                          "otherwise one by one",
                          path));
}

Result<Tensor> ReadPicture(const RecordFiles& files, int64_t record,
                           std::string* bytes, ImageRecord* image) {
  SLUICE_ASSIGN_OR_RETURN(*bytes, files.Read(record));
  const auto decode = [&]() -> Result<Tensor> {
    SLUICE_ASSIGN_OR_RETURN(*image, ParseImageRecord(*bytes));
    return DecodeImage(image->encoded, image->name());
  };
  Result<Tensor> picture = decode();
  if (picture.ok()) return picture;
  return picture.status().WithContext(files.PlaceOf(record));
}

std::string LabelRange::ToString() const {
  if (most < least) return "no labels";
  std::string text = fmt::format("labels {} to {}", least, most);
  if (offset != 0) text += " (resnet50: --label-offset 1)";
  return text;
}

}  // namespace sluice::tool
