#include "apps/resnet50/records.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "apps/resnet50/each_epoch.h"
#include "apps/resnet50/pictures.h"
#include "apps/resnet50/sizing.h"
#include "engine/thousands.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"
#include "models/cli/console.h"

namespace sluice::resnet50 {
namespace {

// Of the shards as they were opened. One that has just been written has none
// yet, for some milliseconds.
std::string VersionOf(const shards::LabelledShards& shards) {
  constexpr std::chrono::milliseconds kPause{25};
  constexpr int kAttempts = 40;
  for (int attempt = 1;; ++attempt) {
    const Result<std::string> version = shards.Version();
    if (version.ok()) return *version;
    if (version.status().code() != Code::kFailedPrecondition ||
        attempt == kAttempts) {
      throw Error(version.status().WithContext("--cache"));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

RecordPictures::RecordPictures(const RunContext& run)
    : shards_(run, run.flag("data"), {Classes(run), run.class_names}),
      described_(DescribeSizing(run)) {}

Dataset RecordPictures::Numbers() const {
  return datasets::RecordNumbers(shards_.size(),
                                 described_ + shards_.Identity());
}

std::function<void(Example&, uint64_t)> RecordPictures::ToPicture(
    const RunContext& run) const {
  const Sizing sizing(Small(run), run);
  if (const auto cache = PictureCache::Of(run)) {
    return FromCache(cache, sizing, run);
  }
  return [shards = shards_, sizing](Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const shards::ShardPicture picture = shards.Read(number);
    const Result<Tensor> image = sizing(picture.encoded, picture.name, key);
    ThrowIfError(image.status().WithContext(shards.PlaceOf(number)));
    example = {{"image", *image}, {"label", Tensor::Scalar(picture.label)}};
  };
}

std::function<void(Example&, uint64_t)> RecordPictures::FromCache(
    std::shared_ptr<PictureCache> cache, const Sizing& sizing,
    const RunContext& run) const {
  const char* kind = run.mode == Mode::kPredict ? " without its label" : "";
  // One that has changed is read, which fails as without a cache.
  const auto versions = std::make_shared<EachEpoch<std::string>>(
      shards_.size(), [shards = shards_] { return VersionOf(shards); });
  return [shards = shards_, cache = std::move(cache), sizing, kind, versions](
             Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const std::shared_ptr<const std::string> version = versions->For(number);
    const std::string place = shards.PlaceOf(number);
    const auto read = [&] {
      shards::ShardPicture picture = shards.ReadAsIs(number);
      return EncodedPicture{.bytes = std::move(picture.encoded),
                            .label = picture.label,
                            .name = std::move(picture.name)};
    };
    const SizedPicture picture =
        cache->Get({.name = FromRoot(place) + kind,
                    .version = [&] { return Result<std::string>(*version); },
                    .read = read},
                   sizing, key, place);
    example = {
        {"image", picture.image},
        {"label", Tensor::Scalar(shards.ClassOf(picture.label, number))}};
  };
}

std::vector<std::string> RecordClassNames(const RunContext& run) {
  if (!run.class_names.empty()) return run.class_names;
  return shards::ClassNamesBeside(run.flag("data"));
}

std::vector<int64_t> RecordClassCounts(const RunContext& run) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<int64_t>> known;
  const shards::LabelledShards pictures(run, run.flag("data"),
                                        {Classes(run), run.class_names});
  const std::lock_guard lock(mutex);
  std::vector<int64_t>& counts =
      known[fmt::format("{}{}", Classes(run), pictures.Identity())];
  if (counts.empty()) {
    console::Note(
        fmt::format("--class-weights balanced: reading {} labels, which stand "
                    "in the pictures' records",
                    WithThousands(pictures.size())));
    counts = pictures.CountClasses(run.bad_examples->limit() > 0);
  }
  return counts;
}

std::string RecordsEvaluatedOn(const RunContext& run) {
  return shards::ShardsEvaluatedOn(run, run.flag("data"));
}

}  // namespace sluice::resnet50
