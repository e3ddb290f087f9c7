#include "apps/sluice/data_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "apps/sluice/file_tree.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/images/image.h"

namespace sluice::tool {

namespace {

ListedFolder Listed(const std::string& folder) {
  return {folder, FileSystem::Default().List(folder).ValueOrThrow()};
}

}  // namespace

bool IsTar(const std::string& path) {
  constexpr uint64_t kMagicAt = 257;
  constexpr std::string_view kMagic = "ustar";
  if (path.ends_with(".tar")) return true;
  const auto file = FileSystem::Default().OpenRead(path);
  std::string magic(kMagic.size(), '\0');
  return file.ok() &&
         (*file)->ReadAt(kMagicAt, magic.data(), magic.size()).ok() &&
         magic == kMagic;
}

std::vector<std::string> RecordPaths(const std::string& path) {
  if (KindOf(path).ValueOrThrow() != PathKind::kFolder) return {path};
  const ListedFolder folder = Listed(path);
  std::vector<std::string> paths;
  for (const ShardKind kind : {ShardKind::kRecords, ShardKind::kTars}) {
    for (const std::string_view part : kImageRecordParts) {
      const std::vector<std::string> shards =
          ShardsAmong(folder.names, kind, path, part);
      paths.insert(paths.end(), shards.begin(), shards.end());
    }
  }
  if (!paths.empty()) return paths;
  throw Error(Code::kNotFound,
              fmt::format("no records in '{}': wanted files such as "
                          "train-00000-of-00008 or train-000000.tar; name "
                          "files that are called otherwise one by one",
                          path));
}

std::vector<std::string> PartPaths(const std::string& folder,
                                   const std::string& part) {
  const ListedFolder listed = Listed(folder);
  const bool records = HasImageShards(listed, ShardKind::kRecords);
  const bool tars = HasImageShards(listed, ShardKind::kTars);
  if (records && tars) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' holds shards of records and of tar archives; "
                            "keep one of them there",
                            folder));
  }
  return ImageShards(listed, tars ? ShardKind::kTars : ShardKind::kRecords,
                     part);
}

Result<std::shared_ptr<const PictureFiles>> PictureFiles::Open(
    const std::vector<std::string>& paths, int threads, TarLabels labels) {
  std::vector<std::string> records, tars;
  std::partition_copy(paths.begin(), paths.end(), std::back_inserter(tars),
                      std::back_inserter(records), IsTar);
  SLUICE_ASSIGN_OR_RETURN(auto record_files,
                          RecordFiles::Open(records, threads));
  SLUICE_ASSIGN_OR_RETURN(auto tar_files,
                          TarFiles::Open(tars, labels, threads));
  return std::shared_ptr<const PictureFiles>(
      new PictureFiles(std::move(record_files), std::move(tar_files)));
}

Result<EncodedPicture> PictureFiles::Read(int64_t i) const {
  if (i >= records_->size()) {
    SLUICE_ASSIGN_OR_RETURN(TarPicture picture,
                            tars_->Read(i - records_->size()));
    return EncodedPicture{std::move(picture.encoded), picture.label,
                          std::move(picture.name)};
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, records_->Read(i));
  const auto record = ParseImageRecord(bytes);
  if (!record.ok()) return record.status().WithContext(PlaceOf(i));
  return EncodedPicture{std::string(record->encoded), record->label,
                        record->name()};
}

Result<Tensor> PictureFiles::Decode(int64_t i,
                                    const EncodedPicture& picture) const {
  Result<Tensor> image = DecodeImage(picture.encoded, picture.name);
  if (image.ok()) return image;
  return image.status().WithContext(PlaceOf(i));
}

std::string PictureFiles::PlaceOf(int64_t i) const {
  return i < records_->size() ? records_->PlaceOf(i)
                              : tars_->PlaceOf(i - records_->size());
}

std::string LabelRange::ToString() const {
  if (most < least) return "no labels";
  return fmt::format("labels {} to {}", least, most);
}

}  // namespace sluice::tool
