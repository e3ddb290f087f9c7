#include "apps/resnet50/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

#include "apps/resnet50/each_epoch.h"
#include "apps/resnet50/picture_cache.h"
#include "apps/resnet50/records.h"
#include "apps/resnet50/sizing.h"
#include "apps/shards/class_numbers.h"
#include "apps/shards/note_once.h"
#include "apps/shards/picture_shards.h"
#include "io/files/file.h"
#include "io/files/file_version.h"
#include "io/files/line_stream.h"
#include "io/images/image.h"
#include "io/sources/image_folder.h"
#include "io/sources/image_list.h"
#include "models/cli/console.h"
#include "models/nn/class_weights.h"
#include "models/zoo/resnet.h"

namespace sluice::resnet50 {
namespace {

// Or one batch, where that is more.
constexpr int64_t kSyntheticPictures = 256;
constexpr int64_t kImageNetClasses = 1000;

const std::vector<std::string> kCifarNames = {
    "airplane", "automobile", "bird",  "cat",  "deer",
    "dog",      "frog",       "horse", "ship", "truck"};

}  // namespace

Source SourceOf(const RunContext& run) {
  const std::string& data = run.flag("data");
  if (data == "synthetic") return Source::kSynthetic;
  if (data == "cifar10") return Source::kCifar10;
  return shards::HasPictureShards(data) ? Source::kRecords : Source::kFolder;
}

bool Small(const RunContext& run) {
  const auto exported = run.exported_inputs.find("image");
  if (exported != run.exported_inputs.end() && exported->second.rank() == 4) {
    return exported->second[1] == kCifarSide;
  }
  if (IsCifarResNet(run.flag("model"))) return true;
  // Whatever pictures a model is used on, they are of the size that it was
  // trained on.
  if (!run.training() && !run.trained_on.empty()) {
    return run.trained_on.find("cifar10-train") != std::string::npos;
  }
  return SourceOf(run) == Source::kCifar10;
}

double FlagNumber(const RunContext& run, const char* flag, double least,
                  double most) {
  const std::string& text = run.flag(flag);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--{}: wanted a number from {} to {}, got '{}'",
                            flag, least, most, text));
  }
  return value;
}

std::optional<std::string> Part(const RunContext& run, const char* name) {
  const std::string part = JoinPath(run.flag("data"), name);
  if (FileSystem::Default().Exists(part).ValueOrThrow()) return part;
  return std::nullopt;
}

double KeptBack(const RunContext& run) {
  return FlagNumber(run, "validation-split", 0, 0.9);
}

namespace {

// As ListImages, and says of a labels.csv what was taken for its heading.
ImageList List(const std::string& folder,
               const std::vector<std::string>& class_names,
               const std::string& but = {}) {
  ImageList list = ListImages(folder, class_names, but);
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (!list.heading.empty() && said.insert(folder).second) {
    console::Note(fmt::format("labels.csv of '{}': '{}' is its heading", folder,
                              list.heading));
  }
  return list;
}

// What the folder has beside `val`; classes numbered as in the training if that
// is known.
ImageList BesideVal(const RunContext& run) {
  if (const auto train = Part(run, "train")) {
    return List(*train, run.class_names);
  }
  return List(run.flag("data"), run.class_names, "val");
}

// Of these what is to be trained on, and, with --validation-split, kept back.
SplitList TrainingPictures(const RunContext& run) {
  const ImageList all = BesideVal(run);
  const double kept_back = KeptBack(run);
  SplitList split = SplitImages(all, kept_back);
  if (kept_back > 0 &&
      (split.training.paths.empty() || split.validation.paths.empty())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--validation-split {}: too few pictures in '{}'",
                            kept_back, all.directory));
  }
  return split;
}

}  // namespace

namespace {

// How many classes the data have; nullopt where they say nothing of it.
std::optional<int64_t> ClassesOfData(const RunContext& run) {
  const Source source = SourceOf(run);
  if (source == Source::kSynthetic) return std::nullopt;
  if (const size_t known = run.class_names.size()) {
    return static_cast<int64_t>(known);
  }
  if (source == Source::kCifar10) {
    return static_cast<int64_t>(kCifarNames.size());
  }
  if (source == Source::kFolder) return TrainingPictures(run).training.classes;
  const size_t named = RecordClassNames(run).size();
  return named > 0 ? std::optional<int64_t>(named) : std::nullopt;
}

}  // namespace

int64_t Classes(const RunContext& run) {
  const double given = FlagNumber(run, "classes", 0, 1e6);
  if (given != std::floor(given)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--classes: wanted a whole number, got {}", given));
  }
  // What is trained is checked; other pictures have the classes of a model that
  // may have been trained elsewhere.
  const bool ask = given == 0 || run.training();
  const auto of_data = ask ? ClassesOfData(run) : std::nullopt;
  if (given == 0) return of_data.value_or(Small(run) ? 10 : kImageNetClasses);
  if (of_data && static_cast<double>(*of_data) > given) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--classes {:g}: '{}' has {} classes", given,
                            run.flag("data"), *of_data));
  }
  return static_cast<int64_t>(given);
}

namespace {

// Whether there are pictures to train on beside `val`.
bool HasTraining(const RunContext& run) {
  if (Part(run, "train") || Part(run, "labels.csv")) return true;
  const std::string& data = run.flag("data");
  const auto names = FileSystem::Default().List(data).ValueOrThrow();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name != "val" && MayBeClass(name) &&
           !ImagesIn(JoinPath(data, name)).empty();
  });
}

// Of folders that are classes.
std::string HasFolders(const ImageList& list) {
  return fmt::format("'{}' has folders for classes", list.directory);
}

// The pictures in `val`, with the numbers that their classes have in training.
ImageList ValPictures(const RunContext& run, const std::string& val) {
  std::vector<std::string> names = run.class_names;
  if (names.empty() && HasTraining(run)) {
    names = TrainingPictures(run).training.class_names;
    ImageList list = List(val, names);
    if (names.empty() && !list.class_names.empty()) {
      // Which of them is which nobody can say.
      throw Error(Code::kInvalidArgument,
                  HasFolders(list) + ", training has numbers of a labels.csv");
    }
    if (names.empty() && list.classes > Classes(run)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' has pictures of class {}, training has {} "
                              "classes",
                              val, list.classes - 1, Classes(run)));
    }
    return list;
  }
  return List(val, names);
}

// The pictures to evaluate on: those of `val`, or those kept back, or, where
// there are neither, those to train on.
ImageList OtherPictures(const RunContext& run) {
  ImageList list;
  if (const auto val = Part(run, "val")) {
    list = ValPictures(run, *val);
  } else {
    SplitList split = TrainingPictures(run);
    list = split.validation.paths.empty() ? split.training : split.validation;
  }
  if (!list.class_names.empty()) {
    shards::RequireNumbers(run, HasFolders(list));
  }
  return list;
}

// What the program reads in its mode; what is missing is said.
ImageList Pictures(const RunContext& run) {
  if (run.mode == Mode::kPredict) {  // labels do not matter
    return List(Part(run, "val")
                    .value_or(Part(run, "train").value_or(run.flag("data"))),
                {});
  }
  if (run.training()) return TrainingPictures(run).training;
  ImageList list = OtherPictures(run);
  if (const auto missing = ClassesWithoutImages(list); !missing.empty()) {
    console::Note(
        fmt::format("no pictures of {} of the {} classes in '{}', "
                    "such as '{}'",
                    missing.size(), list.classes, list.directory, missing[0]));
  }
  return list;
}

Dataset Shuffled(const Dataset& examples, const RunContext& run) {
  if (!run.training()) return examples;
  return examples
      .Shuffle(std::max<int64_t>(examples.cardinality(), 1), run.seed)
      .Repeat();
}

// Noise around a colour that depends on the class, so that there is something
// to learn.
Dataset SyntheticPictures(const RunContext& run) {
  static std::once_flag said;
  std::call_once(said, [] {
    console::Note(
        "--data synthetic: coloured noise, to measure speed with; nothing "
        "learnt from it is of use");
  });
  const bool small = Small(run);
  const int64_t classes = small ? 10 : kImageNetClasses;
  ImageList list;
  for (int64_t i = std::max(kSyntheticPictures, run.batch_size); i > 0; --i) {
    list.labels.push_back(i * 7919 % classes);
  }
  list.paths.resize(list.labels.size());
  const Dataset indices = Shuffled(Indices(list, "tensors"), run);
  return indices.Map([small, classes](Example& example) {
    const int64_t side = small ? kCifarSide : kCrop;
    const auto label = example["label"].IntAt(0);
    const auto colour = static_cast<uint64_t>(label * 191 / classes);
    auto state = static_cast<uint64_t>(example["index"].IntAt(0));
    Tensor image(DType::kUInt8, {side, side, 3});
    for (uint8_t& value : image.values<uint8_t>()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<uint8_t>(colour + (state >> 58));
    }
    example = {{"image", std::move(image)}, {"label", example["label"]}};
  });
}

// Reads the picture that an index stands for.
class Reader {
 public:
  Reader(ImageList list, const RunContext& run)
      : list_(std::make_shared<const ImageList>(std::move(list))),
        sizing_(Small(run), run),
        cache_(PictureCache::Of(run)) {
    if (cache_ == nullptr) return;
    listed_ = std::make_shared<EachEpoch<std::vector<std::string>>>(
        list_->paths.size(),
        [list = list_] { return ListedVersions(list->paths); },
        CallsOf(list_->paths.size(), run));
  }

  void operator()(Example& example, uint64_t key) const {
    const int64_t index = example["index"].IntAt(0);
    example = {{"image", Image(index, key)}, {"label", example["label"]}};
  }

 private:
  Tensor Image(int64_t index, uint64_t key) const {
    const std::string& path = list_->paths[index];
    const auto read = [&] {
      return FileSystem::Default().Read(path).ValueOrThrow();
    };
    if (cache_ == nullptr) return sizing_(read(), path, key).ValueOrThrow();
    return cache_
        ->Get(
            {.name = FromRoot(path),
             .listed = (*listed_->For(index))[index],
             .version = [&] { return FileVersion(path); },
             .read =
                 [&] { return EncodedPicture{.bytes = read(), .name = path}; }},
            sizing_, key)
        .image;
  }

  std::shared_ptr<const ImageList> list_;
  Sizing sizing_;
  std::shared_ptr<PictureCache> cache_;
  // With a cache: ListedVersions.
  std::shared_ptr<EachEpoch<std::vector<std::string>>> listed_;
};

MapOptions ReadOptions(const RunContext& run) {
  const auto cache = PictureCache::Of(run);
  return {.bad = run.bad_examples,
          .threads = run.input_threads,
          .name = "decode",
          .kept = cache == nullptr ? nullptr : cache->kept()};
}

Dataset FromFiles(ImageList list, const RunContext& run) {
  const Dataset indices =
      Shuffled(Indices(list, DescribeSizing(run) + IdentityOf(list)), run);
  return indices.MapRandom(run.seed, Reader(std::move(list), run),
                           ReadOptions(run));
}

// By CIFAR-10's number of a class: the one that it has in training, for an
// evaluation; empty where these are the same.
std::vector<int64_t> CifarNumbers(const RunContext& run) {
  if (run.mode != Mode::kEval) return {};
  shards::RequireNumbers(run, "CIFAR-10 names its classes");
  return shards::Renumbering("CIFAR-10's pictures", kCifarNames,
                             run.class_names);
}

Dataset FromCifar10(const RunContext& run) {
  const Dataset cifar =
      Shuffled(datasets::Cifar10(run.data_dir, run.mode), run);
  const std::vector<int64_t> numbers = CifarNumbers(run);
  const bool as_is = Small(run) && !run.training();
  if (as_is && numbers.empty()) return cifar;
  return cifar.MapRandom(run.seed,
                         [as_is, numbers, sizing = Sizing(Small(run), run)](
                             Example& example, uint64_t key) {
                           Tensor& image = example["image"];
                           if (!as_is) image = sizing.Size(image, key);
                           if (numbers.empty()) return;
                           const auto label =
                               static_cast<size_t>(example["label"].IntAt(0));
                           example.Set("label", Tensor::Scalar(numbers[label]));
                         },
                         {.threads = run.input_threads, .name = "augment"});
}

Dataset FromRecords(const RunContext& run) {
  const RecordPictures pictures(run);
  return pictures.Records(run).MapRandom(run.seed, pictures.ToPicture(run),
                                         ReadOptions(run));
}

}  // namespace

Dataset Examples(const RunContext& run) {
  if (!run.files.empty()) {
    ImageList list;
    list.paths = run.files;
    list.labels.assign(run.files.size(), 0);
    return FromFiles(std::move(list), run);
  }
  switch (SourceOf(run)) {
    case Source::kSynthetic:
      return SyntheticPictures(run);
    case Source::kFolder:
      return FromFiles(Pictures(run), run);
    case Source::kRecords:
      return FromRecords(run);
    case Source::kCifar10:
      break;
  }
  return FromCifar10(run);
}

std::vector<double> ClassWeights(const RunContext& run) {
  const std::string& text = run.flag("class-weights");
  if (text.empty()) return {};
  const int64_t classes = Classes(run);
  if (text != "balanced") {
    return ParseClassWeights(text, classes, ClassNames(run));
  }
  const Source source = SourceOf(run);
  if (source == Source::kRecords) {
    return BalancedWeights(RecordClassCounts(run));
  }
  if (source != Source::kFolder) {
    throw Error(Code::kInvalidArgument,
                "--class-weights balanced is for --data with a folder; give "
                "numbers");
  }
  std::vector<int64_t> counts(classes);
  for (const int64_t label : TrainingPictures(run).training.labels) {
    ++counts[label];
  }
  return BalancedWeights(counts);
}

std::vector<std::string> ExampleNames(const RunContext& run) {
  std::vector<std::string> names;
  if (SourceOf(run) != Source::kFolder) return names;
  const ImageList list = OtherPictures(run);
  for (size_t i = 0; i < list.paths.size(); ++i) {
    names.emplace_back(list.Relative(i));
  }
  return names;
}

std::string EvaluatedOn(const RunContext& run) {
  if (SourceOf(run) == Source::kRecords) return RecordsEvaluatedOn(run);
  if (SourceOf(run) != Source::kFolder || Part(run, "val")) return "test";
  const double kept_back = KeptBack(run);
  const ImageList all = BesideVal(run);
  const std::string whole = IdentityOf(all);
  const auto trained_on = [&](const std::string& pictures) {
    return run.trained_on.find(pictures) != std::string::npos;
  };
  if (!trained_on(whole)) {
    // One that has more by now is another set.
    if (trained_on("images-")) {
      shards::NoteOnce(fmt::format(
          "'{}' has no val: some of its pictures may be among those that were "
          "trained on",
          run.flag("data")));
    }
    return kept_back > 0 ? "validation" : "test";
  }
  if (!trained_on(whole + "-but-")) return "training";
  if (kept_back > 0 &&
      trained_on(IdentityOf(SplitImages(all, kept_back).training) + "[")) {
    return "validation";
  }
  throw Error(Code::kInvalidArgument,
              "training kept some of these pictures back: give the same "
              "--validation-split to evaluate on those");
}

// Those of --labels are for people alone: folders have names of their own.
std::vector<std::string> ClassNames(const RunContext& run) {
  const std::string& path = run.flag("labels");
  if (!path.empty() && !run.training()) {
    std::string text = FileSystem::Default().Read(path).ValueOrThrow();
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    std::istringstream lines(std::move(text));
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();  // as Windows ends lines
      names.push_back(line);
    }
    return names;
  }
  if (!run.class_names.empty()) return run.class_names;
  // A training without names had numbers, which no data set has names for.
  const bool trained = !run.trained_on.empty() || !run.exported_inputs.empty();
  if (run.mode == Mode::kPredict && trained) return {};
  switch (SourceOf(run)) {
    case Source::kCifar10:
      return kCifarNames;
    case Source::kFolder:
      return run.training() || HasTraining(run)
                 ? TrainingPictures(run).training.class_names
                 : OtherPictures(run).class_names;
    case Source::kRecords:
      return RecordClassNames(run);
    case Source::kSynthetic:
      break;
  }
  return {};
}

}  // namespace sluice::resnet50
