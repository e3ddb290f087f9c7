#include "io/records/record_manifest.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "engine/text/json_object.h"
#include "io/files/file.h"

namespace sluice {
namespace {

// As the manifest names the shard, with numbers of five digits or more.
std::string ShardPath(const std::string& base, int64_t shard, int64_t shards) {
  return fmt::format("{}-{:05}-of-{:05}", base, shard, shards);
}

}  // namespace

Result<std::optional<RecordManifest>> ReadManifest(const std::string& folder,
                                                   std::string_view part) {
  const std::optional<RecordManifest> none;
  RecordManifest manifest = {JoinPath(folder, std::string(part) + ".json")};
  FileSystem& files = FileSystem::Default();
  SLUICE_ASSIGN_OR_RETURN(const bool there, files.Exists(manifest.path));
  if (!there) return none;
  SLUICE_ASSIGN_OR_RETURN(const std::string text, files.Read(manifest.path));
  const auto json = JsonObject::Parse(text);
  if (!json.ok() || !json->Has("shards")) return none;
  const auto records = json->Int("records");
  const auto shards = json->Strings("shards");
  if (!records.ok() || !shards.ok() || *records < 0) return none;
  manifest.records = *records;
  manifest.shards = static_cast<int64_t>(shards->size());
  return std::optional(std::move(manifest));
}

Result<std::optional<RecordManifest>> FindManifest(
    const std::vector<std::string>& paths) {
  const std::optional<RecordManifest> none;
  if (paths.empty()) return none;
  const size_t name = paths[0].rfind('/') + 1;
  const size_t of = paths[0].rfind("-of-");
  if (of == std::string::npos || of < name) return none;
  const size_t number = paths[0].rfind('-', of - 1);
  if (number == std::string::npos || number < name || of == 0) return none;
  const std::string base = paths[0].substr(0, number);
  const auto count = static_cast<int64_t>(paths.size());
  const std::set<std::string> there(paths.begin(), paths.end());
  for (int64_t shard = 0; shard < count; ++shard) {
    if (!there.contains(ShardPath(base, shard, count))) return none;
  }
  SLUICE_ASSIGN_OR_RETURN(
      auto manifest,
      ReadManifest(ParentDirectory(base), std::string_view(base).substr(name)));
  if (!manifest || manifest->shards != count) return none;
  return manifest;
}

}  // namespace sluice
