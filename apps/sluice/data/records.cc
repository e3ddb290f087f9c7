#include "apps/sluice/data/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "apps/sluice/data/file_tree.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/without_query.h"
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
  if (WithoutQuery(path).ends_with(".tar")) return true;
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
          ShardsAmong(folder, kind, part).paths;
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
                     part)
      .paths;
}

Result<std::shared_ptr<const PictureFiles>> PictureFiles::Open(
    const std::vector<std::string>& paths, int threads, TarLabels labels) {
  const std::shared_ptr<PictureFiles> files(new PictureFiles);
  auto& records = files->record_paths_;
  auto& tars = files->tar_paths_;
  std::partition_copy(paths.begin(), paths.end(), std::back_inserter(tars),
                      std::back_inserter(records), IsTar);
  SLUICE_ASSIGN_OR_RETURN(files->records_, RecordFiles::Open(records, threads));
  SLUICE_ASSIGN_OR_RETURN(files->tars_, TarFiles::Open(tars, labels, threads));
  return std::shared_ptr<const PictureFiles>(files);
}

std::vector<std::string> PictureFiles::EmptyFiles() const {
  std::vector<std::string> empty;
  for (size_t i = 0; i < record_paths_.size(); ++i) {
    if (records_->CountOf(i) == 0) empty.push_back(record_paths_[i]);
  }
  for (size_t i = 0; i < tar_paths_.size(); ++i) {
    if (tars_->CountOf(i) == 0) empty.push_back(tar_paths_[i]);
  }
  return empty;
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
