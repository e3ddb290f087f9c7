#include "apps/sluice/data/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "apps/sluice/data/random_order.h"
#include "apps/sluice/data/resize.h"
#include "apps/sluice/json.h"
#include "engine/ceil_div.h"
#include "engine/text/json_object.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"

namespace sluice::tool {
namespace {

// Few enough files for any file system, and enough of them to be shared out
// among readers.
constexpr int64_t kShardBytes = 128'000'000;

std::string ResizeText(int64_t resize) {
  return resize == 0 ? "without --resize"
                     : fmt::format("with --resize {}", resize);
}

}  // namespace

DataPlan::DataPlan(ImageList list, std::string base, int64_t resize)
    : list_(std::move(list)),
      base_(std::move(base)),
      resize_(resize),
      order_(RandomOrder(list_.paths.size())) {
  const std::vector<int64_t> sizes = SizesOf(list_.paths);
  for (const uint32_t picture : order_) sizes_.push_back(sizes[picture]);
}

void DataPlan::Cut(int64_t shards) {
  if (shards > records()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("got {} shards, wanted at most one per picture: "
                            "'{}' has {}",
                            shards, list_.directory, records()));
  }
  const std::vector<std::string> there = ShardsThere();
  const auto [identities, resize] = Load();
  const auto cut = static_cast<int64_t>(identities.size());
  if (there.empty()) {
    shards_ = shards == 0 ? cut : shards;
    if (shards == 0 && !AreOfAll(identities)) shards_ = DefaultShards();
    return;
  }
  if (!FileSystem::Default().Exists(Path()).ValueOrThrow()) {
    Refuse(fmt::format("'{}' is there without '{}'", there[0], Path()));
  }
  if (cut == 0) Refuse(fmt::format("'{}' is damaged", Path()));
  if (shards != 0 && shards != cut) {
    Refuse(fmt::format("'{}' is one of {} shards, got --shards {}", there[0],
                       cut, shards),
           "leave --shards out, or ");
  }
  if (resize != resize_) {
    Refuse(fmt::format("'{}' was made {}, got {}", there[0], ResizeText(resize),
                       ResizeText(resize_)));
  }
  shards_ = cut;
  CheckShards(there, identities);
}

void DataPlan::Save() const {
  Json identities = Json::Array();
  for (int64_t s = 0; s < shards_; ++s) identities.Add(IdentityOf(s));
  Json plan = {{"records", records()}, {"shards", identities}};
  if (resize_ > 0) plan["resize"] = resize_;
  ThrowIfError(
      FileSystem::Default().WriteAtomically(Path(), plan.Text() + "\n"));
}

std::string DataPlan::PathOf(int64_t shard) const {
  return fmt::format("{}-{:05}-of-{:05}", base_, shard, shards_);
}

bool DataPlan::IsWhole(int64_t shard) const {
  const std::string path = PathOf(shard);
  for (const char* extension : {"", ".idx"}) {
    if (!FileSystem::Default().Exists(path + extension).ValueOrThrow())
      return false;
  }
  const auto file = RecordFiles::Open({path});
  if (file.status().code() == Code::kDataLoss) return false;
  ThrowIfError(file.status());
  return (*file)->size() == Begin(shard + 1) - Begin(shard);
}

Status DataPlan::CheckBeginning(int64_t record) const {
  constexpr size_t kBytes = 64;
  SLUICE_ASSIGN_OR_RETURN(
      const std::string beginning,
      FileSystem::Default().ReadPrefix(list_.paths[PictureOf(record)], kBytes));
  return Encode(record, beginning).status();
}

Result<std::string> DataPlan::Record(int64_t record) const {
  const std::string& path = list_.paths[PictureOf(record)];
  SLUICE_ASSIGN_OR_RETURN(std::string picture,
                          FileSystem::Default().Read(path));
  if (resize_ > 0) {
    SLUICE_ASSIGN_OR_RETURN(picture,
                            MakeSmaller(std::move(picture), resize_, path));
  }
  return Encode(record, picture);
}

Result<std::string> DataPlan::Encode(int64_t record,
                                     std::string_view picture) const {
  const int64_t i = PictureOf(record);
  ImageRecord image = {picture, list_.labels[i]};
  if (!list_.class_names.empty()) {
    image.class_name = list_.class_names[image.label];
  }
  image.file = list_.Relative(i);
  auto bytes = EncodeImageRecord(image);
  if (bytes.ok()) return bytes;
  return bytes.status().WithContext(fmt::format("'{}'", list_.paths[i]));
}

int64_t DataPlan::DefaultShards() const {
  int64_t bytes = 0;
  for (const int64_t size : sizes_) bytes += std::max<int64_t>(size, 0);
  return std::clamp<int64_t>(CeilDiv(bytes, kShardBytes), 1, records());
}

std::string DataPlan::IdentityOf(int64_t shard) const {
  std::string text;
  for (int64_t i = Begin(shard); i < Begin(shard + 1); ++i) {
    text += fmt::format("{}\n{}\n{}\n", list_.Relative(order_[i]),
                        list_.labels[order_[i]], sizes_[i]);
  }
  return fmt::format("{:08x}", Crc32c(text));
}

bool DataPlan::AreOfAll(const std::vector<std::string>& identities) const {
  const auto n = static_cast<int64_t>(identities.size());
  if (n != shards_ || n == 0 || n > records()) return false;
  for (int64_t s = 0; s < n; ++s) {
    if (identities[s] != IdentityOf(s)) return false;
  }
  return true;
}

void DataPlan::CheckShards(const std::vector<std::string>& there,
                           const std::vector<std::string>& identities) const {
  std::vector<std::string> planned;
  for (int64_t s = 0; s < shards_; ++s) {
    planned.push_back(PathOf(s));
    if (!std::binary_search(there.begin(), there.end(), planned[s])) continue;
    // Too few pictures for so many shards leave some without any.
    if (shards_ > records() || identities[s] != IdentityOf(s)) {
      Refuse(fmt::format("'{}' was made from other pictures than '{}' has now",
                         planned[s], list_.directory));
    }
  }
  std::sort(planned.begin(), planned.end());
  std::vector<std::string> strange;
  std::set_difference(there.begin(), there.end(), planned.begin(),
                      planned.end(), std::back_inserter(strange));
  if (!strange.empty()) {
    Refuse(fmt::format("'{}' is none of the {} shards of '{}'", strange[0],
                       shards_, Path()));
  }
}

std::vector<std::string> DataPlan::ShardsThere() const {
  const std::string out = ParentDirectory(base_);
  const std::string prefix =
      std::filesystem::path(base_).filename().string() + "-";
  std::vector<std::string> shards;
  if (!FileSystem::Default().Exists(out).ValueOrThrow()) return shards;
  for (const std::string& name :
       FileSystem::Default().List(out).ValueOrThrow()) {
    if (name.starts_with(prefix) && name.find("-of-") != std::string::npos &&
        !name.ends_with(".idx") && !IsTemporaryName(name)) {
      shards.push_back(base_ + name.substr(prefix.size() - 1));
    }
  }
  return shards;
}

DataPlan::Saved DataPlan::Load() const {
  if (!FileSystem::Default().Exists(Path()).ValueOrThrow()) return {};
  const auto plan =
      JsonObject::Parse(FileSystem::Default().Read(Path()).ValueOrThrow());
  if (!plan.ok()) return {};
  auto identities = plan->Strings("shards");
  const auto resize =
      plan->Has("resize") ? plan->Int("resize") : Result<int64_t>(0);
  if (!identities.ok() || !resize.ok()) return {};
  return {*std::move(identities), *resize};
}

void DataPlan::Refuse(const std::string& why, const std::string& first) const {
  throw Error(
      Code::kFailedPrecondition,
      fmt::format("{}; {}remove '{}' and the shards '{}-*', or choose another "
                  "folder",
                  why, first, Path(), base_));
}

}  // namespace sluice::tool
