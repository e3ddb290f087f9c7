#include "apps/resnet50/records.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "apps/shards/class_numbers.h"
#include "apps/shards/note_once.h"
#include "engine/text/thousands.h"
#include "io/files/crc32c.h"
#include "io/records/file_datasets.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"
#include "models/cli/console.h"

namespace sluice::resnet50 {
namespace {

// LabelledShards::Version, whose error is said. One that has just been written
// has none yet, for some milliseconds.
Result<std::string> VersionOf(const shards::LabelledShards& shards) {
  constexpr std::chrono::milliseconds kPause{25};
  constexpr int kAttempts = 40;
  for (int attempt = 1;; ++attempt) {
    Result<std::string> version = shards.Version();
    if (version.ok()) return version;
    if (version.status().code() != Code::kFailedPrecondition ||
        attempt == kAttempts) {
      shards::NoteOnce(
          fmt::format("--cache is left aside, and tried again each epoch: {}",
                      version.status().message()));
      return version;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

RecordPictures::RecordPictures(const RunContext& run)
    : shards_(run, run.flag("data"), {Classes(run), run.class_names},
              shards::IfCompressed::kInOrder),
      described_(DescribeSizing(run)) {
  const std::string& data = run.flag("data");
  if (run.mode != Mode::kPredict && !shards::ClassNamesBeside(data).empty()) {
    shards::RequireNumbers(run, fmt::format("'{}' names its classes", data));
  }
  // Their bytes come by reading all before them, kept or not.
  if (shards_.in_order() && !run.flag("cache").empty() &&
      run.flag("cache-stage") != "image") {
    throw Error(Code::kInvalidArgument,
                fmt::format("--cache: the records in '{}' are compressed, so "
                            "that all are read in each epoch and their bytes "
                            "need not be kept: decompress them, or "
                            "--cache-stage image keeps what is decoded",
                            run.flag("data")));
  }
}

Dataset RecordPictures::Records(const RunContext& run) const {
  if (shards_.in_order()) return InOrder(run);
  Dataset numbers =
      datasets::RecordNumbers(shards_.size(), described_ + shards_.Identity());
  if (!run.training()) return numbers;
  return numbers.Shuffle(std::max<int64_t>(shards_.size(), 1), run.seed)
      .Repeat();
}

Dataset RecordPictures::InOrder(const RunContext& run) const {
  FileOptions options = {.threads = run.input_threads, .meaning = described_};
  if (!run.training()) return shards_.InOrder(options);
  constexpr int64_t kFiles = 16;     // that are open at a time
  constexpr int64_t kBuffer = 2000;  // pictures, about 200 MB of ImageNet's
  options.cycle = kFiles;
  options.shuffle_seed = run.seed;
  const Dataset shuffled = shards_.InOrder(options).Shuffle(kBuffer, run.seed);
  const bool ends = shards_.size() == kUnknownCardinality && run.steps == 0;
  return ends ? shuffled : shuffled.Repeat();
}

std::function<void(Example&, uint64_t)> RecordPictures::ToPicture(
    const RunContext& run) const {
  const Sizing sizing(Small(run), run);
  const auto cache = PictureCache::Of(run);
  if (shards_.in_order()) {
    return cache == nullptr ? InOrderToPicture(sizing)
                            : InOrderFromCache(cache, sizing);
  }
  if (cache != nullptr) return FromCache(cache, sizing, run);
  return [shards = shards_, sizing](Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const shards::ShardPicture picture = shards.Read(number);
    const Result<Tensor> image = sizing(picture.encoded, picture.name, key);
    ThrowIfError(image.status().WithContext(shards.PlaceOf(number)));
    example = {{"image", *image}, {"label", Tensor::Scalar(picture.label)}};
  };
}

std::function<void(Example&, uint64_t)> RecordPictures::InOrderToPicture(
    const Sizing& sizing) const {
  return [shards = shards_, sizing](Example& example, uint64_t key) {
    const shards::ShardPicture picture = shards.PictureOf(example);
    const Result<Tensor> image = sizing(picture.encoded, picture.name, key);
    ThrowIfError(
        image.status().WithContext(std::string(BytesOf(example["place"]))));
    example = {{"image", *image}, {"label", Tensor::Scalar(picture.label)}};
  };
}

std::function<void(Example&, uint64_t)> RecordPictures::InOrderFromCache(
    std::shared_ptr<PictureCache> cache, const Sizing& sizing) const {
  return [shards = shards_, cache = std::move(cache), sizing](Example& example,
                                                              uint64_t key) {
    const Tensor record = example["bytes"];
    const std::string place(BytesOf(example["place"]));
    const shards::ShardPicture picture = shards.PictureOf(example);
    // What it is made of is here, so it tells whether that has changed.
    const std::string version =
        fmt::format("{} {:08x}", record.bytes(), Crc32c(BytesOf(record)));
    const auto read = [&] {
      return EncodedPicture{.bytes = picture.encoded,
                            .label = picture.label,
                            .name = picture.name};
    };
    const SizedPicture sized =
        cache->Get({.name = FromRoot(place),
                    .version = [&] { return Result<std::string>(version); },
                    .read = read},
                   sizing, key, place);
    example = {{"image", sized.image},
               {"label", Tensor::Scalar(picture.label)}};
  };
}

std::function<void(Example&, uint64_t)> RecordPictures::FromCache(
    std::shared_ptr<PictureCache> cache, const Sizing& sizing,
    const RunContext& run) const {
  const char* kind = run.mode == Mode::kPredict ? " without its label" : "";
  // Without one they are read, and may fail, as without a cache.
  const auto versions = std::make_shared<EachEpoch<Result<std::string>>>(
      shards_.size(), [shards = shards_] { return VersionOf(shards); },
      CallsOf(static_cast<size_t>(shards_.size()), run));
  return [shards = shards_, cache = std::move(cache), sizing, kind, versions](
             Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const auto version = versions->For(number);
    const std::string place = shards.PlaceOf(number);
    const auto read = [&] {
      shards::ShardPicture picture = shards.ReadAsIs(number);
      return EncodedPicture{.bytes = std::move(picture.encoded),
                            .label = picture.label,
                            .name = std::move(picture.name)};
    };
    const SizedPicture picture =
        cache->Get({.name = FromRoot(place) + kind,
                    .version = [&] { return *version; },
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
                                        {Classes(run), run.class_names},
                                        shards::IfCompressed::kInOrder);
  const std::lock_guard lock(mutex);
  std::vector<int64_t>& counts =
      known[fmt::format("{}{}", Classes(run), pictures.Identity())];
  if (counts.empty()) {
    const int64_t size = pictures.size();
    console::Note(fmt::format(
        "--class-weights balanced: reading {} labels, which stand in the "
        "pictures' records",
        size == kUnknownCardinality ? "all" : WithThousands(size)));
    counts = pictures.CountClasses(run.bad_examples->limit() > 0);
  }
  return counts;
}

std::string RecordsEvaluatedOn(const RunContext& run) {
  return shards::ShardsEvaluatedOn(run, run.flag("data"),
                                   shards::IfCompressed::kInOrder);
}

}  // namespace sluice::resnet50
