#include "apps/shards/labelled_shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "apps/shards/class_numbers.h"
#include "apps/shards/label_offset.h"
#include "apps/shards/note_once.h"
#include "apps/shards/shards_in_order.h"
#include "engine/ceil_div.h"
#include "engine/text/thousands.h"
#include "io/files/file_version.h"
#include "io/files/open_files.h"
#include "io/pipeline/bad_examples.h"
#include "io/records/image_records.h"

namespace sluice::shards {
namespace {

WhereShards Where(const RunContext& run, const std::string& path) {
  return {.path = path, .may_lack = run.flag("allow-missing-shards") == "true"};
}

// Not silently the wrong part: one that lacks a shard is an error.
std::string PartRead(const RunContext& run, const std::string& path) {
  if (run.training()) return "train";
  if (HasPicturePart(Where(run, path), "validation")) return "validation";
  NoteOnce(fmt::format(
      "'{}' has no shards of \"validation\", so those of \"train\" are read",
      path));
  return "train";
}

// "'data': 9 of 10 shards of 'train', 1,153,050 pictures"
void SayCount(const std::string& path, const std::string& part,
              const PictureShards& pictures) {
  const auto& [paths, count] = pictures.shards();
  const auto here = static_cast<int64_t>(paths.size());
  int64_t empty = 0;
  for (size_t i = 0; i < paths.size(); ++i) empty += pictures.CountOf(i) == 0;
  const std::string number = pictures.size() == kUnknownCardinality
                                 ? "pictures"
                                 : WithThousands(pictures.size()) + " pictures";
  const std::string how = pictures.how();
  NoteOnce(fmt::format(
      "'{}': {} shard{} of '{}'{}, {}{}{}", path,
      here == count
          ? WithThousands(count)
          : fmt::format("{} of {}", WithThousands(here), WithThousands(count)),
      count == 1 ? "" : "s", part,
      empty == 0 ? "" : fmt::format(", {} of them empty", WithThousands(empty)),
      number, how.empty() ? "" : ", ", how));
}

bool LabelsMatter(const RunContext& run) {
  return run.mode != Mode::kPredict;
}

std::shared_ptr<const PictureShards> Open(const RunContext& run,
                                          const std::string& path,
                                          const std::string& part,
                                          IfCompressed how) {
  auto pictures = OpenPictureShards(Where(run, path), part, LabelsMatter(run),
                                    run.input_threads, how);
  SayCount(path, part, *pictures);
  return pictures;
}

LabelsOfPictures LabelsOf(const std::shared_ptr<const PictureShards>& shards) {
  const auto label = [shards](int64_t number) { return shards->Label(number); };
  const auto place = [shards](int64_t number) {
    return shards->PlaceOf(number);
  };
  const ShardsInOrder* const in_order = shards->in_order();
  return {.size = in_order == nullptr ? shards->size() : in_order->known(),
          .label = label,
          .place = place};
}

// What a training looks at where its own labels do not tell how they begin.
LabelsOfPictures OtherLabels(const RunContext& run, const std::string& path,
                             IfCompressed how) {
  if (!run.training() || !HasPicturePart(Where(run, path), "validation")) {
    return {};
  }
  return LabelsOf(Open(run, path, "validation", how));
}

}  // namespace

struct LabelledShards::State {
  std::shared_ptr<const PictureShards> shards;
  bool labels_matter;
  int64_t classes;    // of the shards
  int64_t trained;    // classes of the training
  std::string flags;  // for messages: LabelFlags
  std::vector<int64_t> renumbering = {};
  int64_t label_offset = 0;

  // The class of a picture with that label.
  Result<int64_t> ClassOf(int64_t label,
                          const std::function<std::string()>& place) const {
    if (!labels_matter) return int64_t{0};
    if (label < label_offset || label >= label_offset + classes) {
      return OutOfRange(fmt::format(
          "{}: label {} is not in {}..{}, of {} classes; {}", place(), label,
          label_offset, label_offset + classes - 1, classes, flags));
    }
    const int64_t number = label - label_offset;
    return renumbering.empty() ? number : renumbering[number];
  }
  Result<int64_t> ClassOf(int64_t label, int64_t picture) const {
    return ClassOf(label, [&] { return shards->PlaceOf(picture); });
  }

  // One by one.
  std::vector<int64_t> CountInOrder(bool passes_over) const {
    std::vector<int64_t> counts(trained);
    Iterator records = shards->in_order()->Records({}).MakeIterator();
    for (Example record; records.Next(&record).ValueOrThrow();) {
      const Result<ImageRecord> image = ImageOf(record);
      if (!image.ok() && passes_over && BadExamples::IsOne(image.status())) {
        continue;
      }
      ThrowIfError(image.status());
      ++counts[image->label];
    }
    return counts;
  }
  // With its class in place of its label; a view into the record's bytes.
  Result<ImageRecord> ImageOf(const Example& record) const {
    const auto place = [&] { return std::string(BytesOf(record["place"])); };
    Result<ImageRecord> image = ParseImageRecord(BytesOf(record["bytes"]));
    if (!image.ok()) return image.status().WithContext(place());
    SLUICE_ASSIGN_OR_RETURN(image->label, ClassOf(image->label, place));
    return image;
  }
};

LabelledShards::LabelledShards(const RunContext& run, const std::string& path,
                               const TrainedClasses& classes,
                               IfCompressed how) {
  State state = {.shards = Open(run, path, PartRead(run, path), how),
                 .labels_matter = LabelsMatter(run),
                 .classes = classes.count,
                 .trained = classes.count,
                 .flags = LabelFlags(run)};
  if (state.labels_matter) {
    state.renumbering =
        Renumbering("the shards", ClassNamesBeside(path), classes.names);
    if (!state.renumbering.empty()) {
      state.classes = static_cast<int64_t>(state.renumbering.size());
    }
    state.label_offset = LabelOffset(
        run, LabelsOf(state.shards), state.classes, !state.renumbering.empty(),
        [&] { return OtherLabels(run, path, how); });
  }
  state_ = std::make_shared<const State>(std::move(state));
}

bool LabelledShards::in_order() const {
  return state_->shards->in_order() != nullptr;
}

Dataset LabelledShards::InOrder(FileOptions options) const {
  options.meaning += Identity();
  return state_->shards->in_order()->Records(options);
}

ShardPicture LabelledShards::PictureOf(const Example& record) const {
  const ImageRecord image = state_->ImageOf(record).ValueOrThrow();
  return {std::string(image.encoded), image.label, image.name()};
}

int64_t LabelledShards::size() const {
  return state_->shards->size();
}

std::string LabelledShards::Identity() const {
  return state_->shards->Identity().ValueOrThrow() +
         DescribeLabelOffset(state_->label_offset);
}

std::string LabelledShards::PlaceOf(int64_t number) const {
  return state_->shards->PlaceOf(number);
}

ShardPicture LabelledShards::Read(int64_t number) const {
  ShardPicture picture = ReadAsIs(number);
  picture.label = ClassOf(picture.label, number);
  return picture;
}

ShardPicture LabelledShards::ReadAsIs(int64_t number) const {
  return state_->shards->Read(number).ValueOrThrow();
}

int64_t LabelledShards::ClassOf(int64_t label, int64_t number) const {
  return state_->ClassOf(label, number).ValueOrThrow();
}

std::vector<int64_t> LabelledShards::CountClasses(bool passes_over) const {
  constexpr int kReads = 16;  // at a time, of a server that is far away
  constexpr int64_t kInOrder = 1000;
  const State& state = *state_;
  if (in_order()) return state.CountInOrder(passes_over);
  std::vector<int64_t> counts(state.trained);
  std::mutex mutex;
  const auto count = [&](size_t piece) -> Status {
    std::vector<int64_t> here(counts.size());
    const int64_t begin = static_cast<int64_t>(piece) * kInOrder;
    for (int64_t i = begin; i < std::min(begin + kInOrder, size()); ++i) {
      const Result<int64_t> label = state.shards->Label(i);
      if (label.ok()) {
        SLUICE_ASSIGN_OR_RETURN(const int64_t number, state.ClassOf(*label, i));
        ++here[number];
      } else if (!passes_over || !BadExamples::IsOne(label.status())) {
        return label.status();
      }
    }
    const std::lock_guard lock(mutex);
    std::transform(here.begin(), here.end(), counts.begin(), counts.begin(),
                   std::plus<>());
    return {};
  };
  ThrowIfError(ForEachFile(CeilDiv(size(), kInOrder), kReads, count));
  return counts;
}

Result<std::string> LabelledShards::Version() const {
  constexpr int kRequests = 16;  // at a time, of a server that is far away
  const PictureShards& shards = *state_->shards;
  const std::vector<std::string>& paths = shards.shards().paths;
  std::vector<std::string> of_files(paths.size());
  SLUICE_RETURN_IF_ERROR(
      ForEachFile(paths.size(), kRequests, [&](size_t i) -> Status {
        SLUICE_ASSIGN_OR_RETURN(of_files[i], FileVersion(paths[i]));
        // What is read is of the file that was opened, whatever is there now.
        const bool read = shards.CountOf(i) > 0;
        if (!read || of_files[i] == shards.VersionOf(i)) return {};
        return Unavailable(fmt::format(
            "'{}' has changed, or has been replaced, since it was opened",
            paths[i]));
      }));
  SLUICE_ASSIGN_OR_RETURN(const std::string identity, shards.Identity());
  return fmt::format("{}\n{}", identity, fmt::join(of_files, "\n"));
}

std::string ShardsEvaluatedOn(const RunContext& run, const std::string& path,
                              IfCompressed how) {
  if (PartRead(run, path) != "train") return "test";
  const std::string pictures =
      Open(run, path, "train", how)->Identity().ValueOrThrow();
  if (run.trained_on.find(pictures) != std::string::npos) return "training";
  // A pattern may be of some of them, or one that was missing is there now.
  if (LabelOffsetOfTraining(run)) {
    NoteOnce(
        fmt::format("'{}' has shards called train: some may be among "
                    "those that were trained on",
                    path));
  }
  return "test";
}

}  // namespace sluice::shards
