#include "apps/sluice/data_records.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "io/files/file.h"
#include "io/images/image.h"

namespace sluice::tool {

namespace {

// By its name or by the magic of its first header.
bool IsTar(const std::string& path) {
  constexpr uint64_t kMagicAt = 257;
  constexpr std::string_view kMagic = "ustar";
  if (path.ends_with(".tar")) return true;
  const auto file = FileSystem::Posix().OpenRead(path);
  std::string magic(kMagic.size(), '\0');
  return file.ok() &&
         (*file)->ReadAt(kMagicAt, magic.data(), magic.size()).ok() &&
         magic == kMagic;
}

void RequireNoTar(const std::string& path) {
  if (!IsTar(path)) return;
  throw Error(
      Code::kUnimplemented,
      fmt::format("'{}': tar archives are read by resnet50 alone", path));
}

}  // namespace

std::vector<std::string> RecordPaths(const std::string& path) {
  if (!std::filesystem::is_directory(path)) {
    RequireNoTar(path);
    return {path};
  }
  std::vector<std::string> paths;
  for (const std::string_view part : kImageRecordParts) {
    const std::vector<std::string> shards = FindShards(path, part);
    paths.insert(paths.end(), shards.begin(), shards.end());
  }
  if (!paths.empty()) return paths;
  for (const std::string& name :
       FileSystem::Posix().List(path).ValueOrThrow()) {
    if (name.ends_with(".tar")) RequireNoTar(JoinPath(path, name));
  }
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
  return fmt::format("labels {} to {}", least, most);
}

}  // namespace sluice::tool
