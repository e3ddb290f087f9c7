#include "apps/resnet50/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "apps/resnet50/label_offset.h"
#include "apps/resnet50/picture_shards.h"
#include "apps/resnet50/pictures.h"
#include "io/records/image_records.h"
#include "models/cli/console.h"

namespace sluice::resnet50 {
namespace {

// Not silently the wrong part: one that lacks a shard is an error.
std::string PartRead(const RunContext& run) {
  const std::string& folder = run.flag("data");
  if (run.training()) return "train";
  if (HasPicturePart(folder, "validation")) return "validation";
  static std::once_flag said;
  std::call_once(said, [&] {
    console::Note(fmt::format(
        "'{}' has no shards of \"validation\", so those of \"train\" are read",
        folder));
  });
  return "train";
}

bool LabelsMatter(const RunContext& run) {
  return run.mode != Mode::kPredict;
}

std::shared_ptr<const PictureShards> Open(const RunContext& run,
                                          const std::string& part) {
  return OpenPictureShards(run.flag("data"), part, LabelsMatter(run),
                           run.input_threads);
}

LabelsOfPictures LabelsOf(const std::shared_ptr<const PictureShards>& shards) {
  const auto label = [shards](int64_t number) { return shards->Label(number); };
  const auto place = [shards](int64_t number) {
    return shards->PlaceOf(number);
  };
  return {.size = shards->size(), .label = label, .place = place};
}

// What a training looks at where its own labels do not tell how they begin.
LabelsOfPictures OtherLabels(const RunContext& run) {
  if (!run.training() || !HasPicturePart(run.flag("data"), "validation")) {
    return {};
  }
  return LabelsOf(Open(run, "validation"));
}

// Two classes of one name cannot be told apart by it.
void RequireUnique(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("the shards number their classes otherwise than the "
                          "training did, and '{}' is the name of two classes",
                          *twice));
}

// By the number that a class has in the records: the number that it has in
// training. Empty where these are the same.
std::vector<int64_t> Renumbering(const std::vector<std::string>& records,
                                 const std::vector<std::string>& training) {
  if (records.empty() || training.empty() || records == training) return {};
  RequireUnique(records);
  RequireUnique(training);
  std::vector<int64_t> numbers;
  for (const std::string& name : records) {
    const auto found = std::find(training.begin(), training.end(), name);
    if (found == training.end()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("the shards have a class '{}', which is none of "
                              "the {} that were trained",
                              name, training.size()));
    }
    numbers.push_back(found - training.begin());
  }
  return numbers;
}

}  // namespace

struct RecordPictures::State {
  std::shared_ptr<const PictureShards> shards;
  bool labels_matter;
  int64_t label_offset = 0;
  std::vector<int64_t> renumbering = {};

  // How many classes the records have, if the training has `classes`.
  int64_t Known(int64_t classes) const {
    return renumbering.empty() ? classes
                               : static_cast<int64_t>(renumbering.size());
  }

  // The class of a record; `place` is for messages.
  int64_t ClassOf(int64_t label, int64_t classes,
                  const std::string& place) const {
    if (!labels_matter) return 0;
    const int64_t number = label - label_offset;
    const int64_t known = Known(classes);
    if (number < 0 || number >= known) {
      throw Error(Code::kOutOfRange,
                  fmt::format("{}: label {} is not in {}..{}, of {} classes; "
                              "--classes says how many there are, "
                              "--label-offset which number the first has",
                              place, label, label_offset,
                              label_offset + known - 1, known));
    }
    return renumbering.empty() ? number : renumbering[number];
  }
};

RecordPictures::RecordPictures(const RunContext& run) {
  State state = {.shards = Open(run, PartRead(run)),
                 .labels_matter = LabelsMatter(run)};
  if (state.labels_matter) {
    state.renumbering = Renumbering(
        ReadClassNames(run.flag("data")).ValueOrThrow(), run.class_names);
    state.label_offset = LabelOffset(
        run, LabelsOf(state.shards), state.Known(Classes(run)),
        !state.renumbering.empty(), [&] { return OtherLabels(run); });
  }
  state_ = std::make_shared<const State>(std::move(state));
}

Dataset RecordPictures::Numbers() const {
  return datasets::RecordNumbers(state_->shards->size(),
                                 state_->shards->Identity().ValueOrThrow() +
                                     DescribeLabelOffset(state_->label_offset));
}

std::function<void(Example&, uint64_t)> RecordPictures::ToPicture(
    const Sizing& sizing, int64_t classes) const {
  return [state = state_, sizing, classes](Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const ShardPicture picture = state->shards->Read(number).ValueOrThrow();
    const std::string place = state->shards->PlaceOf(number);
    const int64_t label = state->ClassOf(picture.label, classes, place);
    const Result<Tensor> image = sizing(picture.encoded, picture.name, key);
    ThrowIfError(image.status().WithContext(place));
    example = {{"image", *image}, {"label", Tensor::Scalar(label)}};
  };
}

std::vector<std::string> RecordClassNames(const RunContext& run) {
  if (!run.class_names.empty()) return run.class_names;
  return ReadClassNames(run.flag("data")).ValueOrThrow();
}

std::string RecordsEvaluatedOn(const RunContext& run) {
  if (PartRead(run) != "train") return "test";
  const std::string pictures = Open(run, "train")->Identity().ValueOrThrow();
  const bool known = run.trained_on.find(pictures) != std::string::npos;
  return known ? "training" : "test";
}

}  // namespace sluice::resnet50
