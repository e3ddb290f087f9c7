#include "apps/shards/picture_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "apps/shards/shards_in_memory.h"
#include "apps/shards/shards_in_order.h"
#include "io/files/file.h"
#include "io/files/file_pattern.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/images/image.h"
#include "io/records/image_records.h"
#include "io/records/tar_files.h"
#include "io/sources/image_folder.h"

namespace sluice::shards {
namespace {

// Of either kind of files, at `paths`.
template <typename Files>
class ShardFiles : public PictureShards {
 public:
  ShardFiles(std::shared_ptr<const Files> files, ShardSet shards)
      : files_(std::move(files)), shards_(std::move(shards)) {}

  int64_t size() const override { return files_->size(); }
  std::string PlaceOf(int64_t number) const override {
    return files_->PlaceOf(number);
  }
  Result<std::string> Identity() const override { return files_->Identity(); }
  const ShardSet& shards() const override { return shards_; }
  int64_t CountOf(size_t shard) const override {
    return files_->CountOf(shard);
  }
  std::string VersionOf(size_t shard) const override {
    return files_->VersionOf(shard);
  }

 protected:
  std::shared_ptr<const Files> files_;

 private:
  const ShardSet shards_;
};

class Records : public ShardFiles<RecordFiles> {
 public:
  using ShardFiles::ShardFiles;

  Result<ShardPicture> Read(int64_t number) const override {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files_->Read(number));
    const Result<ImageRecord> record = ParseImageRecord(bytes);
    if (!record.ok()) return record.status().WithContext(PlaceOf(number));
    return ShardPicture{std::string(record->encoded), record->label,
                        record->name()};
  }
  Result<int64_t> Label(int64_t number) const override {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files_->Read(number));
    const Result<ImageRecord> record = ParseImageRecord(bytes);
    if (!record.ok()) return record.status().WithContext(PlaceOf(number));
    return record->label;
  }
};

class Tars : public ShardFiles<TarFiles> {
 public:
  using ShardFiles::ShardFiles;

  Result<ShardPicture> Read(int64_t number) const override {
    SLUICE_ASSIGN_OR_RETURN(TarPicture picture, files_->Read(number));
    return ShardPicture{std::move(picture.encoded), picture.label,
                        std::move(picture.name)};
  }
  Result<int64_t> Label(int64_t number) const override {
    return files_->Label(number);
  }
};

bool IsTar(const std::string& name) {
  return !name.starts_with('.') &&
         (name.ends_with(".tar") || name.find(".tar.") != std::string::npos ||
          name.ends_with(".tgz"));
}

// Whether ListImages (io/sources/image_list.h) would find pictures there, or in
// its parts.
bool HoldsPictures(const ListedFolder& folder) {
  const auto has_pictures = [&](const std::string& name) {
    if (name == "labels.csv") return true;
    const std::string path = JoinPath(folder.path, name);
    // To ask a server of each shard would take long.
    if (name.starts_with('.') || IsTar(name)) return false;
    if (!IsFolder(path).ValueOrThrow()) return false;
    return name == "train" || name == "val" || !ImagesIn(path).empty();
  };
  return std::any_of(folder.names.begin(), folder.names.end(), has_pictures);
}

// Throws where there are archives, of another name, and nothing else to read.
void RequireNoOtherTars(const ListedFolder& folder) {
  const auto& names = folder.names;
  const auto tar = std::find_if(names.begin(), names.end(), IsTar);
  if (tar == names.end() ||
      std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return name == "labels.csv" || IsImageName(name) ||
               (!IsTar(name) &&
                IsFolder(JoinPath(folder.path, name)).ValueOrThrow());
      })) {
    return;
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("'{}': tar shards must be called train-000000.tar (or "
                  "train-00000-of-00010.tar) and not be compressed; got '{}'",
                  folder.path, *tar));
}

// Of which kind its shards are, if it has any.
std::optional<ShardKind> KindOf(const ListedFolder& folder) {
  const bool records = HasImageShards(folder, ShardKind::kRecords);
  if (!HasImageShards(folder, ShardKind::kTars)) {
    if (records) return ShardKind::kRecords;
    RequireNoOtherTars(folder);
    return std::nullopt;
  }
  if (records) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' holds shards of records and of tar archives; "
                            "keep one of them there",
                            folder.path));
  }
  if (HoldsPictures(folder)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' holds tar shards and folders of pictures: "
                            "keep one",
                            folder.path));
  }
  return ShardKind::kTars;
}

struct ShardFolder {
  ListedFolder listed;
  std::optional<ShardKind> kind;
};

// Throws where a pattern names others.
void RequireShards(const std::string& pattern, const ShardFolder& look) {
  if (look.kind) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' fits '{}', which is not called as shards are: "
                          "train-00000-of-00010 or train-000000.tar",
                          pattern, look.listed.names[0]));
}

// Throws where it cannot be found out what there is; no folder at all has none.
ShardFolder ListShards(const std::string& path) {
  auto listed = ListFolder(path);
  const bool pattern = IsFilePattern(path);
  const bool none = listed.status().code() == Code::kNotFound && !pattern;
  ShardFolder look = {.listed = {.path = path, .names = {}}, .kind = {}};
  if (!none) look.listed = std::move(listed).ValueOrThrow();
  look.kind = KindOf(look.listed);
  if (pattern) RequireShards(path, look);
  return look;
}

// When what is in the folder, or in that of the pattern, was last another; of a
// server's nothing is known, so that it is listed once.
std::filesystem::file_time_type ChangeOf(const std::string& path) {
  if (!SchemeOf(path).empty()) return {};
  std::error_code none;
  const auto time = std::filesystem::last_write_time(
      IsFilePattern(path) ? ParentDirectory(path) : path, none);
  return none ? std::filesystem::file_time_type() : time;
}

// Of a folder that has not changed since, what it was the last time: a start
// asks often, and one of many pictures takes long to list.
std::shared_ptr<const ShardFolder> Look(const std::string& path) {
  struct Known {
    std::filesystem::file_time_type change;
    std::shared_ptr<const ShardFolder> look;
  };
  static std::mutex mutex;
  static std::map<std::string, Known> known;
  const auto change = ChangeOf(path);
  const std::lock_guard lock(mutex);
  const auto found = known.find(path);
  if (found != known.end() && found->second.change == change) {
    return found->second.look;
  }
  auto look = std::make_shared<const ShardFolder>(ListShards(path));
  known[path] = {change, look};
  return look;
}

// What is there, as far as some may be missing.
ListedFolder ListedFor(const WhereShards& where, const ShardFolder& look) {
  ListedFolder listed = look.listed;
  listed.may_lack_shards |= where.may_lack;
  return listed;
}

// Of a part. Empty where there are none.
ShardSet Find(const WhereShards& where, const ShardFolder& look,
              std::string_view part) {
  if (!look.kind) return {};
  try {
    return FindImageShards(ListedFor(where, look), *look.kind, part);
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) throw;
    throw Error(Code::kNotFound,
                fmt::format("{}; --allow-missing-shards goes on without",
                            error.what()));
  }
}

void RequireNoneEmpty(const PictureShards& pictures) {
  const std::vector<std::string>& paths = pictures.shards().paths;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (pictures.CountOf(i) > 0) continue;
    throw Error(Code::kDataLoss,
                fmt::format("'{}' holds nothing: was it written, or copied, "
                            "whole? --allow-missing-shards goes on without",
                            paths[i]));
  }
}

std::shared_ptr<const PictureShards> OpenRecords(ShardSet shards, int threads,
                                                 IfCompressed how) {
  auto files = RecordFiles::Open(shards.paths, threads);
  if (files.status().code() == Code::kUnimplemented) {
    if (how == IfCompressed::kInMemory) {
      return ShardsInMemory::Open(std::move(shards), threads).ValueOrThrow();
    }
    return ShardsInOrder::Open(std::move(shards), threads).ValueOrThrow();
  }
  return std::make_shared<const Records>(std::move(files).ValueOrThrow(),
                                         std::move(shards));
}

std::shared_ptr<const PictureShards> Open(ShardKind kind, ShardSet shards,
                                          TarLabels labels, int threads,
                                          IfCompressed how) {
  if (kind == ShardKind::kRecords) {
    return OpenRecords(std::move(shards), threads, how);
  }
  auto files = TarFiles::Open(shards.paths, labels, threads).ValueOrThrow();
  return std::make_shared<const Tars>(std::move(files), std::move(shards));
}

}  // namespace

bool HasPictureShards(const std::string& path) {
  return Look(path)->kind.has_value();
}

std::vector<std::string> ClassNamesBeside(const std::string& path) {
  // Of a pattern only what fits it has been listed.
  if (IsFilePattern(path)) {
    return ReadClassNames(ParentDirectory(path)).ValueOrThrow();
  }
  return ReadClassNames(Look(path)->listed).ValueOrThrow();
}

bool HasPicturePart(const WhereShards& where, std::string_view part) {
  return !Find(where, *Look(where.path), part).paths.empty();
}

std::shared_ptr<const PictureShards> OpenPictureShards(const WhereShards& where,
                                                       std::string_view part,
                                                       bool labels_matter,
                                                       int threads,
                                                       IfCompressed how) {
  const auto look = Look(where.path);
  const ShardKind kind = look->kind.value_or(ShardKind::kRecords);
  ShardSet shards = Find(where, *look, part);
  if (shards.paths.empty()) shards = ImageShards(look->listed, kind, part);
  auto pictures = Open(kind, std::move(shards),
                       labels_matter ? TarLabels::kRead : TarLabels::kIgnored,
                       threads, how);
  if (!where.may_lack) RequireNoneEmpty(*pictures);
  return pictures;
}

}  // namespace sluice::shards
