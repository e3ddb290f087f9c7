#include "apps/resnet50/picture_cache.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/text/thousands.h"
#include "io/files/file.h"
#include "io/files/open_files.h"
#include "io/files/schemes.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/records/file_datasets.h"
#include "models/cli/console.h"
#include "models/cli/flag_values.h"

namespace sluice::resnet50 {
namespace {

constexpr char kMemory[] = "memory";
constexpr char kBytes[] = "bytes", kImage[] = "image", kLabel[] = "label",
               kName[] = "name";
constexpr uint64_t kDefaultMemory = uint64_t{4} << 30;
constexpr uint64_t kDefaultFolder = uint64_t{20} << 30;

std::string ShownBytes(uint64_t bytes) {
  for (const auto& [shift, unit] :
       {std::pair(40, 'T'), {30, 'G'}, {20, 'M'}, {10, 'K'}}) {
    if (bytes >> shift > 0 && bytes % (uint64_t{1} << shift) == 0) {
      return fmt::format("{}{}", bytes >> shift, unit);
    }
  }
  return fmt::format("{} bytes", bytes);
}

Tensor Bytes(std::string_view text) {
  Tensor bytes(DType::kUInt8, {static_cast<int64_t>(text.size())});
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

// What all that decides what is made of a file's bytes is, in words. Another
// version of a library may decode other bits.
std::string KeyOf(PictureCache::Stage stage, const RunContext& run) {
  if (stage == PictureCache::Stage::kBytes) return "encoded pictures 1";
  return fmt::format("decoded pictures 2 {}, {}, {} {}", SLUICE_VERSION,
                     JpegLibrary(), PngLibrary(), DescribeSizing(run));
}

std::shared_ptr<PictureCache> Open(const RunContext& run, uint64_t max_bytes) {
  const std::string& where = run.flag("cache");
  const auto stage = run.flag("cache-stage") == kImage
                         ? PictureCache::Stage::kImage
                         : PictureCache::Stage::kBytes;
  const bool memory = where == kMemory;
  // What a run with a greater limit has kept is not this one's to remove, but
  // where it was told so.
  const auto kept = std::make_shared<KeptExamples>(
      CacheOptions{.max_bytes = max_bytes,
                   .folder = memory ? "" : where,
                   .key = KeyOf(stage, run),
                   .keeps_more = run.flag("cache-limit").empty()});
  const char* what = stage == PictureCache::Stage::kImage
                         ? "decoded pictures"
                         : "the bytes of pictures";
  console::Note(
      memory ? fmt::format("--cache: {} are kept in memory, up to {} in each "
                           "process",
                           what, ShownBytes(max_bytes))
             : fmt::format("--cache: {} are kept in '{}', up to {}; {} are "
                           "there",
                           what, where, ShownBytes(max_bytes),
                           WithThousands(kept->size())));
  if (const uint64_t removed = kept->removed_bytes(); removed > 0) {
    console::Note(
        fmt::format("--cache: removed {} bytes, which were more than "
                    "--cache-limit",
                    WithThousands(static_cast<int64_t>(removed))));
  }
  return std::make_shared<PictureCache>(kept, stage);
}

// What the flags say, checked.
uint64_t LimitOf(const RunContext& run) {
  const std::string& where = run.flag("cache");
  const std::string& limit = run.flag("cache-limit");
  if (where.empty() && !limit.empty()) {
    throw Error(Code::kInvalidArgument, "--cache-limit is for --cache");
  }
  if (!SchemeOf(where).empty()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--cache: wanted a folder of this machine, got "
                            "'{}'",
                            where));
  }
  if (!limit.empty()) {
    try {
      return ParseBytes(limit);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("--cache-limit: {}", error.what()));
    }
  }
  return where == kMemory ? kDefaultMemory : kDefaultFolder;
}

}  // namespace

void PictureCache::Check(const RunContext& run) {
  (void)LimitOf(run);
}

std::shared_ptr<PictureCache> PictureCache::Of(const RunContext& run) {
  const std::string& where = run.flag("cache");
  if (where.empty()) return nullptr;
  const uint64_t max_bytes = LimitOf(run);
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<PictureCache>> known;
  const std::lock_guard lock(mutex);
  auto& cache =
      known[fmt::format("{}\n{}\n{}\n{}", where, max_bytes,
                        run.flag("cache-stage"), DescribeSizing(run))];
  if (cache == nullptr) cache = Open(run, max_bytes);
  return cache;
}

PictureCache::PictureCache(std::shared_ptr<KeptExamples> kept, Stage stage)
    : kept_(std::move(kept)), stage_(stage) {}

Example PictureCache::Read(const Source& source, const Sizing& sizing,
                           const std::string& context) const {
  const EncodedPicture picture = source.read();
  Example example = {{kLabel, Tensor::Scalar(picture.label)},
                     {kName, Bytes(picture.name)}};
  if (stage_ == Stage::kBytes) {
    example.Set(kBytes, Bytes(picture.bytes));
    return example;
  }
  const Result<Tensor> image = sizing.Decode(picture.bytes, picture.name);
  ThrowIfError(context.empty() ? image.status()
                               : image.status().WithContext(context));
  example.Set(kImage, *image);
  return example;
}

Example PictureCache::FindOrRead(const Source& source, const Sizing& sizing,
                                 const std::string& context) {
  if (!source.listed.empty()) {
    if (auto found = kept_->Find(source.name, source.listed)) {
      return *std::move(found);
    }
  }
  const Result<std::string> version = source.version();
  if (version.ok() && *version != source.listed) {
    if (auto found = kept_->Find(source.name, *version)) {
      return *std::move(found);
    }
  }
  Example example = Read(source, sizing, context);
  const bool unchanged = version.ok() && [&] {
    const Result<std::string> after = source.version();
    return after.ok() && *after == *version;
  }();
  if (unchanged) kept_->Add(source.name, *version, example);
  return example;
}

SizedPicture PictureCache::Get(const Source& source, const Sizing& sizing,
                               uint64_t key, const std::string& context) {
  const Example picture = FindOrRead(source, sizing, context);
  const Result<Tensor> image =
      stage_ == Stage::kImage
          ? Result<Tensor>(sizing.Size(picture[kImage], key))
          : sizing(BytesOf(picture[kBytes]),
                   std::string(BytesOf(picture[kName])), key);
  ThrowIfError(context.empty() ? image.status()
                               : image.status().WithContext(context));
  return {*image, picture[kLabel].IntAt(0)};
}

std::vector<std::string> ListedVersions(const std::vector<std::string>& paths) {
  constexpr int kListings = 16;  // at a time, of a server that is far away
  std::map<std::string, std::map<std::string, std::string>> by_folder;
  std::vector<std::string> folders;
  for (const std::string& path : paths) {
    const std::string folder = ParentDirectory(path);
    if (!SchemeOf(path).empty() && by_folder.try_emplace(folder).second) {
      folders.push_back(folder);
    }
  }
  (void)ForEachFile(folders.size(), kListings, [&](size_t i) -> Status {
    auto versions = FileSystem::Default().Versions(folders[i]);
    if (versions.ok()) by_folder.at(folders[i]) = *std::move(versions);
    return {};
  });
  std::vector<std::string> listed;
  listed.reserve(paths.size());
  for (const std::string& path : paths) {
    const auto folder = by_folder.find(ParentDirectory(path));
    std::string version;
    if (folder != by_folder.end()) {
      const auto found = folder->second.find(path.substr(path.rfind('/') + 1));
      if (found != folder->second.end()) version = found->second;
    }
    listed.push_back(std::move(version));
  }
  return listed;
}

std::string FromRoot(const std::string& place) {
  const std::string_view bare =
      std::string_view(place).substr(place.starts_with('\'') ? 1 : 0);
  if (bare.starts_with('/') || !SchemeOf(bare).empty()) return place;
  std::error_code none;
  return JoinPath(std::filesystem::current_path(none).string(), place);
}

}  // namespace sluice::resnet50
